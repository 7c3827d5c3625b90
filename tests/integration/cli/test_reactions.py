"""Reactions, tasks and dead letters through the command."""

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest

import tape as tape_package
from tape.bus import Bus
from tape.cli.root import run
from tests.integration.cli.command import Done, start, tape

ORDERS = "/tape/event/recorded/order.placed/**"


@pytest.fixture
def command(sqlite_url: str, tmp_path: Path) -> Any:
    def typed(*arguments: str, stdin: str = "") -> Done:
        return tape(*arguments, "--store", sqlite_url, folder=tmp_path, stdin=stdin)

    return typed


@pytest.fixture
def busy(sqlite_url: str) -> str:
    """A journal with a reaction that has one task of each kind, and a predicate that errs."""
    asyncio.run(_make_busy(sqlite_url))
    return sqlite_url


async def _make_busy(url: str) -> None:
    async with tape_package.connect_async(url) as client:
        bus = client._operations
        assert isinstance(bus, Bus)
        bus.start_matching()
        await client.register_reaction("orders", ORDERS, max_concurrency=9, retry_max=2)
        await client.register_reaction("large", ORDERS, predicate="payload.total > 50.0")
        for total in (10.0, 20.0, 30.0, 90.0):
            await client.record("order.placed", {"total": total}, entity_id="7")
        await client.record("order.placed", {"sum": 1})
        tasks: list[tape_package.Task] = []
        while len(tasks) < 5:
            tasks += await client.claim_tasks("orders", owner="desk-1", wait_ms=10_000)
        done, retried, dead, other, _held = (task.task_id for task in tasks)
        await client.complete_task(done, owner="desk-1")
        await client.nack_task(retried, owner="desk-1", error="later")
        await client.nack_task(dead, owner="desk-1", error="no such\ncustomer", permanent=True)
        await client.nack_task(other, owner="desk-1", error="bad", permanent=True)
        head, heard = (await client.info()).head_global_seq, 0
        while min(state.position for state in await client.list_reactions()) < head:
            heard = await bus.tasks.listen_for_tasks(["orders"], heard, 200)


def test_registering_showing_and_taking_back(command: Any) -> None:
    made = command(
        "reactions", "register", "large", "--pattern", ORDERS, "--where", "payload.total > 50.0",
        "--task", "--retry-max", "0", "--max-concurrency", "4", "--from", "start", "--json",
    )  # fmt: skip
    (record,) = made.records
    assert (record["reaction_id"], record["handler_kind"]) == ("large", "task")
    assert (record["retry_max"], record["max_concurrency"], record["num_shards"]) == (0, 4, 1)
    said = command("reactions", "register", "audit", "--pattern", "/**", "--agent", "auditor")
    assert said.out == "audit is registered: /** → agent auditor\n"
    login = command(
        "reactions", "register", "out", "--pattern", "/**", "--publish", "nats://ada:hunter2@h:1/a"
    )
    assert (login.code, "TAPE_NATS_USER" in login.err, "hunter2" in login.err) == (2, True, False)
    target = "https://hooks.example/hunter2"
    hidden = command("reactions", "register", "out", "--pattern", "/**", "--publish", target)
    assert hidden.out == "out is registered: /** → publish https://hooks.example\n"
    listed = command("reactions", "list", "--json").records
    assert [each["reaction_id"] for each in listed] == ["audit", "large", "out"]
    assert "hunter2" not in command("reactions", "list").out + str(listed)
    assert [r["reaction_id"] for r in command("reactions", "list", ORDERS, "--json").records] == [
        "audit", "large", "out",
    ]  # fmt: skip
    (shown,) = command("reactions", "show", "large", "--json").records
    assert (shown["predicate_cel"], shown["lag"], shown["in_hand"]) == (
        "payload.total > 50.0", 0, [],
    )  # fmt: skip
    assert command("reactions", "deregister", "audit").out == "audit is deregistered\n"
    gone = command("reactions", "deregister", "audit")
    assert (gone.code, gone.err) == (1, "error: no reaction audit\n")


def test_a_listing_says_how_reactions_are_doing(busy: str, command: Any) -> None:
    large, orders = command("reactions", "list", "--json").records
    assert (orders["matched"], orders["pending"], orders["claimed"]) == (5, 1, 1)
    assert (orders["dead_letters"], orders["lag"], large["predicate_errors"]) == (2, 0, 1)
    assert "total" in large["last_error"]
    header, *rows = command("reactions", "list").out.splitlines()
    assert header.split() == [
        "REACTION", "WORK", "PATTERN", "LAG", "PENDING", "CLAIMED", "DEAD", "ERRORS",
    ]  # fmt: skip
    assert "s by desk-1" in rows[1]
    assert "1, last: " in rows[0]
    shown = command("reactions", "show", "orders").out
    assert "dead_letters      2" in shown
    assert "claimed           orders/0/5: " in shown
    assert "by desk-1, " in shown


def test_tasks(busy: str, command: Any) -> None:
    found = command("tasks", "list", "--json").records
    assert {(task["task_id"], task["status"]) for task in found} == {
        ("large/0/4", "pending"),
        ("orders/0/1", "done"),
        ("orders/0/2", "pending"),
        ("orders/0/3", "dlq"),
        ("orders/0/4", "dlq"),
        ("orders/0/5", "claimed"),
    }
    (claimed,) = command("tasks", "list", "--status", "claimed", "--json").records
    assert (claimed["lease_owner"], claimed["entry"]["payload"]) == ("desk-1", {"sum": 1})
    assert len(command("tasks", "list", "--reaction", "large", "--json").records) == 1
    assert len(command("tasks", "list", "--limit", "2", "--json").records) == 2
    header, row = command("tasks", "list", "--status", "claimed").out.splitlines()
    assert header.split()[:4] == ["TASK", "STATUS", "ATTEMPTS", "SINCE"]
    assert row.startswith("orders/0/5  claimed")
    assert "by desk-1" in row
    assert "waiting" in command("tasks", "list", "--reaction", "large").out
    shown = command("tasks", "show", "orders/0/3").out.splitlines()
    assert shown[0] == "task        orders/0/3"
    assert 'payload     {"total":30.0}' in shown
    assert r"last error  no such\ncustomer" in shown
    assert command("tasks", "show", "orders/0/99").err == "error: no task orders/0/99\n"


