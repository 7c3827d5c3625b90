"""Control lines of messages, whatever bytes their subjects have.

A server takes every subject without a blank, a tab or an end of line. nats-py ends a subject at
each white space of ASCII, and takes the rest for a line that it does not know: it closes the
connection, and would again whenever the message comes again.
"""

from typing import Any, Final

from nats.protocol.parser import AWAITING_CONTROL_LINE, AWAITING_MSG_PAYLOAD, CRLF_SIZE, Parser

_END: Final = b"\r\n"


class ControlLineParser(Parser):
    """It reads control lines of messages itself and leaves all else to the library. Its attributes
    are private to nats-py; `tests/integration/sources/test_nats_odd_messages.py` fails if another
    version has others."""

    def __init__(self, client: Any) -> None:
        super().__init__(client)

    def reset(self) -> None:
        super().reset()
        self._unread = bytearray()

    async def parse(self, data: bytes = b"") -> None:
        self._unread.extend(data)
        while self._unread:
            if self.state == AWAITING_CONTROL_LINE:
                length = self._unread.find(_END) + len(_END)
                if length < len(_END):
                    return
                if self._begins_message(bytes(self._unread[: length - len(_END)])):
                    del self._unread[:length]
                    continue
            else:
                length = self.needed + CRLF_SIZE - len(self.buf)
            passed_on = bytes(self._unread[:length])
            del self._unread[:length]
            await super().parse(passed_on)

    def _begins_message(self, line: bytes) -> bool:
        kind, *parts = line.split(b" ")
        sizes = {b"MSG": 1, b"HMSG": 2}.get(kind)
        if sizes is None or len(parts) - sizes not in (2, 3):  # with whom to answer, or without
            return False
        subject, sid, *reply = parts[:-sizes]
        *header_size, size = parts[-sizes:]
        if not all(number.isdigit() for number in (sid, *header_size, size)):
            return False
        self.msg_arg = {"subject": subject, "sid": int(sid), "reply": b"".join(reply)}
        self.header_needed = int(header_size[0]) if header_size else 0
        self.needed = int(size)
        self.state = AWAITING_MSG_PAYLOAD
        return True
