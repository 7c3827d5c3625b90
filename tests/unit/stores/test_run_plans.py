"""How runs and what they wrote down are found, at the same cost beside any number that are done."""

import re
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

# One in a hundred is not done.
FILL = (
    f"""
INSERT INTO tape_runs
SELECT 'r' || i, 'a' || i % 3, 'u', 's', 'i' || i, 'p' || i % 2,
  CASE WHEN i % 100 > 0 THEN 4 ELSE 1 + i / 100 % 8 END, 0, '', '', 0, 0, i, 0, '',
  CASE WHEN i % 10 > 0 THEN '' ELSE 'r1' END, '', '', 1, 0, ''
FROM generate_series(1, {ROWS}) i
""",
    f"""
INSERT INTO tape_decisions SELECT 'r' || i, 0, i, 1 FROM generate_series(1, {ROWS}) i
""",
    f"""
INSERT INTO tape_effects
SELECT 'r' || i, 'k', 1, 0, 't', 0, CASE WHEN i % 100 > 0 THEN 2 ELSE 1 + i / 100 % 4 END,
  '', '', '', i, 1, 1 + i % 2, '', 'c' || i % 5, ''
FROM generate_series(1, {ROWS}) i
""",
    f"""
INSERT INTO tape_obligations
SELECT 'r' || i, 'k', 'undo', 1, '', CASE WHEN i % 100 > 0 THEN 3 ELSE 1 + i / 100 % 4 END,
  i, '', 0, 5, 0, '', '', 0, 0, '', i % 2 - 1
FROM generate_series(1, {ROWS}) i
""",
    f"""
INSERT INTO tape_timers
SELECT 'r' || i, 't', i, 'redrive', '', i % 100 > 0, FALSE, 1 FROM generate_series(1, {ROWS}) i
""",
    f"""
INSERT INTO tape_gates SELECT 'r' || i, 'g', TRUE, TRUE, '', '' FROM generate_series(1, {ROWS}) i
""",
    f"""
INSERT INTO tape_business_keys SELECT 'c', 'b' || i, 'r', 'k' FROM generate_series(1, {ROWS}) i
""",
    f"INSERT INTO tape_budgets SELECT 'r' || i FROM generate_series(1, {ROWS}) i",
)


@pytest.fixture
async def sqlite_plan(tmp_path: Path) -> AsyncIterator[Callable[..., str]]:
    async with sqlite_plans(tmp_path / "tape.db") as plan:
        yield plan


@pytest.fixture(params=[False, True], ids=["not analysed", "analysed"])
async def postgres_session(
    postgres_url: str, request: pytest.FixtureRequest
) -> AsyncIterator[asyncpg.Connection]:
    async with filled_session(postgres_url, FILL, analysed=request.param) as session:
        yield session


RUN_LIST = (0, "a", "p", "u", "s", "r", 9, "", 100)
AFTER = "(started_at_ms,run_id)<(?,?)"
IN_SESSION = "session_id=? AND user_id=? AND app_name=?"
EFFECT_GROUP = "status=? AND dispatch_mode=?"

