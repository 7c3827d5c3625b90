"""Values: versions that count on, compare-and-set across stores, and their history."""

import asyncio

import pytest

from tape.errors import StaleLease, VersionMismatch
from tape.model.value import Author, Deleted, DeleteValue, Value, WriteValue, change_of
from tape.ports.store import Store
from tests.conformance.playing import (
    IDS,
    LIMITS,
    MANY,
    OpenStore,
    a_run,
    attempt,
    play,
    read_all,
    save_run,
)

CHANGED, DELETED = "/tape/value/changed/ns/k", "/tape/value/deleted/ns/k"


def writing(
    value_json: str,
    if_version: int = -1,
    *,
    key: str = "k",
    author: Author | None = None,
    namespace: str = "ns",
) -> WriteValue:
    return WriteValue(
        namespace, key, value_json, if_version,
        author=author or Author(), event_id=next(IDS), limits=LIMITS,
    )  # fmt: skip


def deleting(key: str = "k", author: Author | None = None, *, namespace: str = "ns") -> DeleteValue:
    return DeleteValue(namespace, key, author or Author(), next(IDS), LIMITS)


async def write(store: Store, value_json: str, if_version: int = -1, key: str = "k") -> Value:
    return await play(store, writing(value_json, if_version, key=key))


class ValuesContract:
    async def test_a_value_comes_back_as_it_was_written(self, open_store: OpenStore) -> None:
        store = await open_store()
        move = writing('{"ä": [1, "€"]}', author=Author("me"))
        written = await play(store, move)
        assert written[:4] == ("ns", "k", '{"ä": [1, "€"]}', 1)
        assert (written.writer, written.deleted) == ("me", False)
        assert await store.values.get_value("ns", "k") == written
        assert await (await open_store()).values.get_value("ns", "k") == written
        assert (await store.values.get_value("ns", "k")).deleted is False  # type: ignore[union-attr]

    async def test_what_never_was_is_none(self, open_store: OpenStore) -> None:
        assert await (await open_store()).values.get_value("ns", "k") is None

    async def test_versions_count_on_past_a_deletion(self, open_store: OpenStore) -> None:
        store = await open_store()
        await write(store, "1", 0)
        await write(store, "2", 1)
        assert await play(store, deleting()) == Deleted(True, 3)
        tomb = await store.values.get_value("ns", "k")
        assert tomb is not None
        assert (tomb.deleted, tomb.version, tomb.value_json) == (True, 3, "")
        assert await play(store, deleting()) == Deleted(False, 3)
        assert (await write(store, "4", 0)).version == 4

    async def test_a_mismatch_writes_nothing(self, open_store: OpenStore) -> None:
        store = await open_store()
        await write(store, "1")
        with pytest.raises(VersionMismatch):
            await write(store, "2", 0)
        with pytest.raises(VersionMismatch):
            await write(store, "2", 2)
        assert len(await read_all(store)) == 1

    async def test_compare_and_set_lets_one_through(self, open_store: OpenStore) -> None:
        stores = [await open_store() for _ in range(3)]
        await write(stores[0], "0")

        async def count(store: Store) -> None:
            for _ in range(8):
                while True:
                    before = await store.values.get_value("ns", "k")
                    assert before is not None
                    after = str(int(before.value_json) + 1)
                    author = Author(str(id(store)))
                    try:
                        await play(store, writing(after, before.version, author=author))
                    except VersionMismatch:
                        continue
                    break

        await asyncio.gather(*map(count, stores))
        last = await stores[0].values.get_value("ns", "k")
        assert last is not None
        assert (last.value_json, last.version) == ("24", 25)

    @pytest.mark.parametrize("author", [Author(), Author("desk", request_id="mine")])
    async def test_two_that_write_the_same_do_not_both_win(
        self, open_store: OpenStore, author: Author
    ) -> None:
        one, other = await open_store(), await open_store()
        await play(one, writing("1", 0, author=author))
        for second in (Author(), Author("desk"), Author("desk", request_id="another's")):
            with pytest.raises(VersionMismatch):
                await play(other, writing("1", 0, author=second))
        assert len(await read_all(one)) == 1

    @pytest.mark.parametrize("if_version", [-1, 0])
    async def test_a_call_that_is_sent_again_is_known_by_its_id(
        self, open_store: OpenStore, if_version: int
    ) -> None:
        store = await open_store()
        call = Author("desk", request_id="call-1")
        first = await play(store, writing("1", if_version, author=call))
        again = await play(await open_store(), writing("1", if_version, author=call))
        assert again == first
        away = Author(request_id="call-2")
        assert await play(store, deleting(author=away)) == Deleted(True, 2)
        assert await play(store, deleting(author=away)) == Deleted(True, 2)
        assert await play(store, deleting(author=Author(request_id="call-3"))) == Deleted(False, 2)
        assert len(await read_all(store)) == 2

    async def test_a_call_that_created_a_deleted_value_anew_is_known_by_its_id(
        self, open_store: OpenStore
    ) -> None:
        store = await open_store()
        await play(store, writing("1", 0, author=Author(request_id="call-1")))
        await play(store, deleting())
        call = Author(request_id="call-2")
        anew = await play(store, writing("1", 0, author=call))
        assert anew.version == 3
        assert await play(await open_store(), writing("1", 0, author=call)) == anew
        assert len(await read_all(store)) == 3

    async def test_a_writer_of_its_own_is_known_without_an_id(self, open_store: OpenStore) -> None:
        store = await open_store()
        first = await play(store, writing("1", 0, author=Author("client-7")))
        assert await play(store, writing("1", 0, author=Author("client-7"))) == first
        with pytest.raises(VersionMismatch):
            await play(store, writing("1", 0, author=Author("client-8")))

    async def test_history_holds_each_change_with_what_was_before(
        self, open_store: OpenStore
    ) -> None:
        store = await open_store()
        await write(store, '"a"')
        await write(store, "0", key="other")
        await write(store, '"b"')
        await play(store, deleting())
        history = await store.read_value_history((CHANGED, DELETED), 0, MANY)
        assert [entry.global_seq for entry in history] == [1, 3, 4]
        changes = [change_of(entry) for entry in history]
        assert [c.value.version for c in changes] == [1, 2, 3]
        assert [c.prev_version for c in changes] == [0, 1, 2]
        assert [c.prev_value_json for c in changes] == ["", '"a"', '"b"']
        assert [c.value.deleted for c in changes] == [False, False, True]
        assert changes[1].value.ts_ms == history[1].ts_ms

    async def test_history_is_read_after_a_number_and_up_to_a_limit(
        self, open_store: OpenStore
    ) -> None:
        store = await open_store()
        for n in range(4):
            await write(store, str(n))

        async def numbers(subjects: tuple[str, ...], after: int, limit: int) -> list[int]:
            found = await store.read_value_history(subjects, after, limit)
            return [entry.global_seq for entry in found]

        assert await numbers((CHANGED, DELETED), 1, MANY) == [2, 3, 4]
        assert await numbers((CHANGED, DELETED), 1, 2) == [2, 3]
        assert await numbers((DELETED,), 0, MANY) == []
        assert await numbers((), 0, MANY) == []

    async def test_a_page_of_history_ends_with_the_change_that_reaches_the_budget(
        self, open_store: OpenStore
    ) -> None:
        store = await open_store()
        for n in range(3):
            await write(store, f'"{n}€"')
        await play(store, deleting())
        whole = await store.read_value_history((CHANGED, DELETED), 0, MANY)
        sizes = [len(entry.payload_json.encode()) for entry in whole]
        for budget, count in ((1, 1), (sizes[0], 1), (sizes[0] + 1, 2), (sum(sizes[:3]) + 1, 4)):
            found = await store.read_value_history((CHANGED, DELETED), 0, MANY, budget)
            assert found == whole[:count]
        assert await store.read_value_history((CHANGED, DELETED), 2, 1, 1) == whole[2:3]

    async def test_living_values_are_listed_by_key(self, open_store: OpenStore) -> None:
        store = await open_store()
        for key in ("b", "ä", "a", "A", "a b", "-", "gone"):
            await write(store, "1", key=key)
        await play(store, deleting("gone"))

        async def keys(after: str, limit: int) -> list[str]:
            return [value.key for value in await store.values.list_values("ns", after, limit)]

        assert await keys("", MANY) == ["-", "A", "a", "a b", "b", "ä"]
        assert await keys("", 2) == ["-", "A"]
        assert await keys("A", 2) == ["a", "a b"]
        assert await keys("ä", MANY) == []
        assert await store.values.list_values("nowhere", "", MANY) == []

    async def test_namespaces_with_living_values_are_listed(self, open_store: OpenStore) -> None:
        store = await open_store()
        assert await store.values.list_namespaces("", MANY) == []
        for namespace in ("b", "ä", "a", "gone"):
            for key in ("k1", "k2"):
                await play(store, writing("1", namespace=namespace, key=key))
        for key in ("k1", "k2"):
            await play(store, deleting(key, namespace="gone"))
        assert await store.values.list_namespaces("", MANY) == ["a", "b", "ä"]
        assert await store.values.list_namespaces("a", 1) == ["b"]
        assert await store.values.list_namespaces("ä", MANY) == []

    async def test_a_run_writes_values_with_its_token_and_number(
        self, open_store: OpenStore
    ) -> None:
        store = await open_store()
        await save_run(store, a_run("r"))
        with pytest.raises(StaleLease):
            await play(store, writing("1", author=Author("", "r", 2)))
        author = Author("", "r", 1)
        await attempt(store, writing("1", author=author), deleting(author=author))
        assert [e.seq for e in await store.read_run("r", 0, MANY)] == [1, 2]

    async def test_many_changes_of_one_value_in_one_batch(self, open_store: OpenStore) -> None:
        store = await open_store()
        outcomes = await attempt(
            store, writing("1", 0), writing("2", 1), deleting(), writing("4", 0), writing("9", 1)
        )
        assert isinstance(outcomes[-1], VersionMismatch)
        value = await store.values.get_value("ns", "k")
        assert value is not None
        assert (value.value_json, value.version) == ("4", 4)
        history = await store.read_value_history((CHANGED, DELETED), 0, MANY)
        assert [change_of(e).value.version for e in history] == [1, 2, 3, 4]

    async def test_a_large_value(self, open_store: OpenStore) -> None:
        store = await open_store()
        large = '"' + "€" * 300_000 + '"'
        await write(store, large)
        await write(store, "1")
        (change,) = [change_of(e) for e in await store.read_value_history((CHANGED,), 1, MANY)]
        assert change.prev_value_json == large