def test_dead_letters(busy: str, command: Any) -> None:
    assert len(command("dlq", "list", "--json").records) == 2
    assert command("dlq", "list", "large", "--json").records == []
    assert "no such customer" in command("dlq", "list", "orders").out
    assert command("dlq", "show", "orders/0/3", "--json").records[0]["status"] == "dlq"

    replayed = command("dlq", "replay", "orders", "orders/0/3")
    assert replayed.out == "1 dead letter queued again\n"
    again = command("dlq", "replay", "orders", "orders/0/3")
    assert (again.code, again.err) == (
        1, "error: none of these tasks is a dead letter of that reaction\n",
    )  # fmt: skip
    kept = command("dlq", "drop", "orders", "--all", stdin="n\n")
    assert (kept.code, kept.out) == (1, "")
    assert "Drop all dead letters of orders for good?" in kept.err
    assert "nothing was dropped" in kept.err
    unanswered = command("dlq", "drop", "orders", "--all")
    assert (unanswered.code, "give --yes" in unanswered.err) == (2, True)
    assert command("dlq", "drop", "orders", "orders/0/4", stdin="y\n").out == (
        "1 dead letter dropped\n"
    )
    assert command("dlq", "drop", "orders", "--all", "--yes", "--json").records == [{"count": 0}]
    assert command("dlq", "replay", "orders", "--all").out == "0 dead letters queued again\n"
    (dropped,) = command("tasks", "list", "--status", "failed", "--json").records
    assert dropped["task_id"] == "orders/0/4"


def test_with_a_server(tmp_path: Path, sqlite_url: str) -> None:
    with start("serve", "--grpc", "127.0.0.1:0", "--http", "127.0.0.1:0", "--store", sqlite_url,
               folder=tmp_path) as server:  # fmt: skip
        assert server.stdout is not None
        url = "tape://" + server.stdout.readline().split()[1]
        folder = tmp_path
        tape("reactions", "register", "r", "--pattern", "/tape/event/**", "--task", "--url", url,
             folder=folder)  # fmt: skip
        tape("record", "a", "--url", url, folder=folder)
        (listed,) = tape("reactions", "list", "--json", "--url", url, folder=folder).records
        assert listed["reaction_id"] == "r"
        found: list[dict[str, Any]] = []
        while not found:
            found = tape("tasks", "list", "--json", "--url", url, folder=folder).records
        assert found[0]["task_id"] == "r/0/1"
        server.terminate()
        assert server.wait(30) == 0


STORE = ["--store", "sqlite:a.db"]
REGISTER = ["reactions", "register", "r", *STORE, "--pattern"]
WRONG = [
    ([*REGISTER, "/**"], "give one of --task, --agent APP and --publish TARGET"),
    ([*REGISTER, "/**", "--task", "--agent", "a"], "give one of --task"),
    ([*REGISTER, "/tape", "--task"], "--pattern at position 5"),
    ([*REGISTER, "/**", "--task", "--where", "1 +"], "--where at position 3"),
    ([*REGISTER, "/**", "--task", "--max-concurrency", "0"], "--max-concurrency: 0 is not in 1.."),
    ([*REGISTER, "/**", "--task", "--retry-max", "x"], "'x' is not a valid integer"),
    ([*REGISTER, "/**", "--task", "--from", "99"], "--from: 99 is beyond the end"),
    ([*REGISTER, "/**", "--task", "--engine", "x"], "'x' is not one of server, spark"),
    ([*REGISTER, "/**", "--agent", ""], "--agent: is required"),
    ([*REGISTER, "/**", "--publish", "pigeon://x"], "--publish"),
    (["reactions", "register", "", *STORE, "--pattern", "/**", "--task"], "ID is empty"),
    (["reactions", "register", "r", "--task"], "Missing option '--pattern'"),
    (["tasks", "list", "--status", "lost"], "'lost' is not one of"),
    (["tasks", "list", "--limit", "0"], "0 is not in the range"),
    (["dlq", "replay", "r", *STORE], "give TASK_IDs or --all"),
    (["dlq", "drop", "r", "r/0/1", "--all", *STORE], "give TASK_IDs or --all"),
    (["dlq", "replay", "r", "q/0/1", *STORE], "'q/0/1' is not a task of 'r'"),
]


@pytest.mark.parametrize(
    ("arguments", "message"), WRONG, ids=[" ".join(words)[:60] for words, _ in WRONG]
)
def test_wrong_input_is_refused(
    arguments: list[str],
    message: str,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    made_store: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copy(made_store, "a.db")
    for name in ("TAPE_URL", "TAPE_STORE", "TAPE_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    code = run(arguments)
    printed = capfd.readouterr()
    assert printed.err.startswith("error: ")
    assert message in printed.err.splitlines()[0]
    assert (code, printed.out) == (2, "")


@pytest.mark.parametrize(
    ("ms", "said"),
    [
        (-5, "0s"), (59_999, "59s"), (61_000, "1m 1s"), (3_600_000, "1h 0m"),
        (90_061_000, "1d 1h"),
    ],
)  # fmt: skip
def test_lengths_of_time(ms: int, said: str) -> None:
    from tape.cli.output import span

    assert span(ms) == said
