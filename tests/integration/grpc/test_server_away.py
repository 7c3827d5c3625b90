"""A server that goes away and comes back: readers go on, keyed writes are done once."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import Any

import pytest

import tape
from tape.client.server import Server
from tape.model.budget import ChargeBudget, SetBudget
from tape.model.decision import RecordDecision
from tape.model.lease import NewRun, Taker
from tape.model.run import RunName, RunStatus
from tape.model.run_end import EndRun
from tape.model.run_write import Extended, RunWrite
from tape.settings import Settings, WriterSettings
from tape.stores.by_url import open_store
from tests.conformance.playing import a_run, save_run

IMPATIENT = Settings(writer=WriterSettings(retry_for_s=0.3))


async def take(stream: Any, count: int) -> list[Any]:
    return [await anext(stream) for _ in range(count)]


async def test_followers_and_keyed_producers_outlive_restarts(store_url: str, serving: Any) -> None:
    producers, each = 4, 40
    server = await serving(store_url)
    async with tape.connect_async(server.url) as client:
        halfway = asyncio.Event()
        following = asyncio.create_task(take(client.follow(), producers * each))
        pages = asyncio.create_task(until_cursor(client, producers * each))

        async def produce(name: str) -> list[tape.Recorded]:
            done = []
            for i in range(each):
                done.append(await client.record("a", i, source=name, idempotency_key=f"{name}-{i}"))
                if i % 10 == 5:
                    halfway.set()
            return done

        producing = [asyncio.create_task(produce(f"p{n}")) for n in range(producers)]
        for _ in range(3):
            await halfway.wait()
            await server.stop()
            await server.start()
            halfway.clear()
        results = [result for done in await asyncio.gather(*producing) for result in done]
        entries = await following
        assert [entry.global_seq for entry in entries] == list(range(1, producers * each + 1))
        assert sorted(r.global_seq for r in results) == list(range(1, producers * each + 1))
        assert {e.idempotency_key for e in entries} == {
            f"p{n}-{i}" for n in range(producers) for i in range(each)
        }
        for n in range(producers):
            mine = [entry.payload for entry in entries if entry.source == f"p{n}"]
            assert mine == list(range(each))
        assert await pages == [entry.global_seq for entry in entries]


async def until_cursor(client: tape.AsyncTapeClient, cursor: int) -> list[int]:
    seen: list[int] = []
    async with client.pages(max_batch=7) as pages:
        async for page in pages:
            seen += [entry.global_seq for entry in page.entries]
            if page.cursor >= cursor:
                break
    return seen


async def test_watchers_and_run_followers_outlive_a_restart(store_url: str, serving: Any) -> None:
    store = await open_store(store_url, Settings())
    await save_run(store, a_run("r", fencing_token=1))
    await store.close()
    server = await serving(store_url)
    async with tape.connect_async(server.url) as client:
        run: dict[str, Any] = {"run_id": "r", "fencing_token": 1}
        changes, entries = client.watch_value("n", "k"), client.follow_run("r")
        for version in (1, 2, 3):
            await client.set_value("n", "k", version)
            await client.record("a", version, **run)
            assert (await anext(changes)).value.version == version
            assert (await anext(entries)).seq == version
            await server.stop()
            await server.start()


class Between:
    """A wire between client and server that can be cut, also just before the answer."""

    def __init__(self, address: str) -> None:
        self._host, _, port = address.rpartition(":")
        self._port = int(port)
        self._links: set[asyncio.StreamWriter] = set()
        self._pumps: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self.swallowing = False

    async def open(self) -> str:
        self._server = await asyncio.start_server(self._link, "127.0.0.1", 0)
        return f"tape://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def cut(self) -> None:
        self.swallowing = False
        for link in self._links:
            link.transport.abort()

    async def close(self) -> None:
        self.cut()
        if self._server is not None:
            self._server.close()
        await asyncio.gather(*self._pumps)

    async def _link(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        up_reader, up_writer = await asyncio.open_connection(self._host, self._port)
        self._links |= {writer, up_writer}
        for pump in (self._pump(reader, up_writer), self._pump(up_reader, writer, back=True)):
            self._pumps.add(asyncio.create_task(pump))

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, back: bool = False
    ) -> None:
        with suppress(OSError):
            while data := await reader.read(65536):
                if not (back and self.swallowing):
                    writer.write(data)
                    await writer.drain()
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()
        self._links.discard(writer)


@pytest.fixture
async def between(sqlite_url: str, serving: Any) -> AsyncGenerator[Between, None]:
    server = await serving(sqlite_url)
    wire = Between(server.address)
    yield wire
    await wire.close()


async def recorded_but_unanswered(between: Between, sqlite_url: str, **event: Any) -> Any:
    """Record over a wire that is cut when the journal has the event and its producer no answer."""
    async with (
        tape.connect_async(await between.open()) as client,
        tape.connect_async(sqlite_url) as beside,
        beside.follow() as entries,
    ):
        between.swallowing = True
        recording = asyncio.create_task(client.record("a", **event))
        await anext(entries)
        between.cut()
        try:
            return await recording
        finally:
            assert (await beside.info()).head_global_seq == 1


async def test_a_keyed_write_that_was_cut_off_is_done_once(
    between: Between, sqlite_url: str
) -> None:
    result = await recorded_but_unanswered(between, sqlite_url, idempotency_key="k")
    assert (result.global_seq, result.duplicate) == (1, True)


async def test_an_unkeyed_write_that_was_cut_off_is_unknown(
    between: Between, sqlite_url: str
) -> None:
    with pytest.raises(tape.OutcomeUnknown, match="may have executed"):
        await recorded_but_unanswered(between, sqlite_url)


async def extended_but_unanswered(
    between: Between, sqlite_url: str, *writes: RunWrite
) -> tuple[Extended, list[tape.Entry]]:
    """The answer to writes for a run over a wire that is cut as above, and the run's journal."""
    async with (
        tape.connect_async(await between.open()) as client,
        tape.connect_async(sqlite_url) as beside,
        beside.follow() as entries,
    ):
        runs = client._operations.runs
        begun = await runs.begin_run(NewRun(RunName("app", "", "", "i")), Taker("me"))
        await anext(entries)
        between.swallowing = True
        extending = asyncio.create_task(runs.extend_run(begun.run.run_id, 1, writes))
        await take(entries, len(writes))
        between.cut()
        return await extending, await beside.read_run(begun.run.run_id)


