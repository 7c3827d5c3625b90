"""Headers of NATS messages, whole: several values of one name, and bytes that are not UTF-8.

The client's library makes a dict of them, which keeps the last value of each spelling and puts
marks where bytes are not UTF-8. `WholeHeadersClient` gives the same dict, with all that came beside
it; `header_pairs` reads that.

A server takes any bytes for a subject and for a block of headers. The library stops reading at
those that it cannot decode, and tells nobody: what is behind them is never delivered. Here U+FFFD
is put for what is not UTF-8 in a subject, and a block that cannot be read is no headers.
"""

from typing import Final

from nats.aio.client import Client
from nats.aio.msg import Msg

from tape.brokers.nats_control_lines import ControlLineParser
from tape.model.message import Header

VERSION_LINE: Final = b"NATS/1.0"
STATUS: Final = "Status"


class WholeHeaders(dict[str, str]):
    """What the library makes of headers, and as `pairs` all of them in the order in which they
    came.

    One named `Status` is among the pairs only. By that name the library knows what the server
    itself says, which never comes as a line of its own, and it drops the message.
    """

    def __init__(self, pairs: tuple[Header, ...]) -> None:
        super().__init__(
            (name, value.decode(errors="replace")) for name, value in pairs if name != STATUS
        )
        self.pairs = pairs


class WholeHeadersClient(Client):
    """A client whose messages have `WholeHeaders`, and that reads on whatever it is sent.

    It overrides private methods of nats-py, as there is no other way to the bytes. If another
    version does not call them, `tests/integration/brokers/test_nats_headers.py` fails, or
    `tests/integration/sources/test_nats_odd_messages.py`.
    """

    def __init__(self) -> None:
        super().__init__()
        self._ps = ControlLineParser(self)

    async def _process_headers(self, headers: bytes | None) -> dict[str, str] | None:
        first, _, block = (headers or b"").partition(b"\r\n")
        if first.strip() != VERSION_LINE:  # nothing, or a status of the server's own
            try:
                found: dict[str, str] | None = await super()._process_headers(headers)
            except (IndexError, UnicodeDecodeError):  # neither, whoever sent it
                return None
            return found
        pairs = parsed_headers(block)
        return WholeHeaders(pairs) if pairs else None

    def _build_message(
        self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: dict[str, str] | None
    ) -> Msg:
        message: Msg = super()._build_message(sid, _utf8(subject), _utf8(reply), data, headers)
        return message


def _utf8(came: bytes) -> bytes:
    return came.decode(errors="replace").encode()


def parsed_headers(block: bytes) -> tuple[Header, ...]:
    """The headers of a block of lines `Name: value`, values with their bytes.

    As the library does, it passes over lines without a colon, and over names that are not ASCII or
    have blanks in them, which the protocol forbids; and over a value without a name.
    """
    pairs: list[Header] = []
    for line in block.split(b"\r\n"):
        name, colon, value = line.partition(b":")
        name = name.strip()
        if colon and name and name.isascii() and len(name.split()) == 1:
            pairs.append((name.decode("ascii"), value.strip()))
    return tuple(pairs)


def header_pairs(message: Msg) -> tuple[Header, ...]:
    """All headers of a message as they came, if its client is a `WholeHeadersClient`; else what its
    library has left of them."""
    headers = message.headers or {}
    if isinstance(headers, WholeHeaders):
        return headers.pairs
    return tuple((name, value.encode()) for name, value in headers.items())
