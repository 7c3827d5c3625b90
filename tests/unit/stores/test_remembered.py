"""Acceptance in one statement on Postgres: used when it can be, and right when it cannot."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

from tape.errors import NotFound, StaleLease, WrongState
from tape.model.entry import Trace
from tape.model.move import Decision, Need, State
from tape.model.run import RUNS
from tape.model.subscription import ACCEPTED_PLACES, LISTENERS, SEEN_KEYS, SUBSCRIPTIONS
from tape.model.subscription_moves import NewSubscription, subscription_entry
from tape.ports.runs import RunQuery
from tape.ports.store import Store
from tape.settings import Settings
from tape.stores.by_url import open_store
from tape.stores.postgres import remembered, turn
from tape.stores.postgres.extend import StoreTime, WrongGuess, send
from tape.stores.postgres.together import TOGETHER, appending, loading
from tests.conformance.playing import IDS, Look, attempt, play, read_all
from tests.conformance.subscribing import (
    PULL,
    Expire,
    accept,
    accepting,
    bad,
    delete,
    hold,
    move,
    outcomes,
    plain,
    register,
    run_of,
    take,
)


class Statements:
    """How many batches went as one statement, and how many of those were guessed wrong."""

    sent = 0
    wrong = 0

    def __call__(self) -> tuple[int, int]:
        return self.sent, self.wrong


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> Statements:
    counted = Statements()

    async def counting(*args: Any) -> tuple[int, int]:
        counted.sent += 1
        try:
            return await send(*args)
        except WrongGuess:
            counted.wrong += 1
            raise

    monkeypatch.setattr(turn, "send", counting)
    return counted


@pytest.fixture
async def stores(migrated_postgres_url: str) -> AsyncIterator[tuple[Store, Store]]:
    async with AsyncExitStack() as stack:
        both = [await open_store(migrated_postgres_url, Settings()) for _ in range(2)]
        for store in both:
            stack.push_async_callback(store.close)
        yield both[0], both[1]


async def counted(store: Store) -> tuple[int, int, int, int]:
    stored = await store.subscriptions.get_subscription("s")
    assert stored is not None
    row = stored.listener
    return row.accepted, row.redelivered, row.deduplicated, row.dead_lettered


async def test_new_messages_are_single_statements(
    stores: tuple[Store, Store], statements: Statements
) -> None:
    store, other = stores
    token = await take(store)
    trace = Trace("ab" * 16, "", "cd" * 8)
    traced = plain("a/0", run=run_of("a/0")._replace(trace=trace), audit={"run_id": "r"})
    for batch in ([traced], [plain("a/1"), plain("a/2")], [plain("a/3", number=-1)]):
        assert set(await outcomes(store, token, *batch)) == {"accepted"}
    assert statements() == (3, 0)
    told = await outcomes(store, token, plain("a/4"), tells_received=True)
    assert (told, statements()) == (["accepted"], (4, 0))
    assert await counted(other) == (5, 0, 0, 0)
    runs = await other.runs.list_runs(RunQuery(limit=10))
    assert sorted(run.invocation_id for run in runs) == [f"a/{n}" for n in range(5)]
    entries = [
        entry for entry in await read_all(other) if entry.run_id or "directives" in entry.subject
    ]
    assert [entry.trace_id for entry in entries] == ["ab" * 16] * 2 + [""] * 4
    assert await outcomes(other, token, *(plain(f"a/{n}") for n in range(5))) == ["redelivered"] * 5


async def test_what_it_remembers_is_what_it_left(
    stores: tuple[Store, Store], statements: Statements
) -> None:
    store, _other = stores
    token = await take(store)
    await outcomes(store, token, plain("a/1"))
    await hold(store, fencing_token=token, fetched=5, in_flight=1, last_error="it's \\ so")
    await outcomes(store, token, plain("a/2"))
    await move(store, "pause")
    await outcomes(store, token, plain("a/3"))
    await register(store, PULL._replace(document_json='{"v":2}'))
    await outcomes(store, token, plain("a/4"))
    assert statements() == (4, 0)
    stored = await store.subscriptions.get_subscription("s")
    assert stored is not None
    row = stored.listener
    assert (row.accepted, row.fetched, row.last_error) == (4, 5, "it's \\ so")


async def test_what_is_not_new_goes_the_long_way(
    stores: tuple[Store, Store], statements: Statements
) -> None:
    store, other = stores
    token = await take(store)
    await accept(store, token, plain("a/1"))
    assert await outcomes(store, token, plain("a/1"), plain("a/2")) == ["redelivered", "accepted"]
    assert statements() == (2, 1)  # the place was there, though nobody had looked
    assert await outcomes(store, token, plain("a/3"), plain("a/3")) == ["accepted", "redelivered"]
    assert await outcomes(store, token, bad("a/4")) == ["dead_lettered"]
    assert await outcomes(store, token, plain("a/5", "k"), window_ms=9_000) == ["accepted"]
    assert await outcomes(store, token, plain("a/6", "k"), window_ms=9_000) == ["deduplicated"]
    assert await counted(other) == (4, 2, 1, 1)


async def test_what_another_process_did_is_found_out(
    stores: tuple[Store, Store], statements: Statements
) -> None:
    store, other = stores
    token = await take(store)
    await accept(store, token, plain("a/1"))
    assert await outcomes(other, token, plain("a/2")) == ["accepted"]
    assert statements() == (1, 0)
    assert await outcomes(store, token, plain("a/2"), plain("a/3")) == ["redelivered", "accepted"]
    assert await outcomes(other, token, plain("a/3"), plain("a/4")) == ["redelivered", "accepted"]
    assert await counted(store) == await counted(other) == (4, 2, 0, 0)
    assert statements.wrong == 2
    await move(other, "pause")
    await move(other, "deactivate")
    with pytest.raises(WrongState, match="deactivated"):
        await accept(store, token, plain("a/5"))
    await delete(other)
    with pytest.raises(NotFound):
        await accept(store, token, plain("a/5"))
    assert len(await store.runs.list_runs(RunQuery(limit=10))) == 4


async def test_what_another_process_counted_is_not_lost(
    stores: tuple[Store, Store], statements: Statements
) -> None:
    store, other = stores
    token = await take(store)
    for number in range(1, 9):
        await accept((store, other)[number % 2], token, plain(f"a/{number}"))
    assert await counted(store) == (8, 0, 0, 0)
    await hold(other, fencing_token=token, fetched=3, in_flight=1)
    await accept(store, token, plain("a/9"))
    stored = await other.subscriptions.get_subscription("s")
    assert stored is not None
    assert (stored.listener.accepted, stored.listener.fetched) == (9, 3)
    assert statements.wrong == statements.sent > 0


class LookAtPlace:
    """Needs a place that is most likely new, and leaves it as it is."""

    weight = 1

    def needs(self) -> list[Need]:
        return [Need(ACCEPTED_PLACES, ("s", "a/1"), is_new=True)]

    def decide(self, state: State) -> Decision[bool]:
        is_there = state.get(ACCEPTED_PLACES, ("s", "a/1")) is not None
        entry = subscription_entry(next(IDS), "rate_limited", "s", {"is_there": is_there})
        return Decision(lambda _place: is_there, [entry])


async def test_what_is_taken_not_to_be_there_must_be_made(stores: tuple[Store, Store]) -> None:
    store, other = stores
    token = await take(store)
    await accept(other, token, plain("a/1"))
    assert await play(store, LookAtPlace()) is True


async def test_whoever_was_taken_over_elsewhere_is_refused(
    stores: tuple[Store, Store], statements: Statements
) -> None:
    store, other = stores
    stale = await take(store)
    await accept(store, stale, plain("a/1"))
    await play(other, Expire())
    assert (await hold(other, owner="other")).is_granted
    with pytest.raises(StaleLease):
        await accept(store, stale, plain("a/2"))
    assert statements() == (2, 1)
    assert await counted(other) == (1, 0, 0, 0)


async def test_a_purged_namesake_is_not_remembered(stores: tuple[Store, Store]) -> None:
    store, other = stores
    token = await take(store)
    await accept(store, token, plain("a/1"))
    await move(other, "deactivate")
    await delete(other)
    while await other.subscriptions.purge_deleted("s", 100):
        continue
    with pytest.raises(NotFound):
        await accept(store, token, plain("a/2"))
    newer = await take(other)
    with pytest.raises(StaleLease):
        await accept(store, token, plain("a/2"))
    assert await outcomes(store, newer, plain("a/2")) == ["accepted"]


async def test_several_subscriptions_go_together(
    stores: tuple[Store, Store], statements: Statements
) -> None:
    store, other = stores
    tokens = [await take(store, NewSubscription(name, "nats", "pull", "{}")) for name in "st"]
    moves = [
        accepting(
            token, *(plain(f"a/{n}", run=run_of(f"a/{n}", name=name)) for n in (1, 2)), name=name
        )
        for name, token in zip("st", tokens, strict=True)
    ]
    replies = await attempt(store, *moves)
    assert [len(reply.messages) for reply in replies] == [2, 2]
    assert statements() == (1, 0)
    stored = await other.subscriptions.list_subscriptions()
    assert [one.listener.accepted for one in stored] == [2, 2]


async def test_a_refusal_in_the_batch_costs_the_others_nothing(
    stores: tuple[Store, Store], statements: Statements
) -> None:
    store, _other = stores
    token = await take(store)
    moves = [accepting(token, plain("a/1")), accepting(token + 1, plain("a/2"))]
    done, refused = await attempt(store, *moves)
    assert (len(done.messages), type(refused)) == (1, StaleLease)
    assert statements() == (0, 0)
    assert await counted(store) == (1, 0, 0, 0)


async def test_a_clock_that_was_set_is_found_out(
    stores: tuple[Store, Store], statements: Statements, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, _other = stores
    token = await take(store)
    told = StoreTime.now_ms
    monkeypatch.setattr(StoreTime, "now_ms", lambda time: (told(time) or 0) + 1_000)
    assert await outcomes(store, token, plain("a/1")) == ["accepted"]
    assert statements() == (1, 1)


async def test_no_more_is_remembered_than_it_may(
    stores: tuple[Store, Store], statements: Statements, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remembered, "MOST_REMEMBERED", 2)
    store, _other = stores
    tokens = {n: await take(store, NewSubscription(n, "nats", "pull", "{}")) for n in "abc"}
    for name, token in tokens.items():
        mine = plain("x/1", run=run_of("x/1", name=name))
        assert await outcomes(store, token, mine, name=name) == ["accepted"]
    assert statements() == (0, 0)  # each had to make room for the one after it
    mine = plain("x/2", run=run_of("x/2", name="c"))
    await outcomes(store, tokens["c"], mine, name="c")
    assert statements() == (1, 0)


def test_statements_are_put_together_with_their_own_parameters() -> None:
    together = loading("subscriptions", "accepted_places", "listeners")
    assert [f"${n}" in together for n in range(1, 6)] == [True, True, True, True, False]
    assert "--" not in together
    saves = appending("listeners", "accepted_places")
    for n in range(1, 20 + 5 + 18 + 1):
        assert f"${n}" in saves
    assert "$44" not in saves


@pytest.mark.parametrize("name", sorted(table.name for table in TOGETHER))
def test_what_goes_together_locks_nothing_and_looks_nowhere_else(name: str) -> None:
    table = f"tape_{name}"
    for statement in (loading(name), appending(name).partition("SELECT first_global_seq")[0]):
        assert "FOR UPDATE" not in statement
        assert statement.count("tape_") == statement.count(table)


async def test_a_look_at_many_tables_sees_what_is_there(stores: tuple[Store, Store]) -> None:

    store, other = stores
    token = await take(store)
    await accept(store, token, plain("a/1", "k"), window_ms=9_000)
    needs = [
        Need(SUBSCRIPTIONS, "s"), Need(LISTENERS, "s"), Need(SEEN_KEYS, ("s", "", "k")),
        Need(ACCEPTED_PLACES, ("s", "a/1")), Need(ACCEPTED_PLACES, ("s", "a/2")),
        Need(RUNS, run_of("a/1").name.run_id), Need(RUNS, "nothing"),
    ]  # fmt: skip
    found = await play(other, Look(*needs))
    stored = await store.subscriptions.get_subscription("s")
    assert stored is not None
    assert found[:2] == [stored.subscription, stored.listener]
    assert [row is not None for row in found[2:]] == [True, True, False, True, False]
    assert found[5] == await store.runs.get_run(found[5].run_id)
