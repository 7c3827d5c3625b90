"""The version before goes on working, and can be restarted, on a store that this one migrated."""

import asyncio
import io
import json
import os
import subprocess
import sys
import tarfile
from asyncio.subprocess import PIPE, Process
from pathlib import Path

import pytest

import tape
from tape.settings import Settings
from tape.settings.yaml_file import read_yaml
from tape.stores.by_url import upgrade_store
from tape.stores.migrations import RECORDED_FOR_ALL, Migration, load_migrations
from tests.unit.subscriptions.subscribed import message, subscribed

# The version to come from: v0.1.0. After a release this is the commit of that release.
BEFORE = "9b0322e3016c22e47acc8c3e35a22da0b1cbc9f5"
ROOT = Path(__file__).parents[3]
PROGRAM = Path(__file__).with_name("everything.py")
DRAWS = Path(__file__).with_name("draws.py")
LATER = "CREATE TABLE tape_later (number INTEGER)"


@pytest.fixture(scope="session")
def version_before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source of the version before."""
    git = ["git", "-C", str(ROOT), "archive", BEFORE, "src"]
    made = subprocess.run(git, capture_output=True, check=False)
    if made.returncode:
        pytest.skip(f"this clone does not have {BEFORE[:7]}: {made.stderr.decode().strip()}")
    folder = tmp_path_factory.mktemp("before")
    with tarfile.open(fileobj=io.BytesIO(made.stdout)) as source:
        source.extractall(folder, filter="data")
    return folder / "src"


async def started(source: Path, url: str, name: str, program: Path = PROGRAM) -> Process:
    """The program with the code in `source`, when it has the store open."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(program), url, name,
        env={**os.environ, "PYTHONPATH": str(source)}, stdin=PIPE, stdout=PIPE, stderr=PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    line = await process.stdout.readline()
    if line.decode().split() != ["ready", str(source / "tape")]:
        _out, err = await process.communicate()
        pytest.fail(f"{name} did not start: {err.decode()}")
    return process


async def finish(*processes: Process) -> None:
    outputs = await asyncio.gather(*(process.communicate(b"go\n") for process in processes))
    for process, (out, err) in zip(processes, outputs, strict=True):
        assert (process.returncode, out) == (0, b"done\n"), err.decode()


@pytest.fixture
def sqlite_url(new_sqlite_url: str) -> str:
    return new_sqlite_url


async def migrated(
    url: str, monkeypatch: pytest.MonkeyPatch, *more: Migration, with_post: bool = False
) -> None:
    """Bring a store of the version before to where this version has it, and beyond."""
    package = "tape.stores." + url.partition(":")[0]
    steps = [*load_migrations(package), *more]
    for known, post in ((steps[:RECORDED_FOR_ALL], False), (steps, with_post)):
        with monkeypatch.context() as patch:
            patch.setattr(f"{package}.migrate.load_migrations", lambda _package, k=known: k)
            await upgrade_store(url, Settings(), with_post=post)


async def test_it_starts_and_does_everything(
    store_url: str, version_before: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await migrated(store_url, monkeypatch, Migration(9000, "pre", "later", LATER))
    await finish(await started(version_before, store_url, "before"))


async def test_both_work_at_once(store_url: str, version_before: Path) -> None:
    """The old one has the store open when the new one migrates it."""
    before = await started(version_before, store_url, "before")
    now = await started(ROOT / "src", store_url, "now")
    await finish(before, now)


def test_its_settings_are_read(
    version_before: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    show = [sys.executable, "-c", "from tape.cli import main; main()", "config", "show"]
    env = {**os.environ, "PYTHONPATH": str(version_before)}
    shown = subprocess.run(show, env=env, cwd=tmp_path, capture_output=True, check=True)
    file = tmp_path / "tape.yaml"
    file.write_bytes(shown.stdout)
    read_yaml(file, Settings())
    (warning,) = caplog.messages
    assert warning.startswith(f"tape.reactors.timers ({file}, line ")


async def test_it_is_refused_after_a_post_step(
    store_url: str, version_before: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await migrated(store_url, monkeypatch, Migration(9000, "post", "gone", LATER), with_post=True)
    with pytest.raises(pytest.fail.Exception, match=r"migration \d+ \(\w+\).*upgrade tape-bus"):
        await started(version_before, store_url, "before")


async def test_it_is_refused_on_a_new_store(store_url: str, version_before: Path) -> None:
    await upgrade_store(store_url, Settings(), with_post=False)
    with pytest.raises(pytest.fail.Exception, match=r"\(draw_subjects\).*upgrade tape-bus"):
        await started(version_before, store_url, "before")


async def test_it_goes_on_with_the_draws_of_a_run_that_this_version_began(
    store_url: str, version_before: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await migrated(store_url, monkeypatch)
    await finish(await started(ROOT / "src", store_url, "begin", DRAWS))
    await finish(await started(version_before, store_url, "end", DRAWS))
    async with tape.connect_async(store_url) as client:
        (run,) = await client.list_runs()
        entries = await client.read_run(run.run_id)
    drawn = [entry.payload["response"] for entry in entries if entry.kind == "decision"]
    seen = json.loads(run.outcome_json)
    assert (len(drawn), drawn[0]) == (2, seen[0])


async def test_a_subscription_goes_on_after_it(
    store_url: str, version_before: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The version before knows no subscriptions: it leaves them, their runs and places alone."""
    await migrated(store_url, monkeypatch)
    async with subscribed(store_url) as desk:
        await desk.listen()
        (accepted,) = await desk.accept(message(1))
        token = desk.token
    await finish(await started(version_before, store_url, "before"))
    async with subscribed(store_url) as desk:
        desk.token = token
        again, new = await desk.accept(message(1), message(2))
        assert (again.outcome.value, again.run_id) == ("redelivered", accepted.run_id)
        assert new.outcome.value == "accepted"
        view = await desk.subscriptions.get_subscription("orders")
        assert (view.subscription.state, view.listener.accepted) == ("active", 2)
