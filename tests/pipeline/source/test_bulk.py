"""Readers by the column: the same of both stores, exactly what was asked for, and never a part."""

import random
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pytest

from tape.errors import InvalidArgument, Pruned, StoreMismatch, StoreUnavailable
from tape.model.entry import Entry
from tape.ports.bulk import BulkReader, Condition, Scan
from tape.ports.bulk_tables import SIDE_TABLES
from tape.ports.store import Store
from tape.predicates import check
from tape.stores.blocking import Stores
from tape.stores.bulk import located, open_reader
from tape.stores.by_url import sqlite_path
from tape.stores.postgres.packed import MOST_ROWS
from tape.stores.sqlite.bulk_drivers import BATCH_BYTES
from tests.pipeline.source.journals import TEXTS, odd_entries, prune, run_sql, write_journal

ALL = tuple(Entry._fields)
GAPPED = [*range(1, 200), *range(5_000, 5_400), 10**12, *range(10**12 + 50, 10**12 + 90)]


class Place(NamedTuple):
    """A store, and whether its reader has it alone in this process."""

    url: str
    is_alone: bool

    def open(self) -> BulkReader:
        return open_reader(self.url, is_alone=self.is_alone)


@pytest.fixture(
    params=[("sqlite", True), ("sqlite", False), ("migrated_postgres", True)],
    ids=["sqlite", "sqlite-beside", "postgres"],
)
def place(request: pytest.FixtureRequest) -> Place:
    kind, is_alone = request.param
    return Place(request.getfixturevalue(f"{kind}_url"), is_alone)


@pytest.fixture
def url(place: Place) -> str:
    return place.url


@pytest.fixture
def written(url: str) -> list[Entry]:
    return write_journal(url, odd_entries(GAPPED))


@pytest.fixture
def reader(place: Place, written: list[Entry]) -> Iterator[BulkReader]:
    with closing(place.open()) as reader:
        yield reader


def rows(reader: BulkReader, scan: Scan, batch_rows: int = 100) -> list[tuple[object, ...]]:
    found: list[tuple[object, ...]] = []
    for batch in reader.scan(scan, batch_rows):
        assert 0 < batch.num_rows <= batch_rows
        assert batch.schema.names == list(scan.columns)
        found += zip(*(column.to_pylist() for column in batch.columns), strict=True)
    return found


def test_a_range_is_read_in_order_with_blanks_for_nulls(
    reader: BulkReader, written: list[Entry]
) -> None:
    assert rows(reader, Scan(0, 2**62, ALL)) == written
    some = Scan(150, 5_010, ("subject", "seq", "idempotency_key"))
    expected = [e for e in written if 150 < e.global_seq <= 5_010]
    assert rows(reader, some) == [(e.subject, e.seq, e.idempotency_key) for e in expected]
    assert rows(reader, Scan(5_400, 10**12 - 1, ALL)) == []


def test_ranges_are_cut_at_entries_and_hold_no_more_than_asked(
    reader: BulkReader, written: list[Entry]
) -> None:
    assert reader.bounds() == (1, GAPPED[-1], 0)
    for after, upto, size in ((0, GAPPED[-1], 100), (0, GAPPED[-1], 7), (150, 5_001, 30)):
        ends = reader.cut(after, upto, size)
        assert ends == sorted(set(ends))
        assert ends[-1] == upto
        counts = [
            sum(low < number <= high for number in GAPPED)
            for low, high in zip([after, *ends], ends, strict=False)
        ]
        assert sum(counts) == sum(after < number <= upto for number in GAPPED)
        assert max(counts) <= size
        assert min(counts[:-1]) > 0
    assert reader.cut(5, 5, 10) == []
    assert reader.reach(150, 100) == GAPPED[249]
    assert reader.reach(10**12, 41) is None


def test_conditions_are_decided_as_python_does(reader: BulkReader, written: list[Entry]) -> None:
    draw = random.Random(7)
    compare = {
        "=": lambda a, b: a == b, "<": lambda a, b: a < b, "<=": lambda a, b: a <= b,
        ">": lambda a, b: a > b, ">=": lambda a, b: a >= b, "in": lambda a, b: a in b,
        "starts": lambda a, b: a.startswith(b),
    }  # fmt: skip
    checked = 0
    for _ in range(150):
        column = draw.choice(ALL)
        value = getattr(draw.choice(written), column)
        operator = draw.choice(list(compare))
        if operator == "starts" and not isinstance(value, str):
            continue
        if operator == "starts":
            value = value[: draw.randrange(4)]
        if operator == "in":
            value = (value, getattr(draw.choice(written), column))
        other = Condition("trace_id", ">=", draw.choice(TEXTS))
        scan = Scan(0, 2**62, ("global_seq",), (Condition(column, operator, value), other))  # type: ignore[arg-type]
        expected = [
            (e.global_seq,)
            for e in written
            if compare[operator](getattr(e, column), value) and e.trace_id >= other.value  # type: ignore[no-untyped-call, operator]
        ]
        assert rows(reader, scan, 1000) == expected, scan
        checked += bool(expected)
    assert checked > 40


