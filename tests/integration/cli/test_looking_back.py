"""The newest entries, those since a time and of a type; one entry with its causes and effects."""

import asyncio
import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

import tape as tape_package
from tape.cli.newest import position_before, read_newest
from tape.model.reaction import HandlerKind, NewReaction
from tape.model.subject import parse_pattern
from tape.model.task import ANY_SHARD
from tape.ports.ledger import RecentEntries, RecentQuery
from tape.ports.tasks import Claim, Want
from tape.predicates import check
from tape.programs.connect import open_bus
from tests.integration.cli.command import Done, start, tape
from tests.servers.tape_server import ServerProcess

TYPES = ("order.placed", "order.filled", "price.changed", "order.placed.late")


@pytest.fixture(params=["sqlite", "migrated_postgres", "server"])
def where(request: pytest.FixtureRequest, sqlite_url: str) -> Iterator[list[str]]:
    """The options that name the journal."""
    if request.param != "server":
        yield ["--store", request.getfixturevalue(f"{request.param}_url")]
        return
    with ServerProcess(sqlite_url) as server:
        yield ["--url", server.url]


def record(count: int, where: list[str], folder: Path) -> None:
    events = [{"event_type": TYPES[n % 4], "payload": {"n": n}} for n in range(1, count + 1)]
    lines = "\n".join(map(json.dumps, events))
    assert tape("record", "--batch", "-", *where, folder=folder, stdin=lines).code == 0


def test_the_newest(where: list[str], tmp_path: Path) -> None:
    record(2_500, where, tmp_path)
    tape("values", "set", "n", "k", "1", *where, folder=tmp_path)

    def tail(*options: str) -> list[int]:
        shown = tape("tail", "--no-follow", "--json", *options, *where, folder=tmp_path)
        assert (shown.code, shown.err) == (0, "")
        return [record["global_seq"] for record in shown.records]

    assert tail("--last", "3") == [2499, 2500, 2501]
    assert tail("--last", "2", "--type", "order.*") == [2499, 2500]
    assert tail("--last", "2", "--type", "order.placed") == [2496, 2500]
    assert tail("--last", "2", "--type", "*.late") == [2495, 2499]
    assert tail("--last", "2", "--type", "*") == [2499, 2500]
    assert tail("--last", "2", "--where", "payload.n < 10", "--type", "price.*") == [2, 6]
    assert tail("/tape/event/recorded/order.filled", "--last", "1") == []
    assert tail("/tape/event/recorded/order.filled/**", "--last", "1") == [2497]
    assert tail("--last", "9", "--limit", "2") == [2493, 2494]
    assert tail("--last", "5000") == list(range(1, 2502))
    assert len(tail("--type", "price.*")) == 625
    assert tail("--since", "1d", "--type", "order.placed", "--last", "1") == [2500]
    assert len(tail("--since", "1d")) == 2_501
    assert tail("--since", "2999-01-01") == []
    assert tail("--since", "0", "--last", "4") == []


def test_then_what_comes(where: list[str], tmp_path: Path) -> None:
    record(8, where, tmp_path)
    arguments = ("tail", "--last", "2", "--type", "order.*", "--json", *where)
    with start(*arguments, folder=tmp_path) as tail:
        assert tail.stdout is not None
        shown = [json.loads(tail.stdout.readline())["global_seq"] for _ in range(2)]
        assert shown == [7, 8]
        tape("record", "price.changed", *where, folder=tmp_path)
        tape("record", "order.placed", *where, folder=tmp_path)
        assert json.loads(tail.stdout.readline())["global_seq"] == 10
        tail.send_signal(signal.SIGINT)
        out, err = tail.communicate(timeout=30)
    assert (tail.returncode, out, err) == (0, "", "")


def test_what_does_not_go_together(sqlite_url: str, tmp_path: Path) -> None:
    def refused(*options: str) -> str:
        done = tape("tail", *options, "--store", sqlite_url, folder=tmp_path)
        assert (done.code, done.out) == (2, "")
        return done.err

    assert "--from does not go with --last or --since" in refused("--from", "3", "--last", "1")
    assert "'yesterday' is neither an age such as 10m" in refused("--since", "yesterday")


