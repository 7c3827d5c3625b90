"""What the relay reads costs what waits, not what was ever published."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import asyncpg
import pytest

from tests.unit.stores.planning import ROWS, filled_session, indexes, kinds, plans, sqlite_plans

# All but the newest two hundred are published; of those, half are not promoted yet. One in a
# hundred of the published is a repeat instead.
_COLUMNS = (
    "(event_id, subject, payload_json, global_seq, published_to_nats, published_at_ms, "
    "idempotency_key, has_entry, repeat_of, repeated_at_ms)"
)
FILL_SQLITE = f"""
WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {ROWS})
INSERT INTO bus_outbox {_COLUMNS}
SELECT 'e' || i, 's' || i % 40, '{{}}',
  CASE WHEN i > {ROWS - 100} THEN 0 WHEN i % 100 = 0 THEN -1 ELSE i END,
  i <= {ROWS - 200} AND i % 100 > 0, i, 'k' || i, i <= {ROWS - 100} AND i % 100 > 0,
  CASE WHEN i <= {ROWS - 100} AND i % 100 = 0 THEN 'e1' ELSE '' END, i FROM n
"""
FILL_POSTGRES = (
    f"""
INSERT INTO bus.outbox {_COLUMNS}
SELECT 'e' || i, 's' || i % 40, '{{}}',
  CASE WHEN i > {ROWS - 100} THEN 0 WHEN i % 100 = 0 THEN -1 ELSE i END,
  i <= {ROWS - 200} AND i % 100 > 0, i, 'k' || i, i <= {ROWS - 100} AND i % 100 > 0,
  CASE WHEN i <= {ROWS - 100} AND i % 100 = 0 THEN 'e1' ELSE '' END, i
FROM generate_series(1, {ROWS}) i
""",
)

SQLITE = {
    "read_unpromoted": ((100, '["s1"]'), "INDEX bus_outbox_unpromoted"),
    "read_unpublished": ((100, '["s1"]'), "INDEX bus_outbox_unpublished (global_seq>?)"),
    "has_unpromoted": ((), "INDEX bus_outbox_unpromoted"),
    "read_failing": ((100,), "INDEX bus_outbox_failing"),
    "load_outbox": (("[[1], [2]]",), "INTEGER PRIMARY KEY (rowid=?)"),
    "mark_published": (("[1, 2]", 1, 1), "INTEGER PRIMARY KEY (rowid=?)"),
    "forget_published": ((10, 100), "INDEX bus_outbox_published (published_at_ms<?)"),
    "forget_promoted": ((10, 100), "INDEX bus_outbox_unpublished (global_seq>?)"),
    "load_outbox_ids": (('[["e1"], ["e2"]]',), "INDEX bus_outbox_entry_id (event_id=?)"),
    "load_outbox_keys": (
        ('[["s1", "k1"], ["s2", "k2"]]',),
        "INDEX bus_outbox_entry_key (subject=? AND idempotency_key=?)",
    ),
    "read_repeats": ((100,), "INDEX bus_outbox_repeats"),
    "forget_repeats": ((10, 100), "INDEX bus_outbox_repeats (repeated_at_ms<?)"),
}


@pytest.fixture
async def sqlite_plan(tmp_path: Path) -> AsyncIterator[Callable[..., str]]:
    async with sqlite_plans(tmp_path / "tape.db", FILL_SQLITE) as plan:
        yield plan


@pytest.mark.parametrize("name", SQLITE)
def test_sqlite_finds_rows_by_index(sqlite_plan: Callable[..., str], name: str) -> None:
    params, expected = SQLITE[name]
    plan = sqlite_plan(name, *params)
    assert expected in plan
    assert "TEMP B-TREE" not in plan
    lines = [line for line in plan.splitlines() if "SCAN bus_outbox" in line]
    assert all("USING" in line for line in lines)  # a scan of a partial index, in its order


POSTGRES = {
    "read_unpromoted": ("100, ARRAY['s1']", {"outbox_unpromoted"}),
    "read_unpublished": ("100, ARRAY['s1']", {"outbox_unpublished"}),
    "has_unpromoted": ("", {"outbox_unpromoted"}),
    "read_failing": ("100", {"outbox_failing"}),
    "load_outbox": ("ARRAY[1, 2]", {"outbox_pkey"}),
    "mark_published": (f"ARRAY[{ROWS}], 1", {"outbox_pkey"}),
    "note_outbox_failure": (f"{ROWS}, 'x'", {"outbox_pkey"}),
    "forget_published": ("0, 100", {"outbox_pkey", "outbox_published"}),
    "load_outbox_ids": ("ARRAY['e1', 'e2']", {"outbox_entry_id"}),
    "load_outbox_keys": (
        "ARRAY['s1', 's2'], ARRAY['k1', 'k2']",
        {"outbox_entry_key", "tape_journal_key", "tape_schema_steps_pkey"},
    ),
    "read_repeats": ("100", {"outbox_repeats"}),
    "forget_repeats": ("0, 100", {"outbox_pkey", "outbox_repeats"}),
}


@pytest.fixture(params=[False, True], ids=["new", "analysed"])
async def session(
    request: pytest.FixtureRequest, postgres_url: str
) -> AsyncIterator[asyncpg.Connection]:
    async with filled_session(postgres_url, FILL_POSTGRES, analysed=request.param) as found:
        yield found


async def test_postgres_finds_rows_by_index(session: asyncpg.Connection) -> None:
    for name, (arguments, expected) in POSTGRES.items():
        for plan in await plans(session, name, arguments):
            assert indexes(plan) == expected, name
            assert not kinds(plan) & {"Seq Scan", "Sort", "Bitmap Heap Scan"}, name
