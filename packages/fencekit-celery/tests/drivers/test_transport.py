"""What the Redis transport of kombu loses, without anything of fencekit in it."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from harness import servers
from harness.letters import DURABLE, letters
from harness.servers import Server

_TAKE = """
import os, sys
from kombu import Connection, Consumer, Queue
from kombu.transport.redis import QoS

url, when, wait = sys.argv[1:]
append = QoS.append

def dying(self, message, tag):
    if when == "after":
        append(self, message, tag)
    os._exit(9)

if when != "never":
    QoS.append = dying

options = {"visibility_timeout": 1, "unacked_restore_interval": 1}
with Connection(url, transport_options=options) as connection:
    def received(body, message):
        print(body, flush=True)
        message.ack()
        os._exit(0)
    with Consumer(connection, [Queue("celery")], callbacks=[received]):
        connection.channel().qos.restore_visible(interval=1)
        connection.drain_events(timeout=float(wait))
"""

_SEND = """
import sys
from kombu import Connection
with Connection(sys.argv[1]) as connection:
    connection.SimpleQueue("celery").put("a message")
"""


def _python(code: str, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code, *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)


@pytest.fixture
def broker() -> Iterator[Server]:
    with servers.start(args=DURABLE) as server:
        yield server


def _taken_by_a_consumer_that_dies(broker: Server, when: str) -> None:
    assert _python(_SEND, broker.url).returncode == 0
    assert broker.call("LLEN", "celery") == 1
    assert _python(_TAKE, broker.url, when, "5").returncode == 9


def test_a_message_that_was_popped_and_not_yet_noted_is_nowhere_when_its_consumer_dies(
    broker: Server,
) -> None:
    _taken_by_a_consumer_that_dies(broker, "before")
    assert broker.call("EXISTS", "celery", "unacked", "unacked_index") == 0
    assert [letter.state for letter in letters(broker)] == ["popped"]
    # Past the visibility timeout nobody gets it.
    late = _python(_TAKE, broker.url, "never", "3")
    assert "a message" not in late.stdout
    assert [letter.state for letter in letters(broker)] == ["popped"]


def test_a_message_that_was_noted_comes_back_when_its_consumer_dies(broker: Server) -> None:
    _taken_by_a_consumer_that_dies(broker, "after")
    assert broker.call("HLEN", "unacked") == 1
    assert [letter.state for letter in letters(broker)] == ["noted"]
    time.sleep(1.5)  # outlasts the visibility timeout of 1 s
    assert "a message" in _python(_TAKE, broker.url, "never", "5").stdout
    assert [letter.state for letter in letters(broker)] == ["acknowledged"]