async def test_writes_of_a_run_that_were_cut_off_are_done_once(
    between: Between, sqlite_url: str
) -> None:
    extended, journal = await extended_but_unanswered(
        between,
        sqlite_url,
        RecordDecision(0, "m"),
        SetBudget(1.0),
        ChargeBudget(0.25, charge_id="c"),
    )
    decided, _, charged = extended.replies
    assert (decided.seq, charged.usd_spent, extended.run.seq_cursor) == (2, 0.25, 4)
    assert [entry.seq for entry in journal] == [1, 2, 3, 4]


async def test_the_end_of_a_run_that_was_cut_off_is_done_once(
    between: Between, sqlite_url: str
) -> None:
    end = EndRun(RunStatus.TERMINAL, "7")
    extended, journal = await extended_but_unanswered(between, sqlite_url, end)
    assert extended.replies == [extended.run]
    assert (extended.run.outcome_json, len(journal)) == ("7", 2)


@pytest.mark.parametrize(
    "writes",
    [
        [ChargeBudget(1.0)],
        [ChargeBudget(1.0, charge_id="a"), ChargeBudget(1.0, charge_id="b")],
        [SetBudget(1.0), SetBudget(2.0)],
    ],
)
async def test_what_would_be_charged_twice_is_not_sent_twice(
    between: Between, sqlite_url: str, writes: list[RunWrite]
) -> None:
    with pytest.raises(tape.OutcomeUnknown, match="may have executed"):
        await extended_but_unanswered(between, sqlite_url, *writes)


async def test_a_heartbeat_is_sent_once_more(
    sqlite_url: str, serving: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = await serving(sqlite_url)
    async with tape.connect_async(server.url) as client:
        runs = client._operations.runs
        run_id = (await runs.begin_run(NewRun(RunName("app", "", "", "i")), Taker("me"))).run.run_id
        await server.stop()
        calls: list[object] = []
        call_of_server = Server.call

        async def counted(*arguments: Any, **options: Any) -> Any:
            calls.append(arguments)
            return await call_of_server(*arguments, **options)

        monkeypatch.setattr(Server, "call", counted)
        with pytest.raises(tape.StoreUnavailable):
            await runs.heartbeat_run(run_id, 1, 60_000)
        assert len(calls) == 2
        releasing = asyncio.create_task(runs.release_run(run_id, 1))
        await server.start()
        assert (await releasing).lease_owner == ""


async def test_a_write_that_never_left_is_known_not_done(sqlite_url: str, serving: Any) -> None:
    server = await serving(sqlite_url)
    async with tape.connect_async(server.url, settings=IMPATIENT) as client:
        await server.stop()
        for event in (tape.event("a"), tape.event("a", idempotency_key="k")):
            with pytest.raises(tape.StoreUnavailable) as refused:
                await client.record_many([event])
            assert type(refused.value) is tape.StoreUnavailable
        with pytest.raises(tape.StoreUnavailable) as refused:
            await client.set_value("n", "k", 1)
        assert type(refused.value) is tape.StoreUnavailable
    await server.start()
    async with tape.connect_async(server.url) as client:
        assert (await client.record("a", idempotency_key="k")).global_seq == 1


async def test_nobody_there() -> None:
    with pytest.raises(tape.StoreUnavailable, match=r"127\.0\.0\.1:1"):
        await tape.connect_async("tape://127.0.0.1:1")


async def test_stopping_finishes_the_writes_it_has_taken(sqlite_url: str, serving: Any) -> None:
    server = await serving(sqlite_url)
    async with tape.connect_async(server.url, settings=IMPATIENT) as client:
        writes = [asyncio.create_task(client.record("a", i)) for i in range(50)]
        await asyncio.wait(writes, return_when=asyncio.FIRST_COMPLETED)
        await server.stop()
        results = await asyncio.gather(*writes, return_exceptions=True)
        answered = [r.global_seq for r in results if isinstance(r, tape.Recorded)]
        refused = [r for r in results if not isinstance(r, tape.Recorded)]
        assert {type(error) for error in refused} <= {tape.StoreUnavailable}
    async with tape.connect_async(sqlite_url) as store:
        assert (await store.info()).head_global_seq == len(answered)
