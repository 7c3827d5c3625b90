"""The plans that matter: what a cursor costs must not depend on the journal's length."""

import itertools
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import asyncpg
import pytest

from tests.unit.stores.planning import (
    ROWS,
    filled_session,
    indexes,
    kinds,
    plans,
    sqlite_plans,
)

FILL_SQLITE = f"""
WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {ROWS})
INSERT INTO tape_journal (run_id, seq, kind, subject, payload_json, ts_ms, event_id, occurred_at_ms,
  idempotency_key)
SELECT 'r' || i % 100, i, CASE WHEN i % 4 THEN 'event' ELSE 'value' END,
  '/tape/value/changed/ns/k' || i % 1000, '{{}}', i, 'e' || i, i, 'key' || i
FROM n
"""
FILL_POSTGRES = (
    f"""
INSERT INTO tape_journal (global_seq, run_id, seq, kind, subject, payload_json, ts_ms, event_id,
  occurred_at_ms, idempotency_key)
SELECT i, 'r' || i % 100, i, CASE WHEN i % 4 > 0 THEN 'event' ELSE 'value' END,
  '/tape/value/changed/ns/k' || i % 1000, '{{}}', i, 'e' || i, i, 'key' || i
FROM generate_series(1, {ROWS}) i
""",
    f"""
INSERT INTO tape_values SELECT 'ns', 'k' || i, '1', 1, 1, '', FALSE
FROM generate_series(1, {ROWS}) i
""",
    f"""
INSERT INTO tape_runs
SELECT 'r' || i, 'a', 'u', 's', 'i' || i, '', 1, 0, '', '', 0, 0, 0, 0
FROM generate_series(1, {ROWS}) i
""",
)

# Where in the journal a reader stands: at its start, in its middle, close to its end.
CURSORS = [0, ROWS // 2, ROWS - 10]
FILTERS = [("", ""), ("/tape/value", "/tape/valuf")]


@pytest.fixture
async def sqlite_plan(tmp_path: Path) -> AsyncIterator[Callable[..., str]]:
    async with sqlite_plans(tmp_path / "tape.db", FILL_SQLITE) as plan:
        yield plan


def bad(plan: str) -> bool:
    return "SCAN tape_journal" in plan


@pytest.mark.parametrize("after", CURSORS)
@pytest.mark.parametrize(("low", "high"), FILTERS)
def test_sqlite_reads_a_range_by_its_number(
    sqlite_plan: Callable[..., str], after: int, low: str, high: str
) -> None:
    plan = sqlite_plan("read_entries", after, after + 50_000, 1000, low, high, "", "", 0)
    assert plan == "SEARCH tape_journal USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)"


def test_sqlite_reads_a_run_in_its_order(sqlite_plan: Callable[..., str]) -> None:
    plan = sqlite_plan("read_run", "r5", 100, 1000)
    assert plan == "SEARCH tape_journal USING INDEX tape_journal_run (run_id=? AND seq>?)"


def test_sqlite_reads_a_values_history_by_its_subject(sqlite_plan: Callable[..., str]) -> None:
    """What is sorted are the numbers of entries; an entry is read when it is fetched."""
    subjects = '["/tape/value/changed/ns/k4", "/tape/value/deleted/ns/k4"]'
    plan = sqlite_plan("read_value_history", subjects, 0, 1000).splitlines()
    assert plan[0] == "SEARCH tape_journal USING INTEGER PRIMARY KEY (rowid=?)"
    assert plan[1].startswith("LIST SUBQUERY")
    index = "USING INDEX tape_journal_value (subject=? AND global_seq>?)"
    assert plan[2] == f"SEARCH tape_journal {index}"


def test_sqlite_finds_keys_by_their_index(sqlite_plan: Callable[..., str]) -> None:
    plan = sqlite_plan("load_known", '[["key7"], ["key8"]]')
    assert "SEARCH tape_journal USING INDEX tape_journal_key (idempotency_key=?)" in plan
    assert not bad(plan)


@pytest.mark.parametrize("name", ["read_head", "read_tail"])
def test_sqlite_knows_its_ends(sqlite_plan: Callable[..., str], name: str) -> None:
    assert sqlite_plan(name) == "SEARCH tape_journal"


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("load_values", '[["ns", "k1"]]'),
        ("load_runs", '[["r1"]]'),
        ("load_sessions", '[["a", "u", "s"]]'),
        ("load_session_events", '[["a", "u", "s", "e"]]'),
    ],
)
def test_sqlite_loads_rows_by_their_keys(
    sqlite_plan: Callable[..., str], name: str, key: str
) -> None:
    plan = sqlite_plan(name, key)
    assert "SEARCH tape_" in plan
    assert "SCAN tape_" not in plan


