"""A gRPC client as bytes, which asks and never lets the server answer: its window stays at 0."""

import struct

from google.protobuf.message import Message

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, SETTINGS = 0, 1, 4
END_STREAM, END_HEADERS = 1, 4
INITIAL_WINDOW_SIZE = 4
EMPTY_SETTINGS = struct.pack(">BHBBL", 0, 0, SETTINGS, 0, 0)


def shut_window() -> bytes:
    """The beginning of a connection that takes no byte of any answer."""
    return PREFACE + _frame(SETTINGS, 0, 0, struct.pack(">HL", INITIAL_WINDOW_SIZE, 0))


def call(number: int, method: str, request: Message, service: str = "tape.v1.Tape") -> bytes:
    """The nth call of a connection, from 0."""
    stream, data = 2 * number + 1, request.SerializeToString()
    head = b"".join(
        _header(name, value)
        for name, value in (
            (":method", "POST"),
            (":scheme", "http"),
            (":path", f"/{service}/{method}"),
            (":authority", "localhost"),
            ("te", "trailers"),
            ("content-type", "application/grpc"),
        )
    )
    message = struct.pack(">BL", 0, len(data)) + data
    return _frame(HEADERS, END_HEADERS, stream, head) + _frame(DATA, END_STREAM, stream, message)


def _frame(kind: int, flags: int, stream: int, content: bytes) -> bytes:
    return struct.pack(">L", len(content))[1:] + struct.pack(">BBL", kind, flags, stream) + content


def _header(name: str, value: str) -> bytes:
    """HPACK's plainest form: a literal that is not indexed."""
    return b"\0" + b"".join(bytes([len(text)]) + text.encode() for text in (name, value))
