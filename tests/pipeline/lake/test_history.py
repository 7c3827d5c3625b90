"""The seam between lake and journal, with both moved at the worst moment."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from tape.errors import Pruned, StoreMismatch
from tape.model.entry import Entry
from tape.pipeline.lake.log import LakeLog, now_ms
from tape.pipeline.lake.manifest import compacted, forgotten
from tape.pipeline.source.history import HistoryReader
from tape.ports.bulk import Bounds, Condition, Scan
from tests.pipeline.lake.world import ARROW_TYPES, plant

ALL = ("global_seq", "event_id", "payload_json")


def an_entry(number: int, journal: str = "j") -> Entry:
    kind = "ab"[number % 2]
    return Entry(
        number, "", 0, "event", f"/tape/event/recorded/{kind}/_/_", f'{{"n": {number}}}', 1, "", "",
        "", number, f"{journal}{number}", kind, "", "", "", "", number, "",
    )  # fmt: skip


class Journal:
    """What a store's reader promises, in memory; `before_scan` is when others get their turn."""

    def __init__(self, head: int, name: str = "j") -> None:
        self.entries = [an_entry(number, name) for number in range(1, head + 1)]
        self.pruned_through = 0
        self.before_scan: Callable[[], None] = lambda: None
        self.scanned: list[tuple[int, int]] = []

    def prune(self, upto: int) -> None:
        self.entries = [entry for entry in self.entries if entry.global_seq > upto]
        self.pruned_through = upto

    def bounds(self) -> Bounds:
        return Bounds(self.entries[0].global_seq, self.entries[-1].global_seq, self.pruned_through)

    def cut(self, after: int, upto: int, rows: int) -> list[int]:
        return [*range(after + rows, upto, rows), upto] if after < upto else []

    def reach(self, after: int, entries: int) -> int | None:
        return after + entries

    def scan(self, scan: Scan, batch_rows: int) -> Iterator[pa.RecordBatch]:
        self.before_scan()
        if scan.after < self.pruned_through:
            raise Pruned
        self.scanned.append((scan.after, scan.upto))
        found = [e for e in self.entries if scan.after < e.global_seq <= scan.upto]
        for start in range(0, len(found), batch_rows):
            batch = found[start : start + batch_rows]
            yield pa.RecordBatch.from_arrays(
                [pa.array([getattr(e, name) for e in batch], ARROW_TYPES[name])
                 for name in scan.columns],
                names=list(scan.columns),
            )  # fmt: skip

    def read_table(
        self, name: str, batch_rows: int, columns: Sequence[str] = ()
    ) -> Iterator[pa.RecordBatch]:
        raise NotImplementedError(name)

    def close(self) -> None: ...


@pytest.fixture
def journal() -> Journal:
    return Journal(100)


@pytest.fixture
def lake(tmp_path: Path, journal: Journal) -> LakeLog:
    for after in (0, 20, 40):
        plant(tmp_path / "lake", journal.entries[after : after + 20], after)
    return LakeLog(tmp_path / "lake")


def numbers(reader: HistoryReader, after: int = 0, upto: int = 100) -> list[int]:
    batches = list(reader.scan(Scan(after, upto, ALL), 7))
    found: list[int] = []
    for batch in batches:
        found.extend(batch.column("global_seq").to_pylist())  # type: ignore[arg-type]  # no NULLs
    ids = [one for batch in batches for one in batch.column("event_id").to_pylist()]
    assert ids == [f"j{number}" for number in found]
    return found


def archive_more(lake: LakeLog, journal: Journal, through: int) -> None:
    at = lake.read().through
    plant(lake.path, [e for e in journal.entries if at < e.global_seq <= through], at)


def test_each_range_comes_from_one_of_them(lake: LakeLog, journal: Journal) -> None:
    reader = HistoryReader(lake, journal)
    assert reader.bounds() == (1, 100, 0)
    assert reader.cut(0, 100, 25) == [20, 40, 60, 85, 100]
    assert reader.cut(30, 50, 25) == [40, 50]
    assert numbers(reader) == list(range(1, 101))
    assert journal.scanned[-1] == (60, 100)
    for after, upto in ((0, 60), (5, 33), (59, 61), (60, 61), (99, 100)):
        assert numbers(reader, after, upto) == list(range(after + 1, upto + 1))


def test_a_prune_that_overtakes_is_made_up_for_by_the_lake(lake: LakeLog, journal: Journal) -> None:
    reader = HistoryReader(lake, journal)
    reader.bounds()

    def overtake() -> None:
        journal.before_scan = lambda: None
        archive_more(lake, journal, 90)
        journal.prune(80)

    journal.before_scan = overtake
    assert numbers(reader, 50, 100) == list(range(51, 101))
    assert journal.scanned[-1] == (90, 100)


def test_the_ends_are_right_although_both_have_moved(lake: LakeLog, journal: Journal) -> None:
    reader = HistoryReader(lake, journal)
    archive_more(lake, journal, 90)
    journal.prune(80)
    assert reader.bounds() == (1, 100, 0)
    assert numbers(reader) == list(range(1, 101))


def test_what_no_lake_has_is_not_passed_over(lake: LakeLog, journal: Journal) -> None:
    reader = HistoryReader(lake, journal)
    journal.prune(80)
    with pytest.raises(Pruned, match="61 to 80"):
        reader.bounds()
    with pytest.raises(Pruned):
        numbers(reader)


def test_a_file_that_was_compacted_away_is_found_where_it_is_now(
    lake: LakeLog, journal: Journal, tmp_path: Path
) -> None:
    reader = HistoryReader(lake, journal)
    plant(tmp_path / "other", journal.entries[:40], 0)
    (large,) = LakeLog(tmp_path / "other").read().files
    (tmp_path / "other" / large.path).rename(lake.path / large.path)
    before = lake.read()
    lake.commit(before, lambda now: compacted(now, before.files[:2], [large], at_ms=now_ms()))
    gone = [file.path for file in before.files[:2]]
    lake.commit(lake.read(), lambda now: forgotten(now, gone, now_ms()))
    for path in gone:
        (lake.path / path).unlink()
    assert numbers(reader) == list(range(1, 101))
    (lake.path / lake.read().files[1].path).unlink()
    with pytest.raises(StoreMismatch, match="missing from the lake"):
        numbers(reader)


def test_another_journal_is_noticed(lake: LakeLog) -> None:
    with pytest.raises(StoreMismatch, match="another journal's"):
        HistoryReader(lake, Journal(100, "other")).bounds()
    with pytest.raises(StoreMismatch, match="only to 50"):
        HistoryReader(lake, Journal(50)).bounds()


def test_conditions_hold_in_the_lake_too(lake: LakeLog, journal: Journal) -> None:
    reader = HistoryReader(lake, journal)
    conditions = (
        Condition("event_type", "=", "a"),
        Condition("subject", "starts", "/tape/event/recorded/a/"),
        Condition("global_seq", "in", (4, 8, 9, 33, 36)),
        Condition("ts_ms", ">=", 8),
    )
    found = list(reader.scan(Scan(0, 60, ("payload_json",), conditions), 5))
    assert [batch.schema.names for batch in found] == [["payload_json"]] * len(found)
    texts = [text for batch in found for text in batch.column(0).to_pylist()]
    assert texts == ['{"n": 8}', '{"n": 36}']
