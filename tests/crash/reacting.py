"""Reactions under which processes are killed, the entries they are for, and what must come of it.

What a reaction should have done is decided here by code of its own: it shares nothing with the
matcher but the words of the reactions.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

import orjson

from tape.model.event import NewEvent
from tape.reactions.settings import Options

DONE, DLQ = 3, 5
TYPES = ("order", "trade", "quote", "alarm")
DESKS = 40
MANY = 1_000
POISON_ATTEMPTS = 3
FAILING = ("poisoned", "fickle")

Behaviour = Literal["plain", "slow", "flaky", "poison"]


class Planned(NamedTuple):
    """A reaction and, in plain Python, when it is for an entry; it raises where the predicate
    has no result."""

    reaction_id: str
    pattern: str
    predicate: str = ""
    holds: Callable[[Any], bool] = lambda _payload: True
    options: Options = Options()
    behaviour: Behaviour = "plain"
    late: bool = False


class Handled(NamedTuple):
    """A line of a handler's file."""

    reaction_id: str
    source_global_seq: int
    attempt: int


class Row(NamedTuple):
    """A task as the database has it, of the queue or ended."""

    reaction_id: str
    shard: int
    source_global_seq: int
    status: int
    attempts: int


class Recorded(NamedTuple):
    global_seq: int
    subject: str
    payload_json: str


def _patient(
    *, max_concurrency: int = 1, num_shards: int = 1, from_global_seq: int | None = None
) -> Options:
    """However often its holder is killed, it is not given up."""
    return {
        "max_concurrency": max_concurrency,
        "num_shards": num_shards,
        "from_global_seq": from_global_seq,
        "retry_max": MANY,
        "dlq_after_n": MANY,
        "retry_backoff_ms": 20,
    }


def _every(n: int, rest: int = 0) -> dict[str, Any]:
    return {"predicate": f"payload.n % {n} == {rest}", "holds": lambda p: p["n"] % n == rest}


BASE = [
    Planned("quarter", "/tape/event/recorded/**", **_every(4),
            options=_patient(num_shards=4, max_concurrency=64)),
    Planned("orders", "/tape/event/recorded/order/**", options=_patient(max_concurrency=64)),
    Planned("desk-7", "/tape/event/recorded/*/desk/7", options=_patient(max_concurrency=8)),
    Planned("bought", "/tape/event/recorded/trade/*/*", 'payload.side == "buy"',
            lambda p: bool(p["side"] == "buy"), _patient(num_shards=3, max_concurrency=32)),
    Planned("dear", "/tape/event/recorded/**", "payload.price > 90.0",
            lambda p: bool(p["price"] > 90.0), _patient(max_concurrency=32)),
    Planned("textual", "/tape/event/recorded/quote/**", "int(payload.text) > 50",
            lambda p: int(p["text"]) > 50, _patient(num_shards=2, max_concurrency=32)),
    Planned("poisoned", "/tape/event/recorded/alarm/**", **_every(50), behaviour="poison",
            options=Options(dlq_after_n=POISON_ATTEMPTS, retry_backoff_ms=20, max_concurrency=8)),
    Planned("letters", "/tape/task/dead_lettered/**", options=_patient(max_concurrency=8)),
    Planned("fifth", "/tape/event/recorded/**", **_every(5), late=True,
            options=_patient(max_concurrency=64, from_global_seq=0)),
    Planned("unhurried", "/tape/event/recorded/alarm/**", **_every(5, 1), behaviour="slow",
            options=_patient(max_concurrency=12)),
    Planned("fickle", "/tape/event/recorded/trade/**", **_every(25, 2), behaviour="flaky",
            options=_patient(max_concurrency=16)),
    Planned("one-by-one", "/tape/event/recorded/order/desk/3", options=_patient()),
]  # fmt: skip


def plan(reactions: int) -> list[Planned]:
    more = [
        Planned(f"desk-{k}-even", f"/tape/event/recorded/*/desk/{k % DESKS}", **_every(2),
                options=_patient(max_concurrency=16, num_shards=1 + k % 3))
        for k in range(reactions - len(BASE))
    ]  # fmt: skip
    return [*BASE, *more]


