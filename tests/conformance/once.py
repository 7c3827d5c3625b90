"""Runs by a key: however many begin one at once, there is one in its window."""

import asyncio

from tape.model.begin_once import BeginRunOnce, OnceAnswer, scope_of
from tape.model.lease import NewRun
from tape.model.move import save
from tape.model.run import RunName
from tape.model.subscription import SEEN_KEYS, SeenKey
from tape.model.trace_context import TraceTexts
from tape.ports.store import Store
from tests.conformance.playing import (
    IDS,
    LIMITS,
    OpenStore,
    SaveRows,
    attempt,
    play,
    read_all,
)
from tests.conformance.subscribing import accept, plain, take

HOUR_MS = 3_600_000


def once(
    invocation: str, key: str = "k", *, app: str = "app", window_ms: int = HOUR_MS
) -> BeginRunOnce:
    new = NewRun(RunName(app, "", "", invocation), '{"n":1}')
    return BeginRunOnce(new, key, window_ms, (next(IDS), next(IDS)), LIMITS)


async def deduplicated(store: Store) -> list[str]:
    """The runs that an entry says somebody was given instead of another."""
    entries = await read_all(store)
    return [
        entry.payload["run_id"]
        for entry in entries
        if entry.subject.startswith("/tape/subscription/run_deduplicated/")
    ]


class OnceContract:
    async def test_of_many_at_once_one_begins_a_run(self, open_store: OpenStore) -> None:
        stores = [await open_store() for _ in range(2)]
        answers: list[OnceAnswer] = await asyncio.gather(
            *(play(stores[n % 2], once(f"i{n}")) for n in range(20))
        )
        (begun,) = [answer for answer in answers if answer.run is not None]
        assert {answer.run_id for answer in answers} == {begun.run_id}
        assert await deduplicated(stores[0]) == [begun.run_id] * 19
        run = await stores[1].runs.get_run(begun.run_id)
        assert run == begun.run

    async def test_in_one_batch(self, open_store: OpenStore) -> None:
        store = await open_store()
        moves = [once("a"), once("b"), once("b", "other"), once("a", "other"), once("a", app="x")]
        a, b, other, again, x = await attempt(store, *moves)
        assert (a.resumed, b.run, b.run_id) == (False, None, a.run_id)
        assert (other.resumed, other.run_id != a.run_id) == (False, True)
        assert (again.resumed, again.run_id) == (True, a.run_id)
        assert x.run_id not in (a.run_id, other.run_id)
        assert await deduplicated(store) == [a.run_id]

    async def test_a_key_is_forgotten_with_its_window(self, open_store: OpenStore) -> None:
        store, other = await open_store(), await open_store()
        first = await play(store, once("a"))
        now_ms = await store.subscriptions.read_clock()
        passed = SeenKey(scope_of("app"), "", "k", first.run_id, "", 1, now_ms)
        await play(store, SaveRows(save(SEEN_KEYS, passed)))
        second = await play(other, once("b"))
        assert (second.resumed, second.run_id != first.run_id) == (False, True)
        assert (await play(store, once("c"))).run_id == second.run_id
        await play(store, SaveRows(save(SEEN_KEYS, passed)))
        assert await other.subscriptions.prune_keys(10) == 1
        assert (await play(store, once("d"))).run is not None

    async def test_keys_of_apps_and_of_subscriptions_are_apart(self, open_store: OpenStore) -> None:
        store = await open_store()
        token = await take(store)
        message = await accept(store, token, plain("a/1", "k"), window_ms=HOUR_MS)
        begun = await play(store, once("a", app="s"))
        assert begun.run is not None
        assert begun.run_id != message.messages[0].run_id
        again = await accept(store, token, plain("a/2", "k"), window_ms=HOUR_MS)
        assert again.messages[0].run_id == message.messages[0].run_id
        assert await store.subscriptions.list_deleted() == []

    async def test_the_context_of_its_trace_comes_back(self, open_store: OpenStore) -> None:
        store, other = await open_store(), await open_store()
        context = TraceTexts(f"00-{'a' * 32}-{'b' * 16}-01", "v=1", "tenant=€")
        new = NewRun(RunName("app", "", "", "1"), context=context)
        await play(store, BeginRunOnce(new, "k", HOUR_MS, (next(IDS), next(IDS)), LIMITS))
        (entry,) = await read_all(other)
        assert (entry.trace_id, entry.parent_span_id) == ("a" * 32, "b" * 16)
        assert entry.payload["trace"]["tracestate"] == "v=1"
        assert entry.payload["trace"]["baggage"] == "tenant=%E2%82%AC"
