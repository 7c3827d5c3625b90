"""What is answered from memory is what the store holds."""

import random
from itertools import count

import pytest

from tape.journal.writer import Writer
from tape.model.entry import EntryDraft
from tape.model.event import NewEvent, RecordEvents
from tape.model.move import EntryPlace
from tape.ports.store import ReadEntries, Store
from tape.settings import Settings
from tape.stores import recent
from tape.stores.by_url import open_store
from tape.stores.recent import Recent

SETTINGS = Settings()
EVERYTHING = ReadEntries(0, 0, 2_000, 8 * 1024 * 1024)


def drafts(number: int, payload: str = "1") -> list[EntryDraft]:
    return [EntryDraft(f"id{n}", "event", f"/tape/event/{n % 3}", payload) for n in range(number)]


@pytest.mark.parametrize("seed", range(4))
async def test_two_writers_and_a_reader_from_memory(store_url: str, seed: int) -> None:
    rng = random.Random(seed)
    here, there = [await open_store(store_url, SETTINGS) for _ in range(2)]
    writers = [Writer(store, SETTINGS.writer) for store in (here, there)]
    ids = (f"{n:026d}" for n in count())
    answered = 0
    try:
        for _ in range(60):
            number = rng.choice((1, 1, 1, 2, 7, 150))
            events = [
                NewEvent(
                    f"type{rng.randrange(3)}",
                    idempotency_key=rng.choice(("", f"key{rng.randrange(40)}")),
                    occurred_at_ms=rng.choice((0, 5)),
                )
                for _ in range(number)
            ]
            writer = rng.choices(writers, (4, 1))[0]
            await writer.submit(RecordEvents(events, ids, SETTINGS.limits))
            head = here.head
            after = max(0, head - rng.randrange(12))
            prefix = rng.choice(("", "/tape/event/recorded/type1/"))
            limit, size = rng.choice((2_000, 3)), rng.choice((8 * 1024 * 1024, 10))
            query = ReadEntries(after, head, limit, size, prefix)
            answered += _recent(here).read(query) is not None
            found = await here.read_entries(query)
            same = await there.read_entries(query)
            assert found.entries == same.entries
            rest = query._replace(after=found.through, upto=max(found.through, same.through))
            assert (await there.read_entries(rest)).entries == []
        assert answered > 10
    finally:
        for writer in writers:
            await writer.close()
        for store in (here, there):
            await store.close()


def _recent(store: Store) -> Recent:
    found = getattr(store, "_recent")  # noqa: B009 - of either store
    assert isinstance(found, Recent)
    return found


def test_only_an_unbroken_run_is_answered() -> None:
    kept = Recent()
    assert kept.read(EVERYTHING) is None
    kept.note(EntryPlace(5, 9), drafts(2))
    kept.note(EntryPlace(7, 9), drafts(1))
    for after, upto, wanted in ((4, 7, [5, 6, 7]), (5, 7, [6, 7]), (6, 6, []), (6, 7, [7])):
        found = kept.read(EVERYTHING._replace(after=after, upto=upto))
        assert found is not None
        assert ([entry.global_seq for entry in found.entries], found.through) == (wanted, upto)
    for after, upto in ((3, 7), (4, 8)):
        assert kept.read(EVERYTHING._replace(after=after, upto=upto)) is None
    kept.note(EntryPlace(9, 9), drafts(1))  # somebody else has written 8
    assert kept.read(EVERYTHING._replace(after=4, upto=7)) is None
    assert kept.read(EVERYTHING._replace(after=8, upto=9)) is not None
    kept.note(EntryPlace(10, 9), drafts(recent.BATCH_MOST + 1))
    assert kept.read(EVERYTHING._replace(after=8, upto=9)) is None


def test_what_it_cannot_decide_is_the_stores() -> None:
    kept = Recent()
    kept.note(EntryPlace(1, 9), drafts(3))
    query = EVERYTHING._replace(upto=3)
    assert kept.read(query) is not None
    for other in ({"kind": "event"}, {"run_id": "r"}, {"from_ts_ms": 1}):
        assert kept.read(query._replace(**other)) is None


def test_a_page_is_smaller_than_what_is_kept() -> None:
    """A follower asks for the newest with the bytes of a stream, however much is kept before."""
    kept = Recent()
    for number in range(20):
        kept.note(EntryPlace(1 + 2 * number, 9), drafts(2, "1" * 500))
    for wanted, numbers, through in (
        ({"after": 38, "max_bytes": 1_000}, [39, 40], 40),
        ({"after": 39, "limit": 1, "max_bytes": 1}, [40], 40),
        ({"after": 30, "max_bytes": 1_001}, [31, 32, 33], 33),
        ({"after": 31, "limit": 2}, [32, 33], 33),
        ({"after": 36, "limit": 2, "prefix": "/tape/event/1"}, [38, 40], 40),
    ):
        found = kept.read(EVERYTHING._replace(upto=40)._replace(**wanted))
        assert found is not None
        assert ([entry.global_seq for entry in found.entries], found.through) == (numbers, through)


def test_it_is_bounded() -> None:
    kept = Recent()
    for number in range(50):
        kept.note(EntryPlace(1 + 40 * number, 9), drafts(40))
    assert kept.read(EVERYTHING._replace(after=2_000 - recent.ENTRIES_MOST, upto=2_000))
    assert kept.read(EVERYTHING._replace(after=900, upto=2_000)) is None
    large = "9" * (recent.BYTES_MOST // 3)
    for number in range(6):
        kept.note(EntryPlace(2_001 + number, 9), drafts(1, large))
    assert kept.read(EVERYTHING._replace(after=2_003, upto=2_006))
    assert kept.read(EVERYTHING._replace(after=2_002, upto=2_006)) is None
    kept.note(EntryPlace(2_007, 9), drafts(1, large * 4))
    assert kept.read(EVERYTHING._replace(after=2_006, upto=2_007)) is None