def event(number: int, seed: int) -> NewEvent:
    """The same each time, so that it may be sent again."""
    chance = random.Random(f"{seed}/{number}")
    payload: dict[str, Any] = {
        "n": number,
        "side": chance.choice(("buy", "sell")),
        "price": chance.random() * 100,
        "text": str(chance.randrange(100)),
    }
    if number % 97 == 0:
        del payload["price"]
    if number % 89 == 0:
        payload["text"] = "none"
    return NewEvent(
        chance.choice(TYPES),
        orjson.dumps(payload).decode(),
        "desk",
        str(number % DESKS),
        idempotency_key=f"n-{number}",
    )


@lru_cache(100_000)
def matches(pattern: str, subject: str) -> bool:
    want, have = pattern.split("/"), subject.split("/")
    if want[-1] == "**":
        want.pop()
        have = have[: len(want)]
    return len(want) == len(have) and all(w in ("*", h) for w, h in zip(want, have, strict=True))


class Expected:
    """What each reaction must have made of the journal."""

    def __init__(self, planned: Iterable[Planned], journal: Sequence[Recorded]) -> None:
        self.tasks: set[tuple[str, int]] = set()
        self.errors: Counter[str] = Counter()
        rules = list(planned)
        for entry in journal:
            payload = orjson.loads(entry.payload_json)
            for each in rules:
                if matches(each.pattern, entry.subject):
                    self._consider(each, entry.global_seq, payload)

    def _consider(self, planned: Planned, global_seq: int, payload: Any) -> None:
        try:
            if planned.holds(payload):
                self.tasks.add((planned.reaction_id, global_seq))
        except (KeyError, ValueError):
            self.errors[planned.reaction_id] += 1


def read_handled(folder: Path) -> list[Handled]:
    """All whole lines of all files; a kill may have cut off the last."""
    found: list[Handled] = []
    for file in sorted(folder.glob("*.handled")):
        for line in file.read_text().splitlines(keepends=True):
            if line.endswith("\n"):
                reaction_id, seq, attempt = line.split()
                found.append(Handled(reaction_id, int(seq), int(attempt)))
    return found


def check(
    expected: Expected, rows: Sequence[Row], handled: Sequence[Handled], journal: Sequence[Recorded]
) -> None:
    """At least once for each that is due, no task twice, nothing that was not due."""
    keys = Counter((row.reaction_id, row.source_global_seq) for row in rows)
    twice = [key for key, count in keys.items() if count > 1]
    assert not twice, f"there twice: {twice[:5]}"
    missing = expected.tasks - keys.keys()
    assert not missing, f"{len(missing)} tasks were never made: {sorted(missing)[:5]}"
    extra = keys.keys() - expected.tasks
    assert not extra, f"{len(extra)} tasks should not be there: {sorted(extra)[:5]}"
    done = {(each.reaction_id, each.source_global_seq) for each in handled}
    ends = {(row.reaction_id, row.source_global_seq): row for row in rows}
    unhandled = [ends[key] for key in sorted(expected.tasks - done)]
    assert not unhandled, f"{len(unhandled)} tasks had no handler: {unhandled[:5]}"
    strange = done - expected.tasks
    assert not strange, f"handled without cause: {sorted(strange)[:5]}"
    _check_ends(rows, journal)
    again = [row for row in rows if row.attempts > 1 and row.reaction_id not in FAILING]
    assert again, "no kill caught a worker with a task in hand: the run proves little"


def _check_ends(rows: Sequence[Row], journal: Sequence[Recorded]) -> None:
    letters = {
        orjson.loads(entry.payload_json)["task_id"]
        for entry in journal
        if entry.subject.startswith("/tape/task/dead_lettered/")
    }
    for row in rows:
        task_id = f"{row.reaction_id}/{row.shard}/{row.source_global_seq}"
        if row.reaction_id == "poisoned":
            assert row.status == DLQ, f"{task_id} always fails and has status {row.status}"
            assert row.attempts == POISON_ATTEMPTS
            assert task_id in letters, f"no entry tells of {task_id}"
        else:
            assert row.status == DONE, f"{task_id} has status {row.status}"
    assert len(letters) == sum(row.reaction_id == "poisoned" for row in rows)