# Of each statement about runs and what they wrote down: its parameters, and how it finds rows.
RUN_STATEMENTS: dict[str, tuple[tuple[object, ...], list[str]]] = {
    "load_decisions": (("[]",), ["PRIMARY KEY (run_id=? AND decision_index=?)"]),
    "load_effects": (("[]",), ["autoindex_tape_effects_1 (run_id=? AND idempotency_key=?)"]),
    "load_business_keys": (("[]",), ["PRIMARY KEY (connector=? AND business_key=?)"]),
    "load_obligations": (
        ("[]",),
        ["autoindex_tape_obligations_1 (run_id=? AND effect_key=? AND kind=?)"],
    ),
    "load_gates": (("[]",), ["autoindex_tape_gates_1 (run_id=? AND gate_name=?)"]),
    "load_timers": (("[]",), ["autoindex_tape_timers_1 (run_id=? AND timer_id=?)"]),
    "load_budgets": (("[]",), ["PRIMARY KEY (run_id=?)"]),
    "get_run": (("r",), ["PRIMARY KEY (run_id=?)"]),
    "list_runs": (RUN_LIST, [f"tape_runs_started ({AFTER})"]),
    "list_runs_of_pool": (RUN_LIST, [f"tape_runs_pool (pool=? AND {AFTER})"]),
    "list_runs_of_app": (RUN_LIST, [f"tape_runs_app (app_name=? AND {AFTER})"]),
    "list_runs_of_session": (
        RUN_LIST,
        [f"tape_runs_session (app_name=? AND user_id=? AND session_id=? AND {AFTER})"],
    ),
    "list_open_runs_of_session": (RUN_LIST, [f"tape_runs_open ({IN_SESSION} AND {AFTER})"]),
    "list_runs_of_parent": (RUN_LIST, [f"tape_runs_parent (parent_run_id=? AND {AFTER})"]),
    "list_runs_of_status": (RUN_LIST, [f"tape_runs_status (status=? AND {AFTER})"]),
    "read_pools_to_recover": ((), ["tape_runs_due", "tape_runs_due (pool>?)"]),
    "read_apps_to_recover": (
        ("p",),
        ["tape_runs_due (pool=?)", "tape_runs_due (pool=? AND app_name>?)"],
    ),
    "list_runs_to_recover": (
        ("p", "a", 1, 9, 100),
        ["tape_runs_due (pool=? AND app_name=? AND status=?)"],
    ),
    "list_waiting_runs": (
        ("p", "a", 9, 9, 100, 100),
        [
            "tape_runs_due (pool=? AND app_name=? AND status=?)",
            "tape_journal_run (run_id=? AND seq=?)",
            *["tape_runs_due (pool=? AND app_name=? AND status=?)"] * 4,
        ],
    ),
    "get_decision": (
        ("r", 0),
        ["tape_journal_run (run_id=? AND seq=?)", "PRIMARY KEY (run_id=? AND decision_index=?)"],
    ),
    "get_effect": (("r", "k"), ["autoindex_tape_effects_1 (run_id=? AND idempotency_key=?)"]),
    "read_open_connectors": (
        (1, 2),
        [
            f"tape_effects_open ({EFFECT_GROUP})",
            f"tape_effects_open ({EFFECT_GROUP} AND connector>?)",
        ],
    ),
    "list_claimable_effects": (
        (1, 2, "c", 9, 100),
        [f"tape_effects_open ({EFFECT_GROUP} AND connector=?)"],
    ),
    "list_old_effects": (
        (1, 2, "c", 9, 100),
        [f"tape_effects_open ({EFFECT_GROUP} AND connector=? AND ts_ms<?)"],
    ),
    "list_obligations": (("r",), ["autoindex_tape_obligations_1 (run_id=?)"]),
    "list_top_obligations": (
        (9, 100),
        ["tape_runs_status (status=?)", "tape_obligations_seq (seq=? AND run_id=?)"],
    ),
    "list_lone_obligations": ((9, 100), ["tape_obligations_alone"]),
    "list_stuck_obligations": ((100,), ["tape_obligations_stuck"]),
    "list_timers": (("r",), ["autoindex_tape_timers_1 (run_id=?)"]),
    "list_due_timers": ((9, 100), ["tape_timers_due (fire_at_ms<?)"]),
    "read_next_timer": ((), ["tape_timers_due"]),
    "get_budget": (("r",), ["PRIMARY KEY (run_id=?)"]),
}
# These put one run's rows in order.
SORTED = ("list_obligations", "list_timers")


@pytest.mark.parametrize("name", RUN_STATEMENTS)
def test_sqlite_finds_what_runs_wrote_by_an_index(
    sqlite_plan: Callable[..., str], name: str
) -> None:
    params, expected = RUN_STATEMENTS[name]
    lines = sqlite_plan(name, *params).splitlines()
    used = [line.split(" USING ")[1] for line in lines if "SEARCH" in line or "SCAN tape_" in line]
    assert [re.sub("(COVERING )?INDEX (sqlite_)?", "", one) for one in used] == expected
    assert any("TEMP B-TREE" in line for line in lines) == (name in SORTED)


