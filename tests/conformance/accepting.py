"""Accepting messages: one run of each, however many accept them at once; and what is kept of it."""

import asyncio
import random
from collections import Counter
from collections.abc import Sequence

import pytest

from tape.errors import StaleLease
from tape.model.accept_messages import AcceptedBatch, PlannedMessage
from tape.model.entry import Trace
from tape.model.move import Need, save
from tape.model.subscription import (
    ACCEPTED_PLACES,
    PASSED_POSITIONS,
    SEEN_KEYS,
    AcceptedPlace,
    PassedPosition,
    SeenKey,
)
from tape.model.subscription_letters import DropSubscriptionLetters, ReplaySubscriptionLetter
from tape.ports.retention import PruneStep
from tape.ports.runs import RunQuery
from tape.ports.store import Store
from tape.ports.subscriptions import DeadLetterQuery, PlaceAges
from tests.conformance.order import FAR
from tests.conformance.playing import (
    IDS,
    LIMITS,
    Look,
    OpenStore,
    SaveRows,
    attempt,
    play,
    read_all,
)
from tests.conformance.subscribing import (
    PUSH,
    Expire,
    accept,
    accepting,
    bad,
    hold,
    move,
    outcomes,
    plain,
    register,
    run_of,
    take,
)

NEVER = 10**12
HOUR = 3_600_000
READER = "reader"


def pushed(place: str, key: str = "") -> PlannedMessage:
    return plain(place, key, run=run_of(place, name="p"))


async def active_push(store: Store) -> None:
    await register(store, PUSH)
    await move(store, "activate", "p")


async def counted(store: Store, name: str = "s") -> tuple[int, int, int, int]:
    stored = await store.subscriptions.get_subscription(name)
    assert stored is not None
    row = stored.listener
    return row.accepted, row.redelivered, row.deduplicated, row.dead_lettered


async def places(store: Store, *wanted: str, name: str = "s") -> list[str]:
    """Those of them that are known."""
    found = await play(store, Look(*(Need(ACCEPTED_PLACES, (name, place)) for place in wanted)))
    return [row.place for row in found if row is not None]


async def add_places(store: Store, *rows: tuple[str, int, int]) -> None:
    """Each with its number, and how long ago it was accepted."""
    now_ms = await store.subscriptions.read_clock()
    made = [AcceptedPlace("s", place, "r", number, now_ms - age) for place, number, age in rows]
    await play(store, SaveRows(*(save(ACCEPTED_PLACES, row) for row in made)))


async def report(
    store: Store, origin: str, position: int, ago_ms: int = 0, reader: str = READER
) -> None:
    now_ms = await store.subscriptions.read_clock()
    row = PassedPosition("s", origin, reader, position, now_ms - ago_ms)
    await play(store, SaveRows(save(PASSED_POSITIONS, row)))


