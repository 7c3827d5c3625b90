"""Control lines of NATS, in whatever pieces they come."""

import pytest

pytest.importorskip("nats", reason="needs the extra nats")

from nats.errors import ProtocolError

from tape.brokers.nats_control_lines import ControlLineParser

CAME = (
    b"MSG a\x0bb 1 2\r\nhi\r\n"
    b"PING\r\n"
    b"HMSG \xff 12 $JS.ACK.s.d 3 5\r\nabc\r\n\r\n"
    b"MSG MSG 3 answer.1 0\r\n\r\n"
    b"+OK\r\nPONG\r\n"
    b"MSG x 4 21\r\nMSG in.a.body 1 1\r\n1\r\n\r\n"
)
HEARD = [
    (1, b"a\x0bb", b"", b"hi", None),
    "ping",
    (12, b"\xff", b"$JS.ACK.s.d", b"\r\n", b"abc"),
    (3, b"MSG", b"answer.1", b"", None),
    "pong",
    (4, b"x", b"", b"MSG in.a.body 1 1\r\n1\r", None),
]


class Heard:
    def __init__(self) -> None:
        self.found: list[object] = []

    async def _process_msg(self, *message: object) -> None:
        self.found.append(message)

    async def _process_ping(self) -> None:
        self.found.append("ping")

    async def _process_pong(self) -> None:
        self.found.append("pong")


@pytest.mark.parametrize("piece", [1, 2, 3, 7, 1000])
async def test_messages_in_pieces(piece: int) -> None:
    heard = Heard()
    parser = ControlLineParser(heard)
    for start in range(0, len(CAME), piece):
        await parser.parse(CAME[start : start + piece])
    assert heard.found == HEARD


@pytest.mark.parametrize(
    "line", [b"MSG a 1\r\n", b"MSG a b c d 1\r\n", b"HMSG a x 1 2\r\n", b"X\r\n"]
)
async def test_what_is_no_control_line_ends_the_connection(line: bytes) -> None:
    parser = ControlLineParser(Heard())
    with pytest.raises(ProtocolError):
        await parser.parse(line)


async def test_what_was_begun_is_forgotten_when_the_connection_is_another() -> None:
    heard = Heard()
    parser = ControlLineParser(heard)
    await parser.parse(b"MSG a 1 100\r\nbegun")
    await parser.parse(b"MSG a 1")
    parser.reset()
    await parser.parse(b"MSG a 1 2\r\nhi\r\n")
    assert heard.found == [(1, b"a", b"", b"hi", None)]
