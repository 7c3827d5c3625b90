"""Tracebacks as text: bounded, and free of what a database or JSON cannot hold."""

from collections.abc import Iterable, Sequence

import orjson

TRACEBACK_CHARACTERS = 8_000
LEAST_CHARACTERS = 200
"""In less than this there is nothing worth reading."""
_LINE_CHARACTERS = 400
_NOTE_CHARACTERS = 40
_GROUP_MARGIN = " |+-"


def harmless(text: str) -> str:
    """Without NUL and lone surrogates."""
    return text.replace("\0", "\\0").encode(errors="replace").decode()


def bounded_traceback(text: str, most: int = TRACEBACK_CHARACTERS) -> str:
    """At most `most` characters: the first line, the innermost frames and the error at the end.

    A line in place of what was left out says how many lines that were.
    """
    text = harmless(text)
    if len(text) <= most:
        return text
    if most < LEAST_CHARACTERS:
        return ""
    longest = min(_LINE_CHARACTERS, most // 5)
    lines = [_shortened(line, longest) for line in text.split("\n")]
    if _size(lines) <= most:
        return "\n".join(lines)
    end = _after_last_frame(lines)
    if end == 1:  # no frames that we know: what comes first is kept
        return "\n".join(_first_of(lines, most))
    ending = _first_of(lines[end:], most // 2)
    room = most - _size([lines[0], *ending]) - 1 - _NOTE_CHARACTERS
    return "\n".join([lines[0], *_last_of(lines[1:end], room), *ending])


def traceback_within(text: str, json_bytes: int) -> str:
    """A traceback that takes no more than this as JSON; empty where too little would be left."""
    most = TRACEBACK_CHARACTERS
    while most >= LEAST_CHARACTERS:
        cut = bounded_traceback(text, most)
        if len(orjson.dumps(cut)) <= json_bytes:
            return cut
        most //= 2
    return ""


def raised_at(traceback: str) -> dict[str, str]:
    """The detail of an entry about what a program's own code raised; none without a traceback."""
    return {"traceback": traceback} if traceback else {}


def _shortened(line: str, most: int) -> str:
    return line if len(line) <= most else line[: most - 1] + "…"


def _size(lines: Sequence[str]) -> int:
    return sum(len(line) + 1 for line in lines) - 1 if lines else 0


def _after_last_frame(lines: Sequence[str]) -> int:
    """Where the words of the error begin; 1 where there is no frame."""
    for index in range(len(lines) - 1, 0, -1):
        if lines[index].lstrip(_GROUP_MARGIN).startswith('File "'):
            end = index + 1
            while end < len(lines) and lines[end].startswith("    "):
                end += 1
            return end
    return 1


def _first_of(lines: Sequence[str], room: int) -> list[str]:
    if _size(lines) <= room:
        return list(lines)
    kept = lines[: _fitting(lines, room - _NOTE_CHARACTERS)]
    return [*kept, _left_out(len(lines) - len(kept))]


def _last_of(lines: Sequence[str], room: int) -> list[str]:
    if _size(lines) <= room:
        return list(lines)
    left_out = len(lines) - _fitting(reversed(lines), room)
    return [_left_out(left_out), *lines[left_out:]]


def _fitting(lines: Iterable[str], room: int) -> int:
    count = 0
    for line in lines:
        room -= len(line) + 1
        if room < 0:
            break
        count += 1
    return count


def _left_out(count: int) -> str:
    return f"  ... {count} lines left out ..."
