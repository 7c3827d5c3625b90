"""`tape worker`: the reactions of a module, handled; what it refuses, and how it ends."""

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.integration.cli.command import Done, start, tape
from tests.integration.grpc.listening import document

STORE = ("--store", "sqlite:tape.db")
MODULE = """
import tape

@tape.on("/tape/event/recorded/order/**", num_shards=2, reaction_id="orders")
def handle(envelope):
    with open("handled", "a") as file:
        file.write(envelope["entity_id"] + "\\n")

@tape.on("/tape/event/recorded/order/**", publish="log:", reaction_id="out")
def _(): ...
"""
BEGINS = """
import tape

@tape.app("checkout")
async def checkout(ctx, order):
    return order

with tape.connect("sqlite:tape.db") as client:
    client.{begins}
"""
READY = [
    "task orders /tape/event/recorded/order/**",
    "publish out /tape/event/recorded/order/**",
]


@pytest.fixture
def folder(tmp_path: Path, sqlite_url: str) -> Path:
    (tmp_path / "handlers.py").write_text(MODULE)
    return tmp_path


@contextmanager
def working(folder: Path, *arguments: str, lines: int) -> Iterator[tuple[list[str], list[str]]]:
    """A worker that is ready, what it said by then, and, once it was asked to end, the rest."""
    process = start("worker", "-m", "handlers", *STORE, *arguments, folder=folder)
    rest: list[str] = []
    try:
        assert process.stdout is not None
        yield [process.stdout.readline().strip() for _ in range(lines)], rest
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=60)
        assert (process.returncode, err) == (0, "")
        rest += out.splitlines()
    finally:
        process.kill()
        process.communicate()


def record(folder: Path, name: str) -> Done:
    return tape("record", "order", "--entity", f"order/{name}", *STORE, folder=folder)


def await_done(folder: Path, count: int) -> None:
    """The journal's own stream is the clock: each look costs a process."""
    for _ in range(100):
        done = tape("tasks", "list", "--status", "done", "--json", *STORE, folder=folder)
        if len(done.records) >= count:
            return
    raise AssertionError(done.out + done.err)


def test_a_module_is_served_until_it_is_asked_to_end(folder: Path) -> None:
    with working(folder, "--http", "127.0.0.1:0", lines=3) as (ready, rest):
        assert ready[:2] == READY
        address = ready[2].removeprefix("http ")
        assert httpx.get(f"http://{address}/readyz", timeout=60).status_code == 200
        for name in ("a", "b", "c"):
            assert record(folder, name).code == 0
        await_done(folder, 6)
        scraped = httpx.get(f"http://{address}/metrics", timeout=60).text
        assert 'tape_task_attempts_total{outcome="done",reaction="orders"} 3.0' in scraped
    assert sorted((folder / "handled").read_text().split()) == ["a", "b", "c"]
    assert len(rest) == 3
    assert all('"specversion":"1.0"' in line for line in rest)


def test_probes_are_answered_to_anybody_and_metrics_are_not(folder: Path) -> None:
    doors = ("--http", "127.0.0.1:0", "--health", "0.0.0.0:0")
    with working(folder, *doors, lines=4) as (ready, _rest):
        assert ready[2].startswith("http 127.0.0.1:")
        host, _, port = ready[3].removeprefix("health ").rpartition(":")
        assert host == "0.0.0.0"
        for path, code in (("/healthz", 200), ("/readyz", 200), ("/metrics", 404)):
            answer = httpx.get(
                f"http://127.0.0.1:{port}{path}", headers={"host": "10.1.2.3"}, timeout=60
            )
            assert answer.status_code == code, path


