"""`tape record --batch`: newline-delimited JSON, a request at a time, in bounded memory.

A request is all or nothing. A bad line stops the reading: what was acknowledged before it stays,
nothing of its own request is written, and the message names the line and says how far it got.
"""

import contextlib
import json
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple, NoReturn

from rich.text import Text

from tape.cli.output import notes, print_json, say
from tape.cli.target import Target, announcing_created_store, connect
from tape.errors import InvalidArgument
from tape.model.event import NewEvent, Recorded

REQUEST_EVENTS = 1_000
REQUEST_BYTES = 4 * 1024 * 1024
LINE_BYTES = 2 * 1024 * 1024
PROGRESS_S = 2.0

# What a line may hold: the fields of an event, the payload as JSON and not as text.
_FIELDS = {
    name: type(NewEvent._field_defaults.get(name, ""))
    for name in NewEvent._fields
    if name != "payload_json"
}
_INDEX = re.compile(r"events\[(\d+)\]\.?")


class BatchLine(NamedTuple):
    number: int
    event: NewEvent
    size: int


class _BatchCounts:
    def __init__(self) -> None:
        self.recorded, self.duplicates, self.through = 0, 0, 0
        self._said = time.monotonic()

    def add(self, request: list[BatchLine], results: list[Recorded]) -> None:
        again = sum(result.duplicate for result in results)
        self.duplicates += again
        self.recorded += len(results) - again
        self.through = request[-1].number
        if time.monotonic() - self._said > PROGRESS_S:
            self._said = time.monotonic()
            notes().print(Text(f"… {self.through:,} lines", style="dim"))


async def record_batch(target: Target, name: str, *, as_json: bool) -> None:
    tally = _BatchCounts()
    with _opened(name) as stream:
        with announcing_created_store():
            client = await connect(target, creating=True)
        async with client:
            try:
                for request in requests(read_lines(stream)):
                    try:
                        results = await client.record_many([line.event for line in request])
                    except InvalidArgument as fault:
                        _blame(request, fault)
                    tally.add(request, results)
                    if as_json:
                        _print(request, results)
            except BadLineError as fault:
                kept = f"lines up to {tally.through} are" if tally.through else "nothing is"
                raise InvalidArgument(f"{fault}; {kept} recorded") from fault
    if not as_json:
        again = f", {tally.duplicates} already there" if tally.duplicates else ""
        say(f"recorded {tally.recorded} events{again}")


class BadLineError(Exception):
    """A line that is not an event; its message names it."""


def read_lines(stream: IO[bytes]) -> Iterator[BatchLine]:
    number = 0
    while text := stream.readline(LINE_BYTES + 1):
        number += 1
        if len(text) > LINE_BYTES:
            raise BadLineError(f"line {number}: longer than {LINE_BYTES} bytes")
        if text.strip():
            yield BatchLine(number, parse_line(text, number), len(text))


def requests(lines: Iterator[BatchLine]) -> Iterator[list[BatchLine]]:
    """Lines in groups that go into one request each."""
    request: list[BatchLine] = []
    size = 0
    for line in lines:
        request.append(line)
        size += line.size
        if len(request) >= REQUEST_EVENTS or size >= REQUEST_BYTES:
            yield request
            request, size = [], 0
    if request:
        yield request


def parse_line(text: bytes, number: int) -> NewEvent:
    try:
        # The standard library's parser keeps integers of any size, orjson's does not.
        fields = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else error
        raise BadLineError(f"line {number}: not valid JSON: {reason}") from None
    if not isinstance(fields, dict):
        raise BadLineError(f"line {number}: must be a JSON object")
    payload = json.dumps(fields.pop("payload", None), ensure_ascii=False)
    for name, value in fields.items():
        _check_field(name, value, number)
    if "event_type" not in fields:
        raise BadLineError(f"line {number}: event_type is missing")
    return NewEvent(payload_json=payload, **fields)


def _check_field(name: str, value: Any, number: int) -> None:
    wanted = _FIELDS.get(name)
    if wanted is None:
        raise BadLineError(f"line {number}: an event has no field {name!r}")
    if type(value) is not wanted:
        what = "a whole number" if wanted is int else "text"
        raise BadLineError(f"line {number}: {name} must be {what}")


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} has no JSON form")


def _blame(request: list[BatchLine], fault: InvalidArgument) -> NoReturn:
    """The line that a refused request's message speaks of by its index."""
    found = _INDEX.match(str(fault))
    if found is None:
        lines = f"lines {request[0].number} to {request[-1].number}"
        raise BadLineError(f"{lines}: {fault}") from fault
    number = request[int(found[1])].number
    raise BadLineError(f"line {number}: {str(fault)[found.end() :]}") from fault


def _print(request: list[BatchLine], results: list[Recorded]) -> None:
    for line, result in zip(request, results, strict=True):
        print_json({"line": line.number, **result._asdict()})


@contextlib.contextmanager
def _opened(name: str) -> Iterator[IO[bytes]]:
    if name == "-":
        yield sys.stdin.buffer
        return
    with Path(name).open("rb") as stream:
        yield stream