PAGE = f"{ROWS}, '', 100"
# What each statement about runs is asked, which index it uses and by which of its columns.
RUN_PLANS = {
    "load_runs": ("ARRAY['r1']", "tape_runs_pkey", "run_id"),
    "load_decisions": ("ARRAY['r1'], ARRAY[0]", "tape_decisions_pkey", "run_id decision_index"),
    "load_effects": ("ARRAY['r1'], ARRAY['k']", "tape_effects_pkey", "run_id idempotency_key"),
    "load_business_keys": (
        "ARRAY['c'], ARRAY['b1']", "tape_business_keys_pkey", "connector business_key",
    ),
    "load_obligations": (
        "ARRAY['r1'], ARRAY['k'], ARRAY['undo']", "tape_obligations_pkey", "run_id effect_key kind",
    ),
    "load_gates": ("ARRAY['r1'], ARRAY['g']", "tape_gates_pkey", "run_id gate_name"),
    "load_timers": ("ARRAY['r1'], ARRAY['t']", "tape_timers_pkey", "run_id timer_id"),
    "load_budgets": ("ARRAY['r1']", "tape_budgets_pkey", "run_id"),
    "get_run": ("'r1'", "tape_runs_pkey", "run_id"),
    "list_runs": (
        f"0::smallint, '', '', NULL, NULL, '', {PAGE}", "tape_runs_started",
        "started_at_ms run_id",
    ),
    "list_runs_of_pool": (
        f"0::smallint, '', 'p1', NULL, NULL, '', {PAGE}", "tape_runs_pool",
        "pool started_at_ms",
    ),
    "list_runs_of_app": (
        f"0::smallint, 'a1', '', NULL, NULL, '', {PAGE}", "tape_runs_app",
        "app_name started_at_ms",
    ),
    "list_runs_of_session": (
        f"0::smallint, 'a1', '', 'u', 's', '', {PAGE}", "tape_runs_session",
        "app_name user_id session_id started_at_ms",
    ),
    "list_open_runs_of_session": (
        f"1::smallint, 'a1', '', 'u', 's', '', {PAGE}", "tape_runs_open",
        "app_name user_id session_id started_at_ms",
    ),
    "list_runs_of_parent": (
        f"0::smallint, '', '', NULL, NULL, 'r1', {PAGE}", "tape_runs_parent",
        "parent_run_id started_at_ms",
    ),
    "list_runs_of_status": (
        f"5::smallint, '', '', NULL, NULL, '', {PAGE}", "tape_runs_status",
        "status started_at_ms",
    ),
    "read_pools_to_recover": ("", "tape_runs_due", "pool"),
    "read_apps_to_recover": ("'p1'", "tape_runs_due", "pool app_name"),
    "list_runs_to_recover": (
        "ARRAY['p1'], ARRAY['a1'], 100", "tape_runs_due", "pool app_name status",
    ),
    "get_effect": ("'r1', 'k'", "tape_effects_pkey", "run_id idempotency_key"),
    "read_open_connectors": (
        "1::smallint, 2::smallint", "tape_effects_open", "status dispatch_mode connector",
    ),
    "list_claimable_effects": (
        "ARRAY[1], ARRAY[2], ARRAY['c1'], 100", "tape_effects_open",
        "status dispatch_mode connector",
    ),
    "list_old_effects": (
        "ARRAY[1], ARRAY[2], ARRAY['c1'], 5, 100", "tape_effects_open",
        "status dispatch_mode connector ts_ms",
    ),
    "list_obligations": ("'r1'", "tape_obligations_pkey", "run_id"),
    "list_lone_obligations": ("100", "tape_obligations_alone", ""),
    "list_stuck_obligations": ("100", "tape_obligations_stuck", ""),
    "list_timers": ("'r1'", "tape_timers_pkey", "run_id"),
    "list_due_timers": ("100", "tape_timers_due", "fire_at_ms"),
    "read_next_timer": ("", "tape_timers_due", ""),
    "get_budget": ("'r1'", "tape_budgets_pkey", "run_id"),
}  # fmt: skip


async def test_postgres_finds_what_runs_wrote_by_an_index(
    postgres_session: asyncpg.Connection,
) -> None:
    for name, (arguments, index, columns) in RUN_PLANS.items():
        for plan in await plans(postgres_session, name, arguments):
            assert indexes(plan) == {index}, name
            assert not kinds(plan) & {"Seq Scan", "Bitmap Heap Scan", "Incremental Sort"}, name
            found = " ".join(node.get("Index Cond", "") for node in plan)
            assert all(re.search(rf"\b{column}\b", found) for column in columns.split()), name


async def test_postgres_joins_what_runs_wrote_by_their_keys(
    postgres_session: asyncpg.Connection,
) -> None:
    for name, arguments, expected in [
        ("get_decision", "'r1', 0", {"tape_decisions_pkey", "tape_journal_run"}),
        ("list_top_obligations", "100", {"tape_runs_status", "tape_obligations_seq"}),
    ]:
        for plan in await plans(postgres_session, name, arguments):
            assert indexes(plan) == expected, name
            assert not kinds(plan) & {"Seq Scan", "Sort", "Hash Join", "Merge Join"}, name
            conditions = [node["Index Cond"] for node in plan if "Index Name" in node]
            assert sum("seq" in condition for condition in conditions) == 1, name


async def test_postgres_finds_what_waits_by_an_index(postgres_session: asyncpg.Connection) -> None:
    arguments = "ARRAY['p1'], ARRAY['a1'], 5, 100, 100"
    for plan in await plans(postgres_session, "list_waiting_runs", arguments):
        assert indexes(plan) <= {"tape_runs_due", "tape_runs_status", "tape_journal_run"}
        assert "Seq Scan" not in kinds(plan)
