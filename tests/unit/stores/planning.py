"""How a store finds rows: the plans that a database makes for its statements."""

import contextlib
import json
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import asyncpg

from tape.settings import PostgresSettings, Settings
from tape.stores.by_url import open_store
from tape.stores.postgres.connection import connect_reader
from tape.stores.statements import load_statements

SQLITE = load_statements("tape.stores.sqlite")
POSTGRES = load_statements("tape.stores.postgres")
ROWS = 20_000


@contextlib.asynccontextmanager
async def sqlite_plans(path: Path, *fill: str) -> AsyncIterator[Callable[..., str]]:
    """The plan of a statement by name and parameters, on a new file."""
    await (await open_store(f"sqlite:{path}", Settings())).close()
    with contextlib.closing(sqlite3.connect(path)) as db:
        for statement in fill:
            db.execute(statement)
        db.commit()

        def plan(name: str, *params: object) -> str:
            rows = db.execute("EXPLAIN QUERY PLAN " + SQLITE[name], params)
            return "\n".join(row[3] for row in rows)

        yield plan


@contextlib.asynccontextmanager
async def filled_session(
    url: str, fill: Sequence[str], *, analysed: bool
) -> AsyncIterator[asyncpg.Connection]:
    """A session like the store's own, on a journal that is new or old to the planner."""
    await (await open_store(url, Settings())).close()
    session = await connect_reader(url, PostgresSettings())
    for statement in fill:
        await session.execute(statement)
    if analysed:
        await session.execute("VACUUM ANALYZE")
    yield session
    await session.close()


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for below in plan.get("Plans", []):
        yield from nodes(below)


async def plans(
    session: asyncpg.Connection, name: str, arguments: str
) -> list[list[dict[str, Any]]]:
    """The nodes of the plan made for these arguments, and of the one made for any."""
    found = []
    for mode in ("force_custom_plan", "force_generic_plan"):
        await session.execute(f"SET plan_cache_mode = {mode}")
        await session.execute(f"PREPARE plan AS {POSTGRES[name]}")
        call = f"({arguments})" if arguments else ""
        # Done, too: only then does it show what is done again for each row of a recursion.
        explain = f"EXPLAIN (FORMAT JSON, VERBOSE, ANALYZE) EXECUTE plan{call}"
        plan = json.loads(await session.fetchval(explain))
        found.append(list(nodes(plan[0]["Plan"])))
        await session.execute("DEALLOCATE plan")
    return found


def kinds(plan: list[dict[str, Any]]) -> set[str]:
    return {node["Node Type"] for node in plan}


def indexes(plan: list[dict[str, Any]]) -> set[str]:
    return {node["Index Name"] for node in plan if "Index Name" in node}
