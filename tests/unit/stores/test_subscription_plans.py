"""What accepting and removing cost does not depend on how much was accepted before."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import asyncpg
import pytest

from tests.unit.stores.planning import ROWS, filled_session, indexes, kinds, plans, sqlite_plans

PLACE = "INSERT INTO tape_accepted_places SELECT 's', 'nats/a@1/' || i, 'r', i, i FROM "
KEY = "INSERT INTO tape_seen_keys SELECT 's', 'r', 'k' || i, 'r', 'p', i, i FROM "
LETTER = """INSERT INTO tape_subscription_dead_letters
SELECT 's', 'l' || i, 'p', 'm', 'not_json', '', 1, 1, 'nats', 'o', '1', '', 0, '', '[]', '' FROM """
POSITION = "INSERT INTO tape_passed_positions SELECT 's', 'o' || i, 'r', i, i FROM "
SERIES = f"generate_series(1, {ROWS}) i"
NUMBERS = f"""(WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {ROWS})
SELECT i FROM n)"""
FILLS = (PLACE, KEY, LETTER, POSITION)

PLACE_KEY = "PRIMARY KEY (subscription=? AND place=?)"
AGE = "INDEX tape_accepted_places_age (subscription=? AND accepted_at_ms<?)"
POSITION_KEY = "PRIMARY KEY (subscription=? AND origin=?)"


@pytest.fixture
async def sqlite_plan(tmp_path: Path) -> AsyncIterator[Callable[..., str]]:
    fills = [fill + NUMBERS for fill in FILLS]
    async with sqlite_plans(tmp_path / "tape.db", *fills) as plan:
        yield plan


@pytest.mark.parametrize(
    ("name", "params", "expected"),
    [
        ("load_subscriptions", ("[]",), ["PRIMARY KEY (name=?)"]),
        ("load_listeners", ("[]",), ["PRIMARY KEY (name=?)"]),
        ("load_gateway_paths", ("[]",), ["PRIMARY KEY (gateway_path=?)"]),
        ("load_accepted_places", ("[]",), [PLACE_KEY]),
        ("load_seen_keys", ("[]",), ["PRIMARY KEY (subscription=? AND rule=? AND key=?)"]),
        ("load_passed_positions", ("[]",), [POSITION_KEY]),
        ("load_subscription_dead_letters", ("[]",), ["(subscription=? AND letter_id=?)"]),
        ("delete_subscription_dead_letters", ("[]",), ["(subscription=? AND letter_id=?)"]),
        ("get_subscription", ("s",), ["PRIMARY KEY (name=?)", "(name=? AND revision=?)"]),
        ("get_subscription_revision", ("s", 1), ["(name=? AND revision=?)"]),
        ("list_subscription_dead_letters", ("s", "l5", 9), ["(subscription=? AND letter_id>?)"]),
        ("prune_passed_places", ("s", 99, "r", 9), [PLACE_KEY, AGE, POSITION_KEY]),
        ("prune_old_places", ("s", 99, "", "", 9), [PLACE_KEY, AGE, POSITION_KEY]),
        ("prune_keys", (99, 9), ["INDEX tape_seen_keys_until (until_ms<?)"]),
        ("prune_passed_positions", ("s", 99, 9), [POSITION_KEY]),
        ("purge_places", ("s", 9), [PLACE_KEY]),
        ("purge_keys", ("s", 9), ["PRIMARY KEY (subscription=? AND rule=? AND key=?)"]),
        ("purge_positions", ("s", 9), [POSITION_KEY]),
        ("purge_letters", ("s", 9), ["(subscription=? AND letter_id=?)"]),
        ("purge_listener", ("s",), ["PRIMARY KEY (name=?)", "(subscription=?)"]),
    ],
)
def test_sqlite_finds_rows_by_their_keys(
    sqlite_plan: Callable[..., str], name: str, params: tuple[object, ...], expected: list[str]
) -> None:
    plan = sqlite_plan(name, *params)
    for each in expected:
        assert each in plan
    assert "SCAN tape_" not in plan
    assert "TEMP B-TREE" not in plan


@pytest.fixture(params=[False, True], ids=["new", "analysed"])
async def session(
    request: pytest.FixtureRequest, postgres_url: str
) -> AsyncIterator[asyncpg.Connection]:
    fills = [fill + SERIES for fill in FILLS]
    async with filled_session(postgres_url, fills, analysed=request.param) as found:
        yield found


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("load_accepted_places", "'{s}', '{nats/a@1/5}'", {"tape_accepted_places_pkey"}),
        ("load_seen_keys", "'{s}', '{r}', '{k5}'", {"tape_seen_keys_pkey"}),
        ("load_passed_positions", "'{s}', '{o5}'", {"tape_passed_positions_pkey"}),
        (
            "list_subscription_dead_letters",
            "'s', 'l5', 9, 1000",
            {"tape_subscription_dead_letters_pkey"},
        ),
        ("prune_passed_places", "'s', 1, 'r', 9", {"tape_accepted_places_age"}),
        ("prune_old_places", "'s', 1, '', '', 9", {"tape_accepted_places_age"}),
        ("prune_keys", "9", {"tape_seen_keys_until"}),
    ],
)
async def test_postgres_finds_rows_by_their_keys(
    session: asyncpg.Connection, name: str, arguments: str, expected: set[str]
) -> None:
    for plan in await plans(session, name, arguments):
        large = {"tape_accepted_places", "tape_seen_keys", "tape_subscription_dead_letters"}
        scanned = {
            node["Relation Name"]
            for node in plan
            if node["Node Type"] == "Seq Scan" and "Relation Name" in node
        }
        assert not scanned & large
        assert expected <= indexes(plan)
        assert "Sort" not in kinds(plan) or name.startswith("load_")


async def test_postgres_keeps_the_versions_of_a_listener_on_its_page(
    session: asyncpg.Connection,
) -> None:
    """Its row is written with each batch that it accepts."""
    columns = await session.fetchval(
        "SELECT string_agg(CASE data_type WHEN 'text' THEN '''x''' ELSE '1' END, ', ' "
        "ORDER BY ordinal_position) FROM information_schema.columns "
        "WHERE table_name = 'tape_listeners'"
    )
    await session.execute(f"INSERT INTO tape_listeners VALUES ({columns})")
    for n in range(500):
        await session.execute(
            "UPDATE tape_listeners SET accepted = $1, last_error = $2", n, "e" * 400
        )
    await session.execute("SELECT pg_stat_force_next_flush()")
    (found,) = await session.fetch(
        "SELECT n_tup_hot_upd, n_tup_upd FROM pg_stat_user_tables WHERE relname = 'tape_listeners'"
    )
    hot, all_of_them = found
    assert all_of_them >= 500
    assert hot >= 0.95 * all_of_them
    assert await session.fetchval("SELECT pg_relation_size('tape_listeners')") <= 8 * 8192
