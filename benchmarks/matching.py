"""Matching: what 1,000 reactions make of the journal, without a store and with one."""

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence

from benchmarks.matching_journal import (
    MATCHER,
    ONE_EACH,
    REACTIONS,
    TEN_EACH,
    last_entries,
    record,
    register,
)
from benchmarks.result import Result, compare
from benchmarks.workload import REPETITIONS, on_loop, postgres, sqlite_file
from tape.journal.follow import envelope
from tape.model.entry import Entry
from tape.model.reaction import Reaction
from tape.model.subject import parse_pattern
from tape.ports.store import Store
from tape.predicates import check
from tape.reactions.match import Matcher
from tape.reactions.rules import ReactionRule, ReactionRules
from tape.settings import Settings
from tape.stores.by_url import open_store

ENTRIES = 20_000
STORED = 40_000
NAIVE = 50
LOOK_S = 0.005

Match = Callable[[Sequence[Entry]], int]


def run() -> Iterator[Result]:
    yield _in_memory("one", ONE_EACH, at_least=50_000.0)
    yield _in_memory("ten", TEN_EACH, at_least=None)
    with sqlite_file() as path:
        yield _on_store("SQLite", f"sqlite:{path}")
    with postgres() as server:
        yield _on_store("Postgres", server.create_database("bench"))


def _in_memory(how_many: str, matching: str, *, at_least: float | None) -> Result:
    with sqlite_file() as path:
        reactions, entries = on_loop(_build(f"sqlite:{path}", matching))
    ours, theirs = [], []
    for _ in range(REPETITIONS):
        ours.append(_rate(_by_rules(reactions), entries))
        theirs.append(_rate(_in_turn(reactions), entries[:NAIVE]))
    return compare(
        f"match {REACTIONS:,} reactions, {how_many} for each entry", "entries/s", ours,
        "each reaction in turn", theirs, n=ENTRIES, at_least=at_least, absolute=True,
    )  # fmt: skip


async def _build(url: str, matching: str) -> tuple[list[Reaction], list[Entry]]:
    await register(url, matching)
    await record(url, ENTRIES)
    store = await open_store(url, Settings())
    try:
        return (await store.matching.read_reactions()).reactions, await last_entries(store, ENTRIES)
    finally:
        await store.close()


def _rate(match: Match, entries: Sequence[Entry]) -> float:
    """Entries per second of one core's time, whoever else has use of it."""
    started = time.process_time()
    made = match(entries)
    elapsed = time.process_time() - started
    assert made >= len(entries)
    return len(entries) / elapsed


def _by_rules(reactions: Sequence[Reaction]) -> Match:
    rules = ReactionRules([ReactionRule(reaction, []) for reaction in reactions])

    def match(entries: Sequence[Entry]) -> int:
        """Page by page and step by step, as the matcher does."""
        made = at = 0
        while at < len(entries):
            page = entries[at : at + MATCHER.page_entries]
            matched = rules.match(page, page[-1].global_seq, MATCHER.step_tasks)
            rules.advance(matched.cursors)
            made += len(matched.tasks)
            at = matched.through - entries[0].global_seq + 1
        return made

    return match


def _in_turn(reactions: Sequence[Reaction]) -> Match:
    rules = [(parse_pattern(r.subject_pattern), check(r.predicate_cel)) for r in reactions]

    def match(entries: Sequence[Entry]) -> int:
        made = 0
        for entry in entries:
            seen = envelope(entry, with_payload=True)
            made += sum(
                pattern.matches(entry.subject) and predicate.evaluate(seen)
                for pattern, predicate in rules
            )
        return made

    return match


def _on_store(store: str, url: str) -> Result:
    """Reading pages, matching them and making steps; beside reading the same pages alone."""
    on_loop(register(url, ONE_EACH))
    ours, theirs = [], []
    for _ in range(REPETITIONS):
        on_loop(record(url, STORED))
        ours.append(on_loop(_match_stored(url)))
        theirs.append(on_loop(_read_stored(url)))
    return compare(
        f"the whole matcher, {REACTIONS:,} reactions, one for each entry, {store}", "entries/s",
        ours, "reading alone", theirs, n=STORED,
    )  # fmt: skip


async def _match_stored(url: str) -> float:
    """From its first step on: reading the book of reactions is over by then."""
    store = await open_store(url, Settings())
    try:
        lease = await store.matching.acquire_matcher("bench", int(MATCHER.ttl_s * 1000))
        assert lease is not None
        running = asyncio.create_task(Matcher(store, lease, MATCHER).run())
        begun = await _beyond(store, lease.position)
        started = time.perf_counter()
        await _beyond(store, store.head - 1)
        elapsed = time.perf_counter() - started
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await store.matching.release_matcher(lease)
        return (store.head - begun) / elapsed
    finally:
        await store.close()


async def _beyond(store: Store, position: int) -> int:
    while (now := await _position(store)) <= position:  # noqa: ASYNC110 - nothing tells when
        await asyncio.sleep(LOOK_S)
    return now


async def _position(store: Store) -> int:
    return min(state.position for state in await store.matching.list_reactions())


async def _read_stored(url: str) -> float:
    store = await open_store(url, Settings())
    try:
        started = time.perf_counter()
        entries = await last_entries(store, STORED)
        return len(entries) / (time.perf_counter() - started)
    finally:
        await store.close()