def test_one_shard_leaves_the_others_alone(folder: Path) -> None:
    with working(folder, "--reaction", "orders", "--shard", "1", lines=1) as (ready, _rest):
        assert ready == READY[:1]
        for number in range(8):
            assert record(folder, str(number)).code == 0
        tasks = tape("tasks", "list", "--reaction", "orders", "--json", *STORE, folder=folder)
        while len(tasks.records) < 8:
            tasks = tape("tasks", "list", "--reaction", "orders", "--json", *STORE, folder=folder)
        mine = [task for task in tasks.records if task["shard"] == 1]
        assert 0 < len(mine) < 8
        await_done(folder, len(mine))
    left = tape("tasks", "list", "--reaction", "orders", "--json", *STORE, folder=folder).records
    assert {task["status"] for task in left if task["shard"] == 0} == {"pending"}
    assert {task["status"] for task in left if task["shard"] == 1} == {"done"}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "give a module that declares reactions or apps with -m"),
        (("-m", "nowhere"), "there is no module 'nowhere'"),
        (("-m", "json"), "there is nothing to do"),
        (("-m", "handlers", "--reaction", "other"), "'other' is not registered"),
        (("-m", "handlers", "--http", "0.0.0.0:0"), "token"),
        (("-m", "handlers", "--lease", "0"), "--lease"),
        (("-m", "handlers", "--shard", "-1"), "--shard"),
        (("-m", "handlers", "--pool", ""), "--pool is empty"),
        (("--bridge", "amqp://h/q"), "'amqp' is not a kind of target"),
    ],
)
def test_what_is_refused(folder: Path, arguments: tuple[str, ...], says: str) -> None:
    tape("reactions", "register", "x", "--pattern", "/**", "--task", *STORE, folder=folder)
    done = tape("worker", *arguments, *STORE, folder=folder)
    assert done.code != 0, done.out
    assert says in done.err
    assert len(done.err.splitlines()) == 1


def catches_sigterm(pid: int) -> bool:
    """As Linux tells."""
    status = Path(f"/proc/{pid}/status").read_text()
    caught = next(line for line in status.splitlines() if line.startswith("SigCgt:"))
    return bool(int(caught.split()[1], 16) & 1 << (signal.SIGTERM - 1))


def test_a_second_signal_does_not_wait(folder: Path) -> None:
    (folder / "handlers.py").write_text(
        "import tape, time\n"
        '@tape.on("/tape/event/recorded/order/**", reaction_id="slow")\n'
        'def handle(envelope):\n    open("begun", "w").close()\n    time.sleep(600)\n'
    )
    process = start("worker", "-m", "handlers", *STORE, "--grace", "600", folder=folder)
    try:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("task slow")
        record(folder, "a")
        while not (folder / "begun").exists():
            assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        while catches_sigterm(process.pid):  # two that come together are one
            assert process.poll() is None
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(1)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == -signal.SIGTERM
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize(
    "begins", ["run(checkout)", "start_run(checkout)", "start_run('checkout')"]
)
def test_a_module_that_begins_a_run_when_it_is_imported_is_refused(
    folder: Path, begins: str
) -> None:
    (folder / "checkout.py").write_text(BEGINS.format(begins=begins))
    done = tape("worker", "-m", "checkout", *STORE, folder=folder)
    assert done.code == 2
    assert done.err.startswith("error: module 'checkout' starts a run when it is imported")
    assert 'put that below `if __name__ == "__main__":`' in done.err
    listed = tape("runs", "--json", *STORE, folder=folder)
    assert listed.out == ""


def test_a_reaction_that_this_worker_cannot_serve_is_not_registered(folder: Path) -> None:
    (folder / "pager.py").write_text(
        "import tape\n"
        '@tape.on("/tape/task/dead_lettered/**", publish="https://pager.example/hooks/desk")\n'
        "def _(): ...\n"
    )
    done = tape("worker", "-m", "pager", *STORE, folder=folder)
    assert done.code == 2
    assert "pager.py:2" in done.err
    assert "put the secret into TAPE_WEBHOOK_SECRET" in done.err
    assert tape("reactions", "--json", *STORE, folder=folder).out == ""


def test_a_pool_of_listeners_that_no_subscription_has(tmp_path: Path, sqlite_url: str) -> None:
    text = document().replace("target: cloud-run", "pool: edge, target: cloud-run")
    store = ("--store", sqlite_url)
    assert tape("subscriptions", "register", "-", *store, folder=tmp_path, stdin=text).code == 0
    worker = start("worker", "--listen", "edgy", *store, folder=tmp_path)
    try:
        assert worker.stderr is not None
        line = worker.stderr.readline()
    finally:
        worker.terminate()
        worker.communicate(timeout=60)
    assert line.startswith(
        "WARNING:tape.subscriptions:no subscription has 'edgy' as its runtime.pool"
    )
    assert line.endswith("pools of subscriptions: edge. Did you mean 'edge'?\n")