TASK_KEY = "(reaction_id=? AND shard=? AND source_global_seq=?)"
CURSOR_KEY = "(reaction_id=? AND shard=?)"
AFTER_KEY = "((reaction_id,shard,source_global_seq)>(?,?,?) AND reaction_id<?)"
FRESH, DUE = "INDEX tape_task_queue_fresh", "INDEX tape_task_queue_due"
WAITS = "(reaction_id=? AND next_attempt_at_ms>? AND next_attempt_at_ms<?)"

# Of each statement of a step, a claim or a settlement: its parameters, and how it finds rows.
TASK_STATEMENTS: dict[str, tuple[tuple[object, ...], list[str]]] = {
    "load_reactions": (("[]",), ["PRIMARY KEY (reaction_id=?)"]),
    "load_reaction_cursors": (("[]",), [f"PRIMARY KEY {CURSOR_KEY}"]),
    "delete_reaction_cursors": (("[]",), [f"PRIMARY KEY {CURSOR_KEY}"]),
    "load_reaction_tallies": (("[]",), ["PRIMARY KEY (reaction_id=?)"]),
    "load_reaction_book": (("[]",), ["PRIMARY KEY (name=?)"]),
    "load_task_queue": (("[]",), [f"PRIMARY KEY {TASK_KEY}"]),
    "delete_task_queue": (("[]",), [f"PRIMARY KEY {TASK_KEY}"]),
    "load_task_ended": (("[]",), [f"PRIMARY KEY {TASK_KEY}"]),
    "delete_task_ended": (("[]",), [f"PRIMARY KEY {TASK_KEY}"]),
    "load_sources": (("[]",), ["INTEGER PRIMARY KEY (rowid=?)"]),
    "advance_cursors": (("[]", 1), [f"PRIMARY KEY {CURSOR_KEY}"]),
    "count_coalesced": (("[]",), [f"PRIMARY KEY {CURSOR_KEY}"]),
    "find_known_tasks": (("[]",), [f"PRIMARY KEY {TASK_KEY}"] * 2),
    "find_superseded_tasks": (
        ("[]",),
        ["INDEX tape_task_queue_debounce (reaction_id=? AND debounce_key=?)"],
    ),
    "find_claimable": (
        ("[]", 1),
        [f"{FRESH} (reaction_id=? AND shard>? AND shard<?)", f"{DUE} {WAITS}"],
    ),
    "read_room": (("r",), ["PRIMARY KEY (reaction_id=?)"] * 2),
    "read_due_tasks": (
        ("r", 0, 9, 1, 500),
        [f"{DUE} {WAITS}", "INTEGER PRIMARY KEY (rowid=?) LEFT-JOIN"],
    ),
    "read_fresh_shards": (
        ("r",),
        [f"{FRESH} (reaction_id=?)", f"{FRESH} (reaction_id=? AND shard>?)"],
    ),
    "read_fresh_tasks": (
        ("r", 0, 500),
        [f"{FRESH} (reaction_id=? AND shard=?)", "INTEGER PRIMARY KEY (rowid=?) LEFT-JOIN"],
    ),
    "claim_due_tasks": (("[]", "a", 1, 1), [f"PRIMARY KEY {TASK_KEY}"]),
    "claim_fresh_tasks": (
        ("r", 0, 1, "a", 1, 1),
        [f"{FRESH} (reaction_id=? AND shard=? AND source_global_seq<?)"],
    ),
    "count_claimed": (("r", 1, 1), ["PRIMARY KEY (reaction_id=?)"]),
    "count_tasks": (("[]",), ["PRIMARY KEY (reaction_id=?)"]),
    "extend_tasks": (("[]", "a", 1), [f"PRIMARY KEY {TASK_KEY}"]),
    "complete_tasks": (("[]", "a"), [f"PRIMARY KEY {TASK_KEY}"]),
    "read_expired": ((1, 9), ["INDEX tape_task_queue_lease (lease_expires_at_ms<?)"]),
    "read_next_due": (
        ("[]", 1),
        [
            "PRIMARY KEY (reaction_id=?)",
            "PRIMARY KEY (reaction_id=?)",
            "COVERING INDEX tape_task_queue_due (reaction_id=? AND next_attempt_at_ms>?)",
        ],
    ),
    "get_task": (
        ("r", 0, 1),
        [f"PRIMARY KEY {TASK_KEY}", "INTEGER PRIMARY KEY (rowid=?) LEFT-JOIN"] * 2,
    ),
    "list_queued_tasks": (
        ("r", -1, 0, "r", 0, 9),
        [f"PRIMARY KEY {AFTER_KEY}", "INTEGER PRIMARY KEY (rowid=?) LEFT-JOIN"],
    ),
    "list_ended_tasks": (
        ("r", -1, 0, "r", 0, 9),
        [f"PRIMARY KEY {AFTER_KEY}", "INTEGER PRIMARY KEY (rowid=?) LEFT-JOIN"],
    ),
    "list_badly_ended_tasks": (
        ("r", -1, 0, "r", 5, 9),
        [
            f"INDEX tape_task_ended_badly {AFTER_KEY}",
            "INTEGER PRIMARY KEY (rowid=?) LEFT-JOIN",
        ],
    ),
}