def test_a_predicate_is_narrowed_and_never_too_far(
    reader: BulkReader, written: list[Entry]
) -> None:
    predicate = check("trace_id == \"it's\" || trace_id.startsWith('back\\\\') || payload.n == 'x'")
    found = rows(reader, Scan(0, 2**62, ALL, (), predicate), 1000)
    certain = {
        e for e in written
        if e.trace_id in ("it's", "back\\slash") or e.payload_json == '{"n": "x"}'
    }  # fmt: skip
    assert certain <= set(found)
    assert len(found) < len(written)


def test_what_was_pruned_is_refused_and_a_prune_in_mid_read_is_not_seen(
    url: str, reader: BulkReader, written: list[Entry]
) -> None:
    batches = reader.scan(Scan(0, 2**62, ("global_seq",)), 50)
    first = next(batches)
    if url.startswith("sqlite:"):
        # In a process of its own: two SQLites in one would take each other's locks away.
        code = (
            "import sys; from tests.pipeline.source.journals import prune; prune(sys.argv[1], 180)"
        )
        root = Path(__file__).parents[3]
        subprocess.run([sys.executable, "-c", code, url], check=True, cwd=root)
    else:
        prune(url, 180)
    read = first.num_rows + sum(batch.num_rows for batch in batches)
    assert read == len(written)
    assert reader.bounds() == (181, GAPPED[-1], 180)
    with pytest.raises(Pruned, match="up to 180 have been pruned and 180 is asked for"):
        next(reader.scan(Scan(179, 200, ALL), 10))
    assert len(rows(reader, Scan(180, 2**62, ALL))) == len(written) - 180


def test_a_text_with_the_separator_of_packed_rows_is_read_all_the_same(
    migrated_postgres_url: str,
) -> None:
    packed_rows = 3 * MOST_ROWS
    odd = list(odd_entries(range(1, packed_rows + 1)))
    for place, text in ((1_700, "a\x01b"), (2_500, "\x01")):
        odd[place] = odd[place]._replace(entity_id=text)
    written = write_journal(migrated_postgres_url, odd)
    with closing(open_reader(migrated_postgres_url)) as reader:
        assert rows(reader, Scan(0, 2**62, ALL), 700) == written
        assert rows(reader, Scan(2_500, 2_501, ("entity_id",))) == [("\x01",)]
        blank = Scan(0, 2**62, ("global_seq", "kind"), (Condition("entity_id", "=", "\x01"),))
        assert rows(reader, blank) == [(2_501, odd[2_500].kind)]
        run = Condition("run_id", "=", "r'1")
        assert len(rows(reader, Scan(0, 2**62, ALL, (run,)), 5_000)) == packed_rows // 3


def test_tables_have_the_columns_of_their_rows(place: Place, written: list[Entry]) -> None:
    gone = "VALUES ('x', 0, 3, 3, 1, '', '', 5, 6)"
    columns = "namespace, key, value_json, version, ts_ms, writer, deleted"
    ended = "reaction_id, shard, source_global_seq, status, attempts, lease_owner, last_error"
    run_sql(
        place.url,
        [
            f"INSERT INTO tape_values ({columns}) VALUES ('n', 'k''', '1', 3, 4, '', TRUE)",
            "INSERT INTO tape_budgets (run_id, usd_cap) VALUES ('r', 1.5)",
            f"INSERT INTO tape_task_ended ({ended}, created_at_ms, completed_at_ms) {gone}",
        ],
    )
    with closing(place.open()) as fresh:
        tables = {name: list(fresh.read_table(name, 10)) for name in SIDE_TABLES}
        with pytest.raises(InvalidArgument, match="not one of runs, effects"):
            next(fresh.read_table("nothing", 10))
    for name, batches in tables.items():
        for batch in batches:
            assert batch.schema.names == list(SIDE_TABLES[name].__annotations__)
    (value,) = pa.Table.from_batches(tables["values"]).to_pylist()
    assert (value["key"], value["version"], bool(value["deleted"])) == ("k'", 3, True)
    (budget,) = pa.Table.from_batches(tables["budgets"]).to_pylist()
    assert budget["usd_cap"] == 1.5
    (task,) = pa.Table.from_batches(tables["tasks"]).to_pylist()
    assert (task["task_id"], task["source_run_id"]) == ("x/0/3", "r'1")
    assert [row["name"] for row in pa.Table.from_batches(tables["matcher"]).to_pylist()] == [
        "matcher"
    ]


