"""Reactions: registered, changed, stopped and begun anew; the book, the cursors, what they show."""

import pytest

from tape.errors import InvalidArgument
from tape.model.move import Need
from tape.model.reaction import (
    BOOK,
    BOOK_NAME,
    CURSORS,
    Book,
    DeregisterReaction,
    HandlerKind,
    NewReaction,
    Reaction,
    RegisterReaction,
)
from tape.model.task import TaskStatus
from tape.ports.store import Store
from tests.conformance.playing import LIMITS, Look, OpenStore, attempt, play, read_all
from tests.conformance.reacting import (
    Sound,
    a_cursor,
    a_task,
    claim,
    cursors_of,
    deregister,
    lead,
    queue,
    record_some,
    register,
    registering,
    sources_of,
    sources_with,
    state_of,
    step,
)


async def version_of(store: Store) -> int:
    (book,) = await play(store, Look(Need(BOOK, BOOK_NAME)))
    assert isinstance(book, Book)
    assert (await store.matching.read_reactions()).version == book.version
    return book.version


class ReactionsContract(Sound):
    async def test_a_new_database_has_none(self, open_store: OpenStore) -> None:
        store = await open_store()
        assert await store.matching.read_reactions() == (0, [], [])
        assert await store.matching.list_reactions() == []

    async def test_settings_come_back_as_they_were_given(self, open_store: OpenStore) -> None:
        store = await open_store()
        new = NewReaction(
            "r/ä", "/tape/event/**", HandlerKind.PUBLISH, "a name", "payload.x > 1", "",
            "nats://h/s", 7, 8, 9, 10, 11, 12, 2, "spark",
        )  # fmt: skip
        made = await play(store, RegisterReaction(new, LIMITS))
        (read,) = (await (await open_store()).matching.read_reactions()).reactions
        assert read == made
        settings = new._asdict()
        del settings["from_global_seq"]
        assert read == Reaction(**settings, created_at_ms=read.created_at_ms, deleted=0)
        assert read.created_at_ms > 1_600_000_000_000
        assert await read_all(store) == []

    async def test_it_starts_at_the_head_and_follows(self, open_store: OpenStore) -> None:
        store = await open_store()
        await record_some(store, 3)
        await register(store, num_shards=2)
        assert await cursors_of(store) == [
            ("r", shard, 3, 0, 1, 0, 0, 0, "", 0) for shard in (0, 1)
        ]
        state = await state_of(store)
        assert (state.position, state.following) == (3, True)
        assert state[3:] == (0, 0, 0, 0, "", 0, 0, 0)

    async def test_it_starts_where_it_asks_to(self, open_store: OpenStore) -> None:
        store = await open_store()
        await record_some(store, 3)
        for start in (0, 2, 3):
            await register(store, f"r{start}", from_global_seq=start)
            (cursor,) = await cursors_of(store, f"r{start}")
            assert (cursor.last_global_seq, cursor.following) == (start, 0)
            state = await state_of(store, f"r{start}")
            assert (state.position, state.following) == (start, False)

    async def test_it_cannot_start_beyond_the_end(self, open_store: OpenStore) -> None:
        store = await open_store()
        await record_some(store, 3)
        with pytest.raises(InvalidArgument, match="beyond the end"):
            await register(store, from_global_seq=4)
        assert await store.matching.read_reactions() == (0, [], [])

    async def test_the_book_turns_with_each_change_and_only_then(
        self, open_store: OpenStore
    ) -> None:
        store = await open_store()
        await register(store)
        assert await version_of(store) == 1
        await register(store)
        assert await version_of(store) == 1
        await register(store, max_concurrency=2)
        assert await version_of(store) == 2
        await deregister(store)
        assert await version_of(store) == 3
        await deregister(store)
        await deregister(store, "never was")
        assert await version_of(store) == 3

    async def test_registered_again_it_keeps_its_cursors(self, open_store: OpenStore) -> None:
        store = await open_store()
        first = await register(store)
        await record_some(store, 5)
        assert await step(store, position=5, cursors=[a_cursor(5, matched=2)]) == "made"
        before = await cursors_of(store)
        again = await register(store, subject_pattern="/tape/event/**", from_global_seq=0)
        assert again == first._replace(subject_pattern="/tape/event/**")
        assert await cursors_of(store) == before
        assert before[0].matched == 2

    async def test_more_shards_start_where_the_others_stand(self, open_store: OpenStore) -> None:
        store = await open_store()
        await register(store)
        cursor = a_cursor(4, matched=3, predicate_errors=1, last_error="odd")
        assert await step(store, cursors=[cursor._replace(last_error_global_seq=2)]) == "made"
        await register(store, num_shards=3)
        first, *others = await cursors_of(store)
        assert (first.matched, first.last_error, first.last_error_global_seq) == (3, "odd", 2)
        processed = first.last_processed_at_ms
        assert others == [("r", shard, 4, processed, 1, 0, 0, 0, "", 0) for shard in (1, 2)]

    async def test_fewer_shards_leave_no_cursor_behind(self, open_store: OpenStore) -> None:
        store = await open_store()
        await register(store, num_shards=3)
        await register(store, num_shards=1)
        assert [cursor.shard for cursor in await cursors_of(store)] == [0]
        assert await step(store, cursors=[a_cursor(9)]) == "made"
        assert (await state_of(store)).position == 9
        await register(store, num_shards=2)
        assert [cursor.last_global_seq for cursor in await cursors_of(store)] == [9, 9]

    async def test_deregistered_it_is_gone_but_its_tasks_are_not(
        self, open_store: OpenStore
    ) -> None:
        store = await open_store()
        await register(store, num_shards=2)
        await queue(store, [1, a_task(2, shard=1)])
        assert await deregister(store) is True
        assert (await store.matching.read_reactions())[1:] == ([], [])
        assert await store.matching.list_reactions() == []
        assert await claim(store) == []
        assert await sources_with(store, TaskStatus.PENDING) == [1, 2]
        assert await deregister(store) is False
        assert await deregister(store, "never was") is False

    async def test_registered_after_that_it_starts_anew(self, open_store: OpenStore) -> None:
        store = await open_store()
        await register(store, num_shards=2)
        await queue(store, [1])
        assert await step(store, cursors=[a_cursor(1, matched=1)]) == "made"
        await deregister(store)
        await record_some(store, 6)
        await register(store)
        assert await cursors_of(store) == [("r", 0, 6, 0, 1, 0, 0, 0, "", 0)]
        assert (await state_of(store)).pending == 1
        assert sources_of(await claim(store)) == [1]

    async def test_in_one_batch_each_sees_the_one_before(self, open_store: OpenStore) -> None:
        store = await open_store()
        _, gone, made = await attempt(
            store, registering(num_shards=3), DeregisterReaction("r", LIMITS),
            registering(num_shards=2, name="second"),
        )  # fmt: skip
        assert gone is True
        assert (await store.matching.read_reactions()).reactions == [made]
        assert [cursor.shard for cursor in await cursors_of(store)] == [0, 1]
        assert await version_of(store) == 3

    async def test_a_stopped_one_leaves_no_cursor_to_load(self, open_store: OpenStore) -> None:
        store = await open_store()
        await register(store, num_shards=3)
        await deregister(store)
        needs = [Need(CURSORS, ("r", shard)) for shard in range(3)]
        assert await play(store, Look(*needs)) == [None] * 3

    async def test_they_are_listed_by_id_with_how_they_are_doing(
        self, open_store: OpenStore
    ) -> None:
        store = await open_store()
        await record_some(store, 9)
        await register(store, "b", num_shards=2, from_global_seq=0)
        await register(store, "a")
        cursors = [
            a_cursor(4, "b", following=0, matched=2, coalesced=1),
            a_cursor(
                6, "b", shard=1, following=0, matched=1, predicate_errors=2,
                last_error="worse", last_error_global_seq=5,
            ),
        ]  # fmt: skip
        assert await step(store, cursors=cursors) == "made"
        odd = a_cursor(5, "b", following=0, predicate_errors=1, last_error="odd")
        assert await step(store, cursors=[odd._replace(last_error_global_seq=3)]) == "made"
        first, second = await store.matching.list_reactions()
        assert (first.reaction.reaction_id, second.reaction.reaction_id) == ("a", "b")
        assert (second.position, second.following) == (5, False)
        assert second.last_processed_at_ms > 1_600_000_000_000
        assert (second.matched, second.coalesced, second.predicate_errors) == (3, 1, 3)
        assert second.last_error == "worse"
        assert first.following is True

    async def test_one_that_follows_is_where_the_matcher_is(self, open_store: OpenStore) -> None:
        store = await open_store()
        await register(store, "follows")
        await register(store, "behind", from_global_seq=0)
        await record_some(store, 8)
        assert await step(store, position=8) == "made"
        positions = {
            state.reaction.reaction_id: state.position
            for state in await store.matching.list_reactions()
        }
        assert positions == {"behind": 0, "follows": 8}
        assert (await lead(store)).position == 8