async def test_what_is_older_is_not_read(sqlite_url: str) -> None:
    bus = await open_bus(sqlite_url)
    try:
        for _ in range(20):
            await bus.record_events([tape_package.event("tick", n) for n in range(100)])
        asked: list[RecentQuery] = []
        recent = bus.ledger.recent

        async def counted(query: RecentQuery) -> RecentEntries:
            asked.append(query)
            return await recent(query)

        bus.ledger.recent = counted  # type: ignore[method-assign]
        everything = parse_pattern("/**")
        newest = await read_newest(
            bus, 3, head=2000, after=0, pattern=everything, predicate=check("")
        )
        assert [entry.global_seq for entry in newest.entries] == [1998, 1999, 2000]
        assert [query.limit for query in asked] == [3]
        asked.clear()
        chosen = await read_newest(
            bus, 3, head=2000, after=0, pattern=everything, predicate=check("payload >= 97")
        )
        assert [entry.payload for entry in chosen.entries] == [97, 98, 99]
        assert len(asked) == 1
        asked.clear()
        middle = (await recent(RecentQuery(1001, 1))).entries[0].ts_ms
        before = await position_before(bus, middle, 2000)
        assert before < 1000
        assert (await recent(RecentQuery(before + 2, 1))).entries[0].ts_ms == middle
        assert len(asked) <= 12
        assert await position_before(bus, 0, 2000) == 0
        assert await position_before(bus, 2**62, 2000) == 2000
    finally:
        await bus.close()


def _show(seq: int, where: list[str], folder: Path, *options: str) -> Done:
    return tape("show", str(seq), *options, *where, folder=folder)


def test_one_entry_with_its_causes_and_effects(where: list[str], tmp_path: Path) -> None:
    url = where[1]
    with tape_package.connect(url) as client:
        pattern = "/tape/event/recorded/order.placed/**"
        client.register_reaction(NewReaction("large-orders", pattern, HandlerKind.TASK))
        client.subscribe_events("order.placed", "checkout", subscription_id="check")
        first = client.record("cart.filled", {"n": 1})
        second = client.record("order.placed", {"n": 2}, caused_by=first.event_id)
        third = client.record("order.paid", {"n": 3}, caused_by=second.event_id)
        if where[0] == "--store":
            asyncio.run(_match(url))
        else:
            assert client.claim_tasks("large-orders", owner="me", wait_ms=30_000)
        client.drain(await_s=0)
    (shown,) = _show(second.global_seq, where, tmp_path, "--json").records
    assert (shown["global_seq"], shown["payload"]) == (second.global_seq, {"n": 2})
    assert [entry["global_seq"] for entry in shown["causes"]] == [first.global_seq]
    caused = [entry["global_seq"] for entry in shown["effects"] if entry["kind"] == "event"]
    assert caused[0] == third.global_seq
    assert [task["reaction_id"] for task in shown["tasks"]] == ["large-orders"]
    assert [run["app_name"] for run in shown["runs"]] == ["checkout"]
    lines = _show(second.global_seq, where, tmp_path).out.splitlines()
    words = [line.split(maxsplit=2) for line in lines]
    assert ["entry", str(second.global_seq)] in words
    assert any(line.startswith(f"caused by        {first.global_seq} /tape/") for line in lines)
    assert any(line.startswith(f"caused           {third.global_seq} /tape/") for line in lines)
    assert any(line.startswith("task             large-orders/0/") for line in lines)
    assert any(line.startswith("run  ") and "checkout in pool shared" in line for line in lines)


async def _match(url: str) -> None:
    """As a server does, until there is a task."""
    bus = await open_bus(url)
    try:
        bus.start_matching()
        claim = Claim("me", 60_000, [Want("large-orders", ANY_SHARD, 1)])
        assert await bus.tasks.claim_tasks(claim, wait_ms=30_000)
    finally:
        await bus.close()


def test_an_entry_that_is_not_there(sqlite_url: str, tmp_path: Path) -> None:
    done = _show(5, ["--store", sqlite_url], tmp_path)
    assert (done.code, done.out) == (1, "")
    assert done.err == "error: the journal has no entry 5, or keeps it no more\n"