MEASURED = """
import resource, sys
from contextlib import closing
from tape.model.entry import Entry
from tape.ports.bulk import Scan
from tape.stores.bulk import open_reader

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024

with closing(open_reader(sys.argv[1], is_alone=sys.argv[2] == "True")) as reader:
    next(reader.scan(Scan(0, 2**62, tuple(Entry._fields)), 1000))
    before, read = peak(), 0
    for batch in reader.scan(Scan(0, 2**62, tuple(Entry._fields)), 1000):
        read += batch.num_rows
print(read, peak() - before)
"""


def test_a_scan_holds_batches_and_not_the_table(place: Place) -> None:
    """Of 120 MB no more than a few batches are there at a time."""
    url = place.url
    (entry,) = write_journal(url, odd_entries([1]))
    numbers = "SELECT 2 AS n UNION ALL SELECT n + 1 FROM numbers WHERE n < 30000"
    columns = "global_seq, kind, subject, payload_json, ts_ms, event_id, occurred_at_ms"
    values = f"n, 'event', '{entry.subject}', '\"' || n || '{'z' * 4000}\"', 1, 'i' || n, 1"
    insert = f"INSERT INTO tape_journal ({columns}) SELECT {values} FROM numbers"
    run_sql(url, [f"WITH RECURSIVE numbers AS ({numbers}) {insert}"])
    said = subprocess.run(
        [sys.executable, "-c", MEASURED, url, str(place.is_alone)],
        check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    read, grown_mb = map(int, said.split())
    assert read == 30_000
    assert grown_mb < 60


WRITING = "import sqlite3, sys; sqlite3.connect(sys.argv[1], timeout=0).execute('BEGIN IMMEDIATE')"


def test_reading_beside_a_store_leaves_it_its_locks(sqlite_url: str) -> None:
    """Closing a file that another SQLite of the process has open would drop that one's locks."""
    write_journal(sqlite_url, odd_entries([1, 2]))
    path = sqlite_path(sqlite_url)
    with closing(sqlite3.connect(path, isolation_level=None)) as held:
        held.execute("BEGIN IMMEDIATE")
        with closing(Stores().store(sqlite_url).reader()) as reader:
            assert len(rows(reader, Scan(0, 2**62, ALL))) == 2
        said = subprocess.run(
            [sys.executable, "-c", WRITING, path], capture_output=True, text=True, check=False
        ).stderr
    assert "database is locked" in said


def test_large_rows_come_a_few_at_a_time(sqlite_url: str) -> None:
    large = [
        entry._replace(payload_json=f'"{"z" * BATCH_BYTES}"') for entry in odd_entries(range(1, 6))
    ]
    write_journal(sqlite_url, large)
    with closing(Stores().store(sqlite_url).reader()) as reader:
        sizes = [batch.num_rows for batch in reader.scan(Scan(0, 2**62, ALL), 1000)]
    assert sizes == [1] * 5


@pytest.mark.parametrize("is_alone", [True, False])
def test_what_is_no_journal_is_said(tmp_path: Path, is_alone: bool) -> None:
    def open_reader(url: str) -> BulkReader:
        return Place(url, is_alone).open()

    with pytest.raises(StoreUnavailable, match="no such file on this machine"):
        open_reader(f"sqlite:{tmp_path / 'missing.db'}")
    (tmp_path / "empty.db").touch()
    empty = open_reader(f"sqlite:{tmp_path / 'empty.db'}")
    with (
        closing(empty),
        pytest.raises(StoreMismatch, match="is not a journal, or is not up to date"),
    ):
        empty.bounds()
    (tmp_path / "text.db").write_text("not a database " * 100)
    text = open_reader(f"sqlite:{tmp_path / 'text.db'}")
    with (
        closing(text),
        pytest.raises(
            StoreMismatch, match=rf"text\.db is not a {'journal' if is_alone else 'usable SQLite'}"
        ),
    ):
        text.bounds()
    with pytest.raises(StoreUnavailable, match=r"127\.0\.0\.1:1/x cannot be read"):
        open_reader("postgres://someone:secret@127.0.0.1:1/x")


def test_reading_creates_no_store(tmp_path: Path, postgres_url: str) -> None:
    missing = f"sqlite:{tmp_path / 'missing.db'}"
    for url in (missing, postgres_url):
        with pytest.raises(InvalidArgument, match=r"no store at (sqlite|postgres):"):
            Stores().store(url)(_nothing)
        with pytest.raises((StoreUnavailable, StoreMismatch)), closing(open_reader(url)) as reader:
            reader.bounds()
    assert list(tmp_path.iterdir()) == []
    for url in (missing, postgres_url):
        Stores().store(url, creating=True)(_nothing)
        Stores().store(url)(_nothing)


async def _nothing(_store: Store) -> None:
    """Opening it was all."""


def test_a_store_is_named_for_other_working_directories(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert located("sqlite:a b%25.db") == f"sqlite:{tmp_path}/a%20b%25.db"
    assert located("postgres://h/d") == "postgres://h/d"
