"""Doctor, migrate and bench."""

import sqlite3
from pathlib import Path

import psycopg
import pytest

from tape.testing.server import ServerProcess
from tests.integration.cli.command import Done, tape

BENCHMARKS = """
from typing import NamedTuple

class Result(NamedTuple):
    bench: str = "append"
    unit: str = "events/s"
    ours: float = 2000.0
    against: str = "peer"
    theirs: float = 1000.0
    ratio: float = 2.0
    n: int = 5
    spread: float = 0.1
    bar: float = 1.5
    met: bool = True

AREAS = {"journal": None}

def run(area):
    yield Result(bench=area)
    yield Result(bench="slow", ratio=1.0, met=False)
"""


def _verdicts(done: Done) -> dict[str, str]:
    return {record["check"]: record["verdict"] for record in done.records}


def test_doctor_finds_a_store_in_order(store_url: str, tmp_path: Path) -> None:
    assert tape("migrate", "--store", store_url, folder=tmp_path).code == 0
    done = tape("doctor", "--store", store_url, "--json", folder=tmp_path)
    assert done.code == 0, done.out
    found = _verdicts(done)
    assert {"python", "store", "migrations", "predicates", "clock"} <= found.keys()
    durability = {"sqlite": {"journal_mode", "synchronous"},
                  "postgres": {"fsync", "synchronous_commit", "full_page_writes"}}  # fmt: skip
    assert durability[store_url.partition(":")[0]] <= found.keys()
    assert set(found.values()) == {"ok"}


def test_doctor_hides_passwords(postgres_url: str, tmp_path: Path) -> None:
    url = postgres_url.replace("postgres@", "postgres:s3cret@")
    assert "s3cret" not in tape("doctor", "--store", url, folder=tmp_path).out


def test_doctor_sees_a_server(sqlite_url: str, tmp_path: Path) -> None:
    with ServerProcess(sqlite_url) as server:
        done = tape("doctor", "--url", server.url, "--json", folder=tmp_path)
        assert (done.code, _verdicts(done)["server"]) == (0, "ok")
    done = tape("doctor", "--url", server.url, "--json", folder=tmp_path)
    assert (done.code, _verdicts(done)["server"]) == (1, "fail")


def test_doctor_leaves_another_applications_file_alone(tmp_path: Path) -> None:
    file = tmp_path / "theirs.db"
    with sqlite3.connect(file) as theirs:
        theirs.execute("CREATE TABLE customers (id INTEGER)")
    theirs.close()
    before = file.read_bytes()
    done = tape("doctor", "--store", f"sqlite:{file}", "--json", folder=tmp_path)
    assert (done.code, _verdicts(done)["store"]) == (1, "fail")
    assert file.read_bytes() == before


def test_doctor_warns_of_a_store_that_is_behind(postgres_url: str, tmp_path: Path) -> None:
    done = tape("doctor", "--store", postgres_url, "--json", folder=tmp_path)
    assert (done.code, _verdicts(done)["migrations"]) == (0, "warn")
    with psycopg.connect(postgres_url) as database:
        found = database.execute("SELECT count(*) FROM pg_tables WHERE tablename ~ '^tape_'")
        assert found.fetchone() == (0,)


@pytest.mark.parametrize("dialect", ["new_sqlite", "postgres"])
def test_migrate_says_what_is_applied(
    dialect: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    arguments = ("migrate", "--store", request.getfixturevalue(f"{dialect}_url"))
    before = tape(*arguments, "--status", "--json", folder=tmp_path).records
    assert {step["applied"] for step in before} == {False}
    made = tape(*arguments, "--post", folder=tmp_path)
    assert "applied journal" in made.out
    assert made.err.startswith("created ")
    assert "is up to date" in tape(*arguments, folder=tmp_path).out
    after = tape(*arguments, "--status", "--json", folder=tmp_path).records
    assert {step["applied"] for step in after} == {True}


@pytest.mark.parametrize("as_json", [True, False], ids=["json", "table"])
def test_bench_prints_and_writes_results(as_json: bool, tmp_path: Path) -> None:
    (tmp_path / "benchmarks.py").write_text(BENCHMARKS)
    options = ["--json"] if as_json else []
    done = tape("bench", "journal", *options, "--out", "r.jsonl", folder=tmp_path)
    assert done.code == 1, "a bar was missed"
    written = Done(0, (tmp_path / "r.jsonl").read_text(), "")
    assert [record["bench"] for record in written.records] == ["journal", "slow"]
    if as_json:
        assert done.records == written.records
    else:
        assert "missed" in done.out


def test_bench_names_its_areas(tmp_path: Path) -> None:
    (tmp_path / "benchmarks.py").write_text(BENCHMARKS)
    done = tape("bench", "nosuch", folder=tmp_path)
    assert (done.code, done.out) == (2, "")
    assert "'nosuch' is no area; there are journal, all" in done.err


def test_a_fault_of_ours_is_one_line_too(tmp_path: Path) -> None:
    (tmp_path / "benchmarks.py").write_text("AREAS = ()\ndef run(area): raise KeyError('odd')")
    done = tape("bench", "all", folder=tmp_path)
    assert (done.code, len(done.err.splitlines())) == (1, 1)
    assert "unexpected KeyError" in done.err
    assert "Traceback" in tape("--verbose", "bench", "all", folder=tmp_path).err


def test_bench_needs_a_checkout(tmp_path: Path) -> None:
    done = tape("bench", "all", folder=tmp_path)
    assert (done.code, done.out) == (1, "")
    assert "there is no benchmarks package here" in done.err
