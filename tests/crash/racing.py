"""Writers that race, retry, get refused and get cut off, and the count afterwards.

Each writer numbers what it sends, so that every event is known by `writer-number`. What the writer
was told becomes an `Outcome`; the check compares outcomes with the journal itself.
"""

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import orjson

from tape.bus import FollowQuery, Operations
from tape.errors import (
    InvalidArgument,
    OutcomeUnknown,
    StoreFailed,
    StoreUnavailable,
    VersionMismatch,
)
from tape.model.entry import Entry
from tape.model.event import NewEvent
from tape.model.subject import parse_pattern
from tape.model.value import Author
from tape.programs.connect import open_operations
from tape.settings import Settings

POISON = "poison"  # the database refuses to insert events of this type
PATTERNS = (
    "/tape/**",
    "/tape/event/recorded/race.0/**",
    "/tape/event/recorded/*/w/7",
)
END = NewEvent("race.0", '{"id":"end"}', "w", "7", idempotency_key="end")


class Outcome(NamedTuple):
    """What a writer was told: recorded (and where), refused, or nothing it could rely on. Before
    that, that it sent the event: a killed writer is told nothing more."""

    id: str
    told: Literal["sent", "recorded", "refused", "unknown"]
    global_seq: int = 0
    event_id: str = ""


Report = Callable[[Outcome], None]


async def reach(url: str) -> Operations:
    return await open_operations(url, "", Settings())


def numbered(writer: int, number: int, *, keyed: bool, event_type: str = "") -> NewEvent:
    name = f"{writer}-{number}"
    return NewEvent(
        event_type or f"race.{number % 3}",
        orjson.dumps({"id": name, "pad": "x" * (number % 200)}).decode(),
        "w",
        str(writer),
        idempotency_key=name if keyed else "",
    )


async def write(
    writer: int, quota: int, doors: Sequence[Operations], report: Report, seed: int
) -> None:
    """Send `quota` events in bursts, with pauses, retries through another door, and bad ones."""
    chance = random.Random(f"{seed}/{writer}")
    sent = 0
    while sent < quota:
        size = min(chance.randint(1, 40), quota - sent)
        keyed = chance.random() < 0.6
        burst = [numbered(writer, sent + i, keyed=keyed) for i in range(size)]
        sent += size
        if keyed and chance.random() < 0.3:
            await asyncio.gather(*(_record(door, burst, report) for door in doors))
        else:
            await _record(chance.choice(doors), burst, report)
        if chance.random() < 0.2:
            await _misbehave(writer, sent, chance, doors, report)
        if chance.random() < 0.3:
            await asyncio.sleep(chance.random() * 0.02)


async def _record(door: Operations, burst: list[NewEvent], report: Report) -> None:
    ids = [orjson.loads(event.payload_json)["id"] for event in burst]
    for name in ids:
        report(Outcome(name, "sent"))
    try:
        recorded = await door.record_events(burst)
    except OutcomeUnknown:
        for name in ids:
            report(Outcome(name, "unknown"))
    except (StoreUnavailable, StoreFailed, InvalidArgument):
        for name in ids:
            report(Outcome(name, "refused"))
    else:
        for name, place in zip(ids, recorded, strict=True):
            report(Outcome(name, "recorded", place.global_seq, place.event_id))


async def _misbehave(
    writer: int, number: int, chance: random.Random, doors: Sequence[Operations], report: Report
) -> None:
    """What must leave no trace: a bad event in a request, a poisoned insert, a lost race."""
    door = chance.choice(doors)
    good = numbered(writer, 10**6 + number, keyed=False)
    match chance.randint(0, 2):
        case 0:
            await _record(door, [good, good._replace(event_type="")], report)
        case 1:
            await _record(door, [good._replace(event_type=POISON)], report)
        case 2:
            with contextlib.suppress(VersionMismatch, StoreUnavailable):
                await door.values.write_value(
                    "race", "contended", str(writer), number, Author("race")
                )


async def follow_to_end(door: Operations, pattern: str) -> list[Entry]:
    """Everything the pattern matches, as it arrived, up to the end marker."""
    seen: list[Entry] = []
    async for page in door.follow(FollowQuery(pattern, max_batch=500)):
        for entry in page.entries:
            seen.append(entry)
            if entry.idempotency_key == END.idempotency_key:
                return seen
    raise AssertionError("a follower ended by itself")


def check(journal: list[Entry], outcomes: list[Outcome], followed: dict[str, list[Entry]]) -> None:
    """Nothing skipped, doubled or out of order; every acknowledged event there, once."""
    numbers = [entry.global_seq for entry in journal]
    assert numbers == sorted(set(numbers))
    there = Counter(entry.payload["id"] for entry in journal if entry.kind == "event")
    doubled = {name for name, count in there.items() if count > 1}
    assert not doubled
    places = {e.payload["id"]: (e.global_seq, e.event_id) for e in journal if e.kind == "event"}
    told: dict[str, set[str]] = {}
    for outcome in outcomes:
        told.setdefault(outcome.id, set()).add(outcome.told)
        if outcome.told == "recorded":
            assert places.get(outcome.id) == (outcome.global_seq, outcome.event_id), outcome
    refused = {name for name, words in told.items() if words == {"sent", "refused"}}
    assert refused.isdisjoint(there), "a refused event was written"
    assert set(there) - {"end"} <= set(told), "an event nobody sent"
    for pattern, seen in followed.items():
        matches = parse_pattern(pattern).matches
        assert seen == [entry for entry in journal if matches(entry.subject)], pattern
