"""What the newest entries and the drainers cost does not depend on the journal's length."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import asyncpg
import pytest

from tests.unit.stores.planning import ROWS, filled_session, indexes, kinds, plans, sqlite_plans
from tests.unit.stores.test_query_plans import FILL_POSTGRES, FILL_SQLITE

FILTERS = ("",) * 9
RARE = ("", "", "rare", *FILTERS[3:])
BY_NUMBER = "SEARCH tape_journal USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)"


@pytest.fixture
async def sqlite_plan(tmp_path: Path) -> AsyncIterator[Callable[..., str]]:
    async with sqlite_plans(tmp_path / "tape.db", FILL_SQLITE) as plan:
        yield plan


@pytest.mark.parametrize("filters", [FILTERS, RARE], ids=["all", "rare"])
def test_sqlite_reads_the_newest_by_their_number(
    sqlite_plan: Callable[..., str], filters: tuple[str, ...]
) -> None:
    assert sqlite_plan("read_recent", ROWS, ROWS - 100, 50, *filters) == BY_NUMBER
    older = sqlite_plan("find_older", 100)
    assert older == "SEARCH tape_journal USING INTEGER PRIMARY KEY (rowid<?)"


def test_sqlite_reads_a_runs_newest_by_its_index(sqlite_plan: Callable[..., str]) -> None:
    plan = sqlite_plan("read_recent_of_run", ROWS, "r5", 50, *FILTERS)
    assert plan == "SEARCH tape_journal USING INDEX tape_journal_run (run_id=?)"


@pytest.mark.parametrize(
    ("name", "params", "expected"),
    [
        ("get_drainer", ("d",), "PRIMARY KEY (drainer_id=?)"),
        ("load_event_drain_state", ('[["d"]]',), "PRIMARY KEY (drainer_id=?)"),
        ("load_event_subscriptions", ('[["s"]]',), "PRIMARY KEY (subscription_id=?)"),
        ("delete_event_subscriptions", ('[["s"]]',), "PRIMARY KEY (subscription_id=?)"),
        (
            "list_event_subscriptions_of_drainer",
            ("d",),
            "INDEX tape_event_subscriptions_drainer (drainer_id=?)",
        ),
    ],
)
def test_sqlite_finds_rows_by_their_keys(
    sqlite_plan: Callable[..., str], name: str, params: tuple[object, ...], expected: str
) -> None:
    plan = sqlite_plan(name, *params)
    assert expected in plan
    assert "SCAN tape_" not in plan
    assert "TEMP B-TREE" not in plan


@pytest.fixture(params=[False, True], ids=["new", "analysed"])
async def session(
    request: pytest.FixtureRequest, postgres_url: str
) -> AsyncIterator[asyncpg.Connection]:
    async with filled_session(postgres_url, FILL_POSTGRES, analysed=request.param) as found:
        yield found


async def test_postgres_reads_the_newest_by_index(session: asyncpg.Connection) -> None:
    none = ", ".join(["''"] * 9)
    rare = "'', '', 'rare', '', '', '', '', '', ''"
    for filters in (none, rare):
        arguments = f"{ROWS}, {ROWS - 100}, 50, 1000000, {filters}"
        for plan in await plans(session, "read_recent", arguments):
            assert indexes(plan) == {"tape_journal_pkey"}
            assert not kinds(plan) & {"Seq Scan", "Sort", "Bitmap Heap Scan"}
    for plan in await plans(session, "read_recent_of_run", f"{ROWS}, 'r5', 50, 1000000, {none}"):
        assert indexes(plan) == {"tape_journal_run"}
        assert "Seq Scan" not in kinds(plan)
    for plan in await plans(session, "find_older", "100"):
        assert indexes(plan) == {"tape_journal_pkey"}
