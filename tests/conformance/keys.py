"""Idempotency keys: retries collapse to one entry, whoever retries and however often."""

import asyncio

from tape.model.event import NewEvent, Recorded
from tests.conformance.playing import (
    OpenStore,
    a_run,
    attempt,
    read_all,
    record,
    recording,
    save_run,
)


def as_duplicate(recorded: Recorded) -> Recorded:
    return recorded._replace(duplicate=True)


class KeysContract:
    async def test_a_repeat_answers_with_the_first_ids(self, open_store: OpenStore) -> None:
        store = await open_store()
        (first,) = await record(store, NewEvent("a", "1", idempotency_key="k"))
        (again,) = await record(store, NewEvent("b", "2", idempotency_key="k"))
        assert not first.duplicate
        assert again == as_duplicate(first)
        (entry,) = await read_all(store)
        assert (entry.event_type, entry.payload_json) == ("a", "1")

    async def test_a_key_is_remembered_by_a_store_opened_later(self, open_store: OpenStore) -> None:
        (first,) = await record(await open_store(), NewEvent("a", idempotency_key="k"))
        (again,) = await record(await open_store(), NewEvent("a", idempotency_key="k"))
        assert again == as_duplicate(first)

    async def test_a_repeat_in_one_request(self, open_store: OpenStore) -> None:
        store = await open_store()
        keyed = NewEvent("a", idempotency_key="k")
        first, other, again = await record(store, keyed, NewEvent("b"), keyed)
        assert again == as_duplicate(first)
        assert [first.global_seq, other.global_seq] == [1, 2]
        assert len(await read_all(store)) == 2

    async def test_a_repeat_in_one_batch(self, open_store: OpenStore) -> None:
        store = await open_store()
        keyed = NewEvent("a", idempotency_key="k")
        _, (first,), (again,) = await attempt(
            store, recording(NewEvent("z")), recording(keyed), recording(keyed)
        )
        assert again == as_duplicate(first)
        assert first.global_seq == 2
        assert len(await read_all(store)) == 2

    async def test_a_repeat_keeps_the_number_in_its_run(self, open_store: OpenStore) -> None:
        store = await open_store()
        await save_run(store, a_run("r"))
        plain = NewEvent("a", run_id="r", fencing_token=1)
        keyed = plain._replace(idempotency_key="k")
        _, (first,) = await record(store, plain), await record(store, keyed)
        (again,) = await record(store, keyed)
        assert first.seq == 2
        assert again == as_duplicate(first)

    async def test_keys_are_told_apart_letter_by_letter(self, open_store: OpenStore) -> None:
        store = await open_store()
        keys = [
            "k",
            "K",
            "k ",
            " k",
            "ḱ",
            "k\u0301",
            '"k"',
            "k,",
            "{k}",
            "NULL",
            "1",
            "\\k",
            "ß",
            "ss",
        ]
        recorded = await record(store, *[NewEvent("a", idempotency_key=key) for key in keys])
        assert not any(one.duplicate for one in recorded)
        again = await record(store, *[NewEvent("a", idempotency_key=key) for key in keys])
        assert again == [as_duplicate(one) for one in recorded]

    async def test_no_key_is_no_duplicate(self, open_store: OpenStore) -> None:
        store = await open_store()
        recorded = await record(store, NewEvent("a"), NewEvent("a"))
        assert [one.duplicate for one in recorded] == [False, False]

    async def test_retries_from_everywhere_make_one_entry(self, open_store: OpenStore) -> None:
        stores = [await open_store() for _ in range(4)]

        async def retry(number: int) -> list[Recorded]:
            answers = []
            for round_ in range(15):
                events = [NewEvent("a", str(number), idempotency_key=f"k{round_}")]
                answers += await record(stores[number], *events)
            return answers

        answers = await asyncio.gather(*map(retry, range(4)))
        for same in zip(*answers, strict=True):
            assert len({as_duplicate(one) for one in same}) == 1
            assert sum(not one.duplicate for one in same) == 1
        assert len(await read_all(stores[0])) == 15
