"""What is not promised, shown happening: docs/reference/guarantees.md names these."""

from __future__ import annotations

from datetime import timedelta

from harness.claims import Record
from harness.guards import Guards, Work

HOUR = timedelta(hours=1)


def test_what_redis_loses_is_forgotten_and_the_work_runs_again(
    guards: Guards, record: Record
) -> None:
    work = Work(1)
    guards.call("run", "job", work, ttl=HOUR)
    guards.call("run", "job", work, ttl=HOUR)
    assert work.done == 1
    record.drop()
    guards.call("run", "job", work, ttl=HOUR)
    assert work.done == 2


def test_a_worker_that_was_frozen_past_its_lease_does_its_work_beside_another(
    guards: Guards, record: Record
) -> None:
    """Its effect is stopped by the fence, and by nothing else."""
    frozen = guards.begin("job", ttl=HOUR, renew=False)
    record.lapse()
    successor = guards.begin("job", ttl=HOUR)
    assert frozen.started
    assert successor.reclaimed
    assert not record.passes(int(frozen.fence))
    assert record.passes(int(successor.fence))
    successor.complete(1)
