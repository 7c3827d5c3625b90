"""Complete lines of a file, from a position on, and the messages that they are."""

import os
from collections.abc import Iterator
from hashlib import blake2b, sha256
from typing import Final, NamedTuple

from tape.errors import InvalidArgument
from tape.model.landed import read_landed
from tape.model.message import SourceMessage
from tape.model.subscription_spec import SourceKind

CHUNK: Final = 1 << 18
PAGE: Final = 1 << 12
LONGEST_LINE: Final = 16 << 20
"""A longer line is delivered cut off there: it is beyond every limit of a message."""


class FileLine(NamedTuple):
    """`number` counts from 1. The line is at `start` and ends, with its end of line, at `end`."""

    number: int
    start: int
    end: int
    text: bytes

    @property
    def digest(self) -> str:
        return digest_of(self.text)

    @property
    def is_cut(self) -> bool:
        return self.end - self.start > LONGEST_LINE + len(b"\r\n")


def digest_of(text: bytes) -> str:
    return blake2b(text, digest_size=8).hexdigest()


def read_lines(file: int, start: int, number: int, chunk_bytes: int = CHUNK) -> Iterator[FileLine]:
    """The complete lines from `start` on, the first of which has that number. What has no end of
    line yet is not one."""
    at, line_at = start, start
    kept = bytearray()
    while chunk := os.pread(file, chunk_bytes, at):
        begin = 0
        while (end := chunk.find(b"\n", begin)) >= 0:
            kept += chunk[begin : min(end, begin + LONGEST_LINE - len(kept))]
            yield FileLine(number, line_at, at + end + 1, bytes(kept).removesuffix(b"\r"))
            kept.clear()
            begin, number, line_at = end + 1, number + 1, at + end + 1
        kept += chunk[begin : begin + LONGEST_LINE - len(kept)]
        at += len(chunk)


def line_at(file: int, start: int) -> FileLine | None:
    """The complete line that begins there."""
    return next(read_lines(file, start, 1, PAGE), None)


def line_message(file: int, line: FileLine, origin: str, changed_ms: int) -> SourceMessage:
    """A landed message, or else the line itself as the body of one. `changed_ms` is when the file
    was changed last, for a line that tells no time."""
    source, position = SourceKind.FILE.value, str(line.number)
    if line.is_cut:
        size, digest = _whole(file, line)
        cut_off = SourceMessage(source, origin, position, line.text, timestamp_ms=changed_ms)
        return cut_off._replace(whole_bytes=size, whole_sha256=digest)
    try:
        message = read_landed(line.text).found_at(source, origin, position)
    except InvalidArgument:
        return SourceMessage(source, origin, position, line.text, timestamp_ms=changed_ms)
    return message._replace(timestamp_ms=message.timestamp_ms or changed_ms)


def _whole(file: int, line: FileLine) -> tuple[int, str]:
    """Size and SHA-256 of a line that is cut off, without its end of line."""
    end = line.end - 1
    end -= os.pread(file, 1, end - 1) == b"\r"
    digest, at = sha256(), line.start
    while at < end and (chunk := os.pread(file, min(CHUNK, end - at), at)):
        digest.update(chunk)
        at += len(chunk)
    return end - line.start, digest.hexdigest()
