"""Matching: what 1,000 reactions make of the journal, without a store and with one.

No two entries share a subject, so remembering what a subject matched helps nobody.
"""

import asyncio
import contextlib
import time
from collections.abc import Iterator, Sequence

from benchmarks.result import Result, compare
from benchmarks.workload import (
    PAYLOAD,
    REPETITIONS,
    on_loop,
    opened,
    postgres,
    record_all,
    sqlite_file,
)
from tape.config import Settings
from tape.model.entry import Entry
from tape.model.event import NewEvent
from tape.model.reaction import HandlerKind, NewReaction, Reaction, ReactionCursor
from tape.model.subject import parse_pattern
from tape.ports.store import ReadEntries, Store
from tape.predicates import check
from tape.reactions.match import PAGE_BYTES, Matcher
from tape.reactions.rules import Rule, Rules
from tape.stores.by_url import open_store

REACTIONS = 1_000
MATCHING = 10
ENTRIES = 20_000
STORED = 40_000
PAGE = 2_000
NAIVE = 50
TTL_MS = 60_000
LOOK_S = 0.005
PREDICATE = "payload.price > 100.0"


def run() -> Iterator[Result]:
    yield _in_memory(
        "1 of 1,000 reactions for each entry", _one_each(), at_least=50_000.0
    )
    yield _in_memory("10 of 1,000 reactions for each entry", _all_ten(), at_least=None)
    with sqlite_file() as path:
        yield _on_store("SQLite", f"sqlite:{path}")
    with postgres() as server:
        yield _on_store("Postgres", server.create_database("bench"))


def _one_each() -> list[NewReaction]:
    """Ten reactions match, each of them every tenth entry."""
    return _reactions("/tape/event/recorded/type{0}/**")


def _all_ten() -> list[NewReaction]:
    """The same ten match every entry."""
    return _reactions("/tape/event/recorded/**")


def _reactions(matching: str) -> list[NewReaction]:
    others = (
        "/tape/effect/confirmed/tool{0}/*",
        "/tape/value/changed/ns{0}/**",
        "/tape/event/recorded/other{0}/*/**",
        "/tape/decision/recorded/*/{0}",
    )
    return [
        NewReaction(
            f"reaction{i}",
            (matching if i < MATCHING else others[i % len(others)]).format(i),
            HandlerKind.TASK,
            predicate_cel=PREDICATE if i < MATCHING else "",
        )
        for i in range(REACTIONS)
    ]
