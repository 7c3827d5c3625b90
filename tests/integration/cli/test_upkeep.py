"""Doctor, migrate and bench."""

import asyncio
import contextlib
import json
import sqlite3
from pathlib import Path

import psycopg
import pytest

import tape as package
from tape.subscriptions.operations import HoldSubscription
from tests.integration.cli.command import Done, tape
from tests.servers.tape_server import ServerProcess
from tests.unit.subscriptions.subscribed import document, message, subscribed

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


def _change(store_url: str, *statements: str) -> None:
    """Behind the store's back."""
    if store_url.startswith("sqlite:"):
        with contextlib.closing(sqlite3.connect(store_url.removeprefix("sqlite:"))) as db, db:
            for statement in statements:
                db.execute(statement)
        return
    with psycopg.connect(store_url, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement.encode())


BEHIND = {
    "sqlite": ["UPDATE sqlite_sequence SET seq = 1 WHERE name = 'tape_journal'"],
    "gone": ["DELETE FROM sqlite_sequence"],
    "postgres": ["SELECT setval('tape_global_seq', 1)"],
}


@pytest.mark.parametrize("how", BEHIND)
def test_a_sequence_that_is_behind_is_found_and_mended(
    how: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    fixture = "postgres_url" if how == "postgres" else "sqlite_url"
    store_url: str = request.getfixturevalue(fixture)
    for _ in range(3):
        assert tape("record", "a", "--store", store_url, folder=tmp_path).code == 0
    _change(store_url, *BEHIND[how])
    assert tape("record", "a", "--store", store_url, folder=tmp_path).code == 1
    done = tape("doctor", "--store", store_url, "--json", folder=tmp_path)
    assert (done.code, _verdicts(done)["sequences"]) == (1, "fail")
    (finding,) = [record for record in done.records if record["check"] == "sequences"]
    assert "3 is in use" in finding["found"]
    assert "tape migrate" in finding["advice"]
    mended = tape("migrate", "--store", store_url, folder=tmp_path)
    assert " to 3\n" in mended.out
    assert tape("migrate", "--store", store_url, folder=tmp_path).out.endswith("is up to date\n")
    assert tape("record", "a", "--store", store_url, folder=tmp_path).out.startswith(
        "recorded as 4"
    )
    assert tape("doctor", "--store", store_url, folder=tmp_path).code == 0


@pytest.mark.parametrize("broken", ["tape_journal_run", "tape_journal", "tape_runs"])
def test_doctor_checks_the_file(sqlite_url: str, tmp_path: Path, broken: str) -> None:
    for _ in range(3):
        tape("record", "a", "--payload", json.dumps("x" * 9_000), "--store", sqlite_url,
             folder=tmp_path)  # fmt: skip
    path = Path(sqlite_url.removeprefix("sqlite:"))
    assert _verdicts(_doctor(sqlite_url, tmp_path))["quick_check"] == "ok"
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        (root,) = db.execute(
            "SELECT rootpage FROM sqlite_master WHERE name = ?", (broken,)
        ).fetchone()
        (size,) = db.execute("PRAGMA page_size").fetchone()
    with path.open("r+b") as file:
        file.seek((root - 1) * size)
        file.write(b"\xff" * 100)
    done = _doctor(sqlite_url, tmp_path)
    assert (done.code, _verdicts(done)["quick_check"]) == (1, "fail")
    assert _verdicts(done)["migrations"] == "ok"


def test_doctor_tells_what_else_it_found_if_the_work_cannot_be_read(
    sqlite_url: str, tmp_path: Path
) -> None:
    tape("record", "a", "--store", sqlite_url, folder=tmp_path)
    with contextlib.closing(sqlite3.connect(sqlite_url.removeprefix("sqlite:"))) as db, db:
        db.execute("DROP TABLE tape_event_drain_state")
    done = _doctor(sqlite_url, tmp_path)
    verdicts = _verdicts(done)
    assert (done.code, verdicts["work"], verdicts["quick_check"]) == (1, "fail", "ok")


def _doctor(store_url: str, folder: Path) -> Done:
    return tape("doctor", "--store", store_url, "--json", folder=folder)


WORK = (
    "drainers", "dead letters", "waiting runs", "subscriptions", "dead messages", "credentials",
)  # fmt: skip
LONG_AGO = (
    "UPDATE tape_subscriptions SET changed_at_ms = 1 WHERE name = 'alone'",
    "UPDATE tape_listeners SET lease_expires_at_ms = 2 WHERE name = 'alone'",
    "UPDATE tape_reaction_tallies SET dead_letters = 2 WHERE reaction_id = 'r'",
    "UPDATE tape_event_drain_state SET waiting_since_ms = 1 WHERE drainer_id = 'waiting'",
    "UPDATE tape_journal SET ts_ms = 1 WHERE kind = 'run'",
)


def test_doctor_names_what_is_halted_given_up_or_waits(store_url: str, tmp_path: Path) -> None:
    async def fill() -> None:
        async with package.connect_async(store_url) as client:
            await client.subscribe_events("a", "nobody", drainer="waiting")
            await client.subscribe_events("a", "x", drainer="halted", input={"n": "$.payload.n"})
            await client.register_reaction("r", "/tape/event/recorded/a/**")
            await client.record("a", {})
            await client.drain("waiting", await_s=0)
            assert (await client.drain("halted")).error
        async with subscribed(store_url) as desk:  # which looks at no source and no wallet
            await desk.listen(document("alone", runtime={"pool": "iot"}), "alone")
            await desk.listen()
            await desk.accept(message(1, b"not json"))
            report = HoldSubscription("orders", "me", 60_000, desk.token, last_error="it is away")
            await desk.subscriptions.hold_subscription(report)
            await desk.push()

    asyncio.run(fill())
    _change(store_url, *LONG_AGO)
    away = {  # nobody is there, and what cannot be asked takes no other finding away
        "TAPE_WALLET_KMS": "aws:alias/tape", "AWS_ENDPOINT_URL": "http://127.0.0.1:9",
        "AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x", "AWS_DEFAULT_REGION": "eu-west-1",
    }  # fmt: skip
    without_kms = tape("doctor", "--store", store_url, "--json", folder=tmp_path, **away)
    assert {record["check"] for record in without_kms.records} >= {*WORK}
    with ServerProcess(store_url, "--no-listen") as server:
        for where in (("--store", store_url), ("--url", server.url)):
            findings = {
                record["check"]: record
                for record in tape("doctor", *where, "--json", folder=tmp_path).records
            }
            for words in ("halted is halted at", "waiting has waited", "of app nobody in pool"):
                assert words in findings["drainers"]["found"]
            assert findings["dead letters"]["found"] == "2 of r"
            assert "1 of nobody in pool shared" in findings["waiting runs"]["found"]
            troubles = findings["subscriptions"]["found"]
            assert "alone: no listener of iot for " in troubles
            assert "orders: it is away" in troubles
            assert "hooks" not in troubles  # nobody holds what is pushed
            assert findings["dead messages"]["found"] == "1 of orders"
            missing = findings["credentials"]["found"]
            assert "nats_main of alone; nats_main of orders" in missing
            assert "hook_secret of hooks" in missing
            warned = {findings[name]["verdict"] for name in WORK}
            assert warned == {"warn"}
