"""Packing commands and reading replies; hiredis is the second opinion."""

from __future__ import annotations

from enum import Enum
from typing import Any

import hiredis
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fencekit.protocol.operation import Operation
from fencekit.protocol.resp import Decoder, ErrorReply, ProtocolError, pack, pack_script
from fencekit.protocol.script import Script
from fencekit.protocol.token import FenceToken

# -- reading ------------------------------------------------------------------------------------

_words = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=30)
_replies = st.recursive(
    st.none()
    | st.integers(min_value=-(2**63), max_value=2**63 - 1)
    | st.binary(max_size=40)
    | _words.map(lambda text: ("+", text))
    | _words.map(lambda text: ("-", "ERR " + text)),
    lambda inner: st.lists(inner, max_size=5),
    max_leaves=20,
)


def wire(reply: Any) -> bytes:
    """Write a reply as a server does."""
    if reply is None:
        return b"$-1\r\n"
    if isinstance(reply, int):
        return b":%d\r\n" % reply
    if isinstance(reply, bytes):
        return b"$%d\r\n%b\r\n" % (len(reply), reply)
    if isinstance(reply, tuple):
        return f"{reply[0]}{reply[1]}\r\n".encode()
    return b"*%d\r\n" % len(reply) + b"".join(wire(one) for one in reply)


def plain(reply: Any) -> Any:
    """Make replies comparable: an error is no value of its own."""
    if isinstance(reply, ErrorReply):
        return ("error", reply.code, reply.text)
    return [plain(one) for one in reply] if isinstance(reply, list) else reply


def second_opinion() -> Any:
    """Return hiredis, as the drivers use it."""
    make: Any = hiredis.Reader
    return make(protocolError=ProtocolError, replyError=ErrorReply)


def read(reader: Any, pieces: list[bytes]) -> list[Any]:
    """Feed piece by piece, and take what there is after each."""
    found = []
    for piece in pieces:
        reader.feed(piece)
        while (reply := reader.gets()) is not False:
            found.append(plain(reply))
    return found


@given(st.lists(_replies, max_size=5), st.data())
@example([[1, [None, b"\r\n"], ("-", "ERR x")], b""], None)
def test_reads_what_hiredis_reads_however_it_is_cut(replies: list[Any], data: Any) -> None:
    sent = b"".join(wire(reply) for reply in replies)
    if data is None:
        cuts = list(range(len(sent) + 1))
    else:
        cuts = sorted(data.draw(st.lists(st.integers(0, len(sent)), max_size=10)))
    pieces = [sent[a:b] for a, b in zip([0, *cuts], [*cuts, len(sent)], strict=True)]
    expected = read(second_opinion(), [sent])
    assert len(expected) == len(replies)
    assert read(Decoder(), pieces) == expected


@given(_replies)
def test_reads_byte_by_byte(reply: Any) -> None:
    sent = wire(reply)
    decoder = Decoder()
    for at in range(len(sent) - 1):
        decoder.feed(sent[at : at + 1])
        assert decoder.gets() is False
    decoder.feed(sent[-1:])
    assert [plain(decoder.gets())] == read(second_opinion(), [sent])
    assert decoder.gets() is False


def test_a_null_array_is_nothing() -> None:
    assert read(Decoder(), [b"*-1\r\n"]) == [None]


@pytest.mark.parametrize(
    "sent", [b"?1\r\n", b"HTTP/1.1 400\r\n", b":x\r\n", b"$a\r\n", b"*1.5\r\n", b"\r\n"]
)
def test_what_is_not_resp_is_a_protocol_error(sent: bytes) -> None:
    decoder = Decoder()
    decoder.feed(sent)
    with pytest.raises(ProtocolError):
        decoder.gets()


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("NOSCRIPT No matching script.", "NOSCRIPT"),
        ("MOVED 866 127.0.0.1:7001", "MOVED"),
        ("ERR unknown command", "ERR"),
        ("READONLY You can't write against a read only replica. script: on @x:1.", "READONLY"),
        # Redis 6.2, word for word.
        (
            (
                "ERR Error running script (call to f_465b): @user_script:1: @user_script: 1: "
                "-READONLY You can't write against a read only replica."
            ),
            "READONLY",
        ),
        (
            (
                "ERR Error running script (call to f_e89d): @user_script:1: WRONGTYPE Operation "
                "against a key holding the wrong kind of value"
            ),
            "WRONGTYPE",
        ),
        ("ERR Error running script (call to f_e89d): @user_script:3: user_script:3: bad", "ERR"),
        (
            (
                "ERR Error running script (call to f_465b): @user_script:1: @user_script: 1: The "
                "user executing the script can't run this command or subcommand"
            ),
            "NOPERM",
        ),
        # Redis 7.0, and Redis 8.2 and Valkey.
        ("ERR The user executing the script can't run this command or subcommand", "NOPERM"),
        ("ERR ACL failure in script: User x has no permissions to run the 'set' command", "NOPERM"),
        ("", ""),
    ],
)
def test_the_code_of_an_error_is_the_same_inside_a_script(text: str, code: str) -> None:
    assert ErrorReply(text).code == code
    assert ErrorReply(text.encode()).text == text


def test_an_error_that_is_not_utf8_is_still_read() -> None:
    assert ErrorReply(b"ERR \xff").text == "ERR �"


# -- writing ------------------------------------------------------------------------------------


class Colour(str, Enum):
    RED = "red"


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])) | st.binary() | st.integers()))
def test_packs_what_a_server_reads_back(parts: list[Any]) -> None:
    expected = [part if isinstance(part, bytes) else str(part).encode() for part in ["CMD", *parts]]
    assert read(Decoder(), [pack("CMD", *parts)]) == [expected]


def test_packs_an_enum_under_its_value() -> None:
    assert pack("SET", Colour.RED) == pack("SET", "red")


def test_packs_a_token_in_digits() -> None:
    assert pack(FenceToken(2**52, resource="x")) == pack(str(2**52))


SCRIPT = Script.parse("x", "--- X.\n-- Safe to re-send: yes\nreturn 1\n")


def test_packs_a_script_by_its_sha_and_whole() -> None:
    operation = Operation(SCRIPT, ("k", "ö"), (1, b"\x00", "a"), lambda reply: reply)
    rest = [b"2", b"k", "ö".encode(), b"1", b"\x00", b"a"]
    assert read(Decoder(), [pack_script(operation)]) == [[b"EVALSHA", SCRIPT.sha.encode(), *rest]]
    assert read(Decoder(), [pack_script(operation, whole=True)]) == [
        [b"EVAL", SCRIPT.source, *rest]
    ]


def test_a_text_that_is_no_utf8_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="surrogates"):
        pack("\ud800")