@pytest.mark.parametrize("name", TASK_STATEMENTS)
def test_sqlite_finds_tasks_by_all_of_their_key(sqlite_plan: Callable[..., str], name: str) -> None:
    params, expected = TASK_STATEMENTS[name]
    plan = sqlite_plan(name, *params)
    searches = [line.split(" USING ")[1] for line in plan.splitlines() if "SEARCH" in line]
    assert searches == expected
    assert "SCAN tape_" not in plan
    assert "TEMP B-TREE" not in plan


@pytest.fixture(params=[False, True], ids=["not analysed", "analysed"])
async def postgres_session(
    postgres_url: str, request: pytest.FixtureRequest
) -> AsyncIterator[asyncpg.Connection]:
    async with filled_session(postgres_url, FILL_POSTGRES, analysed=request.param) as session:
        yield session


async def test_postgres_reads_a_range_by_its_number(postgres_session: asyncpg.Connection) -> None:
    for after, (low, high) in itertools.product(CURSORS, FILTERS):
        arguments = f"{after}, {after + 50_000}, 1000, 8000000, '{low}', '{high}', '', '', 0"
        for plan in await plans(postgres_session, "read_entries", arguments):
            assert not kinds(plan) & {"Seq Scan", "Sort", "Incremental Sort", "Bitmap Heap Scan"}
            (scan,) = [node for node in plan if node["Node Type"] == "Index Scan"]
            assert scan["Index Name"] == "tape_journal_pkey"
            assert scan["Index Cond"].count("global_seq") == 2


async def test_postgres_reads_a_run_in_its_order(postgres_session: asyncpg.Connection) -> None:
    for plan in await plans(postgres_session, "read_run", "'r5', 100, 1000, 9999"):
        assert indexes(plan) == {"tape_journal_run"}
        assert not kinds(plan) & {"Seq Scan", "Sort"}


async def test_postgres_reads_a_values_history_by_its_subject(
    postgres_session: asyncpg.Connection,
) -> None:
    arguments = "ARRAY['/tape/value/changed/ns/k4', '/tape/value/deleted/ns/k4'], 0, 1000, 9999"
    for plan in await plans(postgres_session, "read_value_history", arguments):
        assert indexes(plan) == {"tape_journal_value"}
        assert "Seq Scan" not in kinds(plan)


async def test_postgres_finds_what_it_needs_by_key(postgres_session: asyncpg.Connection) -> None:
    for name, arguments, index in [
        ("load_known", "ARRAY['key7', 'key8']", "tape_journal_key"),
        ("load_values", "ARRAY['ns'], ARRAY['k1']", "tape_values_pkey"),
        ("load_runs", "ARRAY['r1']", "tape_runs_pkey"),
        ("find_committed", f"{ROWS - 10}, 'e5'", "tape_journal_pkey"),
        ("read_head", "", "tape_journal_pkey"),
        ("read_tail", "", "tape_journal_pkey"),
    ]:
        for plan in await plans(postgres_session, name, arguments):
            assert indexes(plan) == {index}, name
            assert "Seq Scan" not in kinds(plan), name