class AcceptingContract:
    async def test_messages_come_back_as_what_they_became(self, open_store: OpenStore) -> None:
        store, other = await open_store(), await open_store()
        token = await take(store)
        batch = await accept(store, token, plain("a/1"), bad("a/2"))
        assert [message.outcome for message in batch.messages] == ["accepted", "dead_lettered"]
        run = await other.runs.get_run(batch.messages[0].run_id)
        assert run is not None
        assert run.name == ("app", "subscription", "s", "a/1")
        (entry,) = await other.read_run(run.run_id, 0, 10)
        assert entry.payload["input"] == {"n": 1}
        assert await outcomes(other, token, plain("a/1"), bad("a/2"), plain("a/3")) == [
            "redelivered", "redelivered", "accepted",
        ]  # fmt: skip
        assert await counted(store) == (2, 2, 0, 1)

    async def test_each_accepted_message_is_told_of_where_somebody_asks(
        self, open_store: OpenStore
    ) -> None:
        """In the commit of its run, and never again."""
        store, other = await open_store(), await open_store()
        token = await take(store)
        before = (await store.info()).head_global_seq
        await accept(store, token, plain("a/1"))
        (plainly,) = await read_all(store, before)
        assert plainly.kind == "run"
        traced = run_of("a/2")._replace(trace=Trace("0" * 31 + "7", "0" * 15 + "8"))
        planned = [plain("a/2", run=traced, audit={"x": 1}), bad("a/3"), plain("a/1"), plain("a/4")]
        batch = await accept(store, token, *planned, tells_received=True)
        told = await read_all(other, plainly.global_seq)
        assert [entry.subject.split("/")[3] for entry in told] == [
            "message_received", "runnable", "message_directives_applied", "message_dead_lettered",
            "message_received", "runnable",
        ]  # fmt: skip
        assert told[0].subject == "/tape/subscription/message_received/s"
        assert told[0].kind == "subscription"
        run_id = batch.messages[0].run_id
        assert told[0].payload == {"message_id": "id of a/2", "place": "a/2", "run_id": run_id}
        assert told[0].trace_id == traced.trace.trace_id
        assert (told[1].run_id, told[0].run_id) == (run_id, "")
        assert len({entry.event_id for entry in told}) == len(told)
        await accept(other, token, *planned, tells_received=True)
        assert await read_all(store, told[-1].global_seq) == []

    async def test_one_run_of_each_message_however_many_accept_it(
        self, open_store: OpenStore
    ) -> None:
        stores = [await open_store() for _ in range(4)]
        await active_push(stores[0])
        chance = random.Random(7)
        distinct = [f"a/{n}" for n in range(60)]
        deliveries = distinct * 4
        chance.shuffle(deliveries)
        batches = [deliveries[at : at + 8] for at in range(0, len(deliveries), 8)]

        async def deliver(store: Store, part: Sequence[Sequence[str]]) -> list[AcceptedBatch]:
            return [await accept(store, 0, *map(pushed, batch), name="p") for batch in part]

        found = await asyncio.gather(*(deliver(s, batches[n::4]) for n, s in enumerate(stores)))
        messages = [message for part in found for batch in part for message in batch.messages]
        assert Counter(message.outcome.value for message in messages) == {
            "accepted": 60, "redelivered": 180,
        }  # fmt: skip
        assert len({(message.place, message.run_id) for message in messages}) == 60
        assert await counted(stores[1], "p") == (60, 180, 0, 0)
        runs = await stores[2].runs.list_runs(RunQuery(limit=1_000))
        assert sorted(run.invocation_id for run in runs) == sorted(distinct)
        entries = [entry for entry in await read_all(stores[3]) if entry.kind == "run"]
        assert len(entries) == 60

    async def test_one_run_of_each_key_however_many_accept_it(self, open_store: OpenStore) -> None:
        stores = [await open_store() for _ in range(4)]
        await active_push(stores[0])
        found = await asyncio.gather(
            *(
                accept(stores[n % 4], 0, pushed(f"a/{n}", f"k{n % 3}"), name="p", window_ms=NEVER)
                for n in range(30)
            )
        )
        messages = [batch.messages[0] for batch in found]
        assert Counter(message.outcome.value for message in messages) == {
            "accepted": 3, "deduplicated": 27,
        }  # fmt: skip
        assert len({message.run_id for message in messages}) == 3
        told = [e.subject for e in await read_all(stores[0]) if "deduplicated" in e.subject]
        assert len(told) == 27
        assert await counted(stores[3], "p") == (3, 0, 27, 0)

    async def test_a_takeover_in_the_middle_loses_and_doubles_nothing(
        self, open_store: OpenStore
    ) -> None:
        store, other = await open_store(), await open_store()
        token = await take(store)
        batches = [[plain(f"a/{n}") for n in range(at, at + 5)] for at in range(0, 50, 5)]
        taken_over = asyncio.Event()

        async def old() -> int:
            """Accept until it finds that it is stale; how many batches it got through."""
            for done, batch in enumerate(batches):
                if done == 3:
                    await taken_over.wait()
                try:
                    await accept(store, token, *batch)
                except StaleLease:
                    return done
            return len(batches)

        async def new() -> None:
            await play(other, Expire())
            newer = (await hold(other, owner="new")).listener.fencing_token
            taken_over.set()
            for batch in batches:
                await accept(other, newer, *batch)

        stopped_at, _nothing = await asyncio.gather(old(), new())
        assert stopped_at <= 3
        runs = await store.runs.list_runs(RunQuery(limit=1_000))
        assert len(runs) == len({run.invocation_id for run in runs}) == 50
        accepted, redelivered, *_ = await counted(store)
        assert (accepted, redelivered) == (50, 5 * stopped_at)

    async def test_a_batch_of_moves_sees_what_those_before_it_did(
        self, open_store: OpenStore
    ) -> None:
        store = await open_store()
        token = await take(store)
        replies = await attempt(
            store,
            accepting(token, plain("a/1", "k"), bad("a/2"), window_ms=NEVER),
            accepting(token, plain("a/1", "k"), plain("a/3", "k"), bad("a/2"), window_ms=NEVER),
            accepting(token + 1, plain("a/4")),
            accepting(token, plain("a/4")),
        )
        assert isinstance(replies[2], StaleLease)
        assert [[m.outcome.value for m in r.messages] for r in replies if r is not replies[2]] == [
            ["accepted", "dead_lettered"],
            ["redelivered", "deduplicated", "redelivered"],
            ["accepted"],
        ]
        assert await counted(store) == (2, 2, 1, 1)

    async def test_a_key_is_new_after_its_window(self, open_store: OpenStore) -> None:
        store, other = await open_store(), await open_store()
        token = await take(store)
        assert await outcomes(store, token, plain("a/1", "k"), window_ms=1) == ["accepted"]
        seen_ms = await store.subscriptions.read_clock()
        while await other.subscriptions.read_clock() <= seen_ms:  # a millisecond at most
            continue
        assert await outcomes(other, token, plain("a/2", "k"), window_ms=NEVER) == ["accepted"]
        assert await outcomes(store, token, plain("a/3", "k"), window_ms=NEVER) == ["deduplicated"]

    async def test_keys_of_two_rules_are_apart(self, open_store: OpenStore) -> None:
        store, other = await open_store(), await open_store()
        token = await take(store)
        first, second = ({"window_ms": NEVER, "key_rule": rule} for rule in ("first", "second"))
        assert await outcomes(store, token, plain("a/1", "k"), **first) == ["accepted"]
        assert await outcomes(other, token, plain("a/2", "k"), **second) == ["accepted"]
        for options, of in ((first, "a/1"), (second, "a/2")):
            again = await accept(store, token, plain(f"{of}/again", "k"), **options)
            assert [message.run_id for message in again.messages] == [run_of(of).name.run_id]
        assert await counted(store) == (2, 0, 2, 0)
        (entry,) = [
            entry for entry in await read_all(other, 0)
            if entry.payload.get("place") == "a/2/again"
        ]  # fmt: skip
        assert entry.payload["key"] == "k"

    async def test_a_message_with_a_run_opens_no_window(self, open_store: OpenStore) -> None:
        """One whose place is forgotten comes again, with and without a key: nobody after it is
        taken for its repeat."""
        store, other = await open_store(), await open_store()
        token = await take(store)
        assert await outcomes(store, token, plain("a/1"), plain("a/2")) == ["accepted"] * 2
        await store.subscriptions.prune_places("s", READER, PlaceAges(0, 0, 0), 100)
        own = {"own_runs": {run_of(place).name.run_id for place in ("a/1", "a/2")}}
        again = (plain("a/1", "k"), plain("a/2"))
        options = {"window_ms": NEVER, **own}
        assert await outcomes(other, token, *again, **options) == ["redelivered"] * 2
        assert await outcomes(store, token, plain("a/3", "k"), **options) == ["accepted"]
        await store.subscriptions.prune_places("s", READER, PlaceAges(0, 0, 0), 100)
        assert await outcomes(other, token, *again, **options) == ["redelivered"] * 2
        assert await outcomes(store, token, plain("a/4", "k"), **options) == ["deduplicated"]
        assert await counted(store) == (3, 4, 1, 0)

    async def test_a_run_of_somebody_else_is_told_apart(self, open_store: OpenStore) -> None:
        store, other = await open_store(), await open_store()
        token = await take(store)
        await accept(store, token, plain("a/1"))
        await store.subscriptions.prune_places("s", READER, PlaceAges(0, 0, 0), 100)
        assert await places(store, "a/1") == []
        batch = await accept(other, token, plain("a/0"), plain("a/1"))
        run_id = run_of("a/1").name.run_id
        assert (batch.messages, batch.unclear) == ([], [run_id])
        assert await places(store, "a/0", "a/1") == []
        batch = await accept(other, token, plain("a/0"), plain("a/1"), own_runs={run_id})
        assert [message.outcome for message in batch.messages] == ["accepted", "redelivered"]
        assert await places(store, "a/0", "a/1") == ["a/0", "a/1"]

    async def test_dead_letters_come_in_pages_of_bounded_size(self, open_store: OpenStore) -> None:
        store, other = await open_store(), await open_store()
        token = await take(store)
        for n in range(6):
            await accept(store, token, bad(f"a/{n}", body="x" * 100))
        query = DeadLetterQuery("s")
        letters = await other.subscriptions.list_dead_letters(query)
        assert [letter.place for letter in letters] == [f"a/{n}" for n in range(6)]
        assert letters == sorted(letters, key=lambda letter: letter.letter_id)
        found = await other.subscriptions.get_dead_letter("s", letters[2].letter_id)
        assert found == letters[2]
        assert await other.subscriptions.get_dead_letter("t", letters[2].letter_id) is None
        page = await other.subscriptions.list_dead_letters(query._replace(limit=2))
        assert page == letters[:2]
        after = query._replace(after=letters[1].letter_id, max_bytes=150)
        assert await other.subscriptions.list_dead_letters(after) == letters[2:4]
        assert await other.subscriptions.list_dead_letters(query._replace(subscription="t")) == []
        await play(store, DropSubscriptionLetters("s", [found.letter_id], IDS.take(1), LIMITS))
        (stored,) = await other.subscriptions.list_subscriptions()
        assert stored == await other.subscriptions.get_subscription("s")
        assert (stored.dead_letters, stored.listener.dead_lettered) == (5, 6)

    async def test_a_letter_is_replayed_once_however_many_try(self, open_store: OpenStore) -> None:
        stores = [await open_store() for _ in range(3)]
        token = await take(stores[0])
        await accept(stores[0], token, bad("a/1"), bad("a/2"))
        one, two = await stores[0].subscriptions.list_dead_letters(DeadLetterQuery("s"))

        def replaying() -> ReplaySubscriptionLetter:
            ids = IDS.take(3)
            return ReplaySubscriptionLetter(
                "s", one.letter_id, plain("a/1"), ids=ids, limits=LIMITS
            )

        replayed = await asyncio.gather(*(play(s, replaying()) for s in stores for _ in range(3)))
        assert sum(reply.is_replayed for reply in replayed) == 1
        assert await outcomes(stores[1], token, plain("a/1")) == ["redelivered"]
        drops = [DropSubscriptionLetters("s", [two.letter_id], IDS.take(1), LIMITS) for _ in stores]
        dropped = await asyncio.gather(
            *(play(store, drop) for store, drop in zip(stores, drops, strict=True))
        )
        assert sorted(dropped) == [0, 0, 1]
        assert await stores[2].subscriptions.list_dead_letters(DeadLetterQuery("s")) == []
        stored = await stores[0].subscriptions.get_subscription("s")
        assert stored is not None
        assert stored.listener.replayed == 1

    async def test_places_go_once_their_source_has_passed_them(self, open_store: OpenStore) -> None:
        store, other = await open_store(), await open_store()
        await take(store)
        old = [(f"nats/a@1/{n}", n, 2 * HOUR) for n in range(6)]
        kept = [
            ("nats/a@1/7", 7, 2 * HOUR),  # not passed
            ("nats/a@1/2000", 2000, 2 * HOUR),
            ("nats/b@1/3", 3, 2 * HOUR),  # of an origin that says nothing
            ("nats/a@1/b/3", 3, 2 * HOUR),  # of one whose name only begins alike
            ("nats/a@1/x", -1, 2 * HOUR),
            ("nats/a@1/6", 6, 0),  # too young
        ]
        await add_places(store, *old, *kept)
        ages = PlaceAges(HOUR, NEVER, NEVER)
        assert await store.subscriptions.prune_places("s", READER, ages, 100) == 0
        await report(other, "nats/a@1", 6)
        assert await store.subscriptions.prune_places("t", READER, ages, 100) == 0
        steps = [await other.subscriptions.prune_places("s", READER, ages, 4) for _ in range(3)]
        assert steps == [4, 2, 0]
        names = [place for place, *_ in (*old, *kept)]
        assert await places(store, *names) == [place for place, *_ in kept]

    async def test_places_stay_that_only_another_reader_has_passed(
        self, open_store: OpenStore
    ) -> None:
        """What another consumer of the same stream has passed may come to this one yet."""
        store, other = await open_store(), await open_store()
        await take(store)
        rows = [(f"nats/a@1/{n}", n, 40 * HOUR) for n in range(3)]
        await add_places(store, *rows)
        await report(store, "nats/a@1", 2, reader="another")
        ages = PlaceAges(HOUR, 8 * HOUR, 30 * HOUR)
        assert await other.subscriptions.prune_places("s", READER, ages, 100) == 0
        await report(other, "nats/a@1", 1)
        assert await store.subscriptions.prune_places("s", "another", ages, 100) == 0
        assert await store.subscriptions.prune_places("s", READER, ages, 100) == 2
        assert await places(other, *(place for place, *_ in rows)) == ["nats/a@1/2"]

    async def test_places_go_by_their_age_where_no_source_counts(
        self, open_store: OpenStore
    ) -> None:
        store = await open_store()
        await take(store)
        rows = [
            ("pubsub/projects/x/subscriptions/y/1", -1, 9 * HOUR),
            ("pubsub/projects/x/subscriptions/y/2", -1, 7 * HOUR),
            ("push/p/1", -1, 31 * HOUR),
            ("push/p/2", -1, 9 * HOUR),
            ("nats/gone@1/5", 5, 31 * HOUR),
            ("nats/here@1/5", 5, 31 * HOUR),
        ]
        await add_places(store, *rows)
        await report(store, "nats/here@1", 4)
        await report(store, "nats/gone@1", 4, ago_ms=30 * HOUR + 1)
        assert await store.subscriptions.prune_places(
            "s", READER, PlaceAges(HOUR, 8 * HOUR, 30 * HOUR), 9
        )
        assert await places(store, *(place for place, *_ in rows)) == [
            rows[1][0], rows[3][0], rows[5][0],
        ]  # fmt: skip

    async def test_positions_that_nobody_reports_any_more_go(self, open_store: OpenStore) -> None:
        store = await open_store()
        await take(store)
        await report(store, "gone", 4, ago_ms=31 * HOUR + 1)
        await report(store, "here", 4, ago_ms=30 * HOUR)
        await store.subscriptions.prune_places("s", READER, PlaceAges(HOUR, HOUR, 30 * HOUR), 9)
        keys = [Need(PASSED_POSITIONS, ("s", origin)) for origin in ("gone", "here")]
        assert [row is not None for row in await play(store, Look(*keys))] == [False, True]

    async def test_keys_go_after_their_window(self, open_store: OpenStore) -> None:
        store, other = await open_store(), await open_store()
        now_ms = await store.subscriptions.read_clock()
        past = [SeenKey("s", "by", f"k{n}", "r", "a", 1, now_ms - n) for n in range(5)]
        still = SeenKey("t", "by", "k", "r", "a", 1, now_ms + NEVER)
        await play(store, SaveRows(*(save(SEEN_KEYS, row) for row in (*past, still))))
        assert [await other.subscriptions.prune_keys(3) for _ in range(3)] == [3, 2, 0]
        (left,) = await play(other, Look(Need(SEEN_KEYS, ("t", "by", "k"))))
        assert left == still

    async def test_who_prunes_at_once_removes_each_once(self, open_store: OpenStore) -> None:
        stores = [await open_store() for _ in range(3)]
        token = await take(stores[0])
        await add_places(stores[0], *((f"push/p/{n}", -1, 2 * HOUR) for n in range(60)))
        ages = PlaceAges(HOUR, HOUR, HOUR)

        async def prune(store: Store) -> int:
            gone = 0
            while step := await store.subscriptions.prune_places("s", READER, ages, 7):
                gone += step
            return gone

        pruned, _batch = await asyncio.gather(
            asyncio.gather(*(prune(store) for store in stores)),
            accept(stores[0], token, *(plain(f"a/{n}") for n in range(60))),
        )
        assert await prune(stores[0]) + sum(pruned) == 60
        assert len(await places(stores[1], *(f"a/{n}" for n in range(60)))) == 60

    async def test_a_prune_of_the_journal_leaves_what_open_runs_need(
        self, open_store: OpenStore
    ) -> None:
        store = await open_store()
        token = await take(store)
        await accept(store, token, plain("a/1"), bad("a/2"), plain("a/3"))
        await move(store, "pause")
        await move(store, "resume")
        done = await store.retention.prune(PruneStep(0, FAR, 1_000))
        assert done.kept == {"runs": 2}
        left = await read_all(store)
        assert [entry.kind for entry in left] == ["run", "run", "subscription"]
        # Nothing of what it is goes by entries.
        assert await outcomes(store, token, plain("a/1"), bad("a/2")) == ["redelivered"] * 2
        assert (await move(store, "pause")).state == "paused"

    @pytest.mark.parametrize("size", [1, 100])
    async def test_large_batches_are_whole(self, open_store: OpenStore, size: int) -> None:
        store = await open_store()
        token = await take(store)
        batch = [plain(f"a/{n}", f"k{n // 2}", number=n) for n in range(3 * size)]
        found = await outcomes(store, token, *batch, window_ms=NEVER)
        assert Counter(found)["deduplicated"] == 3 * size // 2
        assert await counted(store) == (3 * size - 3 * size // 2, 0, 3 * size // 2, 0)
