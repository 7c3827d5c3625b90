"""One limit of payloads at every door: what one takes all take, what one refuses all refuse.

In this process, and at a server whose clients know nothing of its settings.
"""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest

import tape
from tape.errors import InvalidArgument, TapeError
from tape.model.json_text import UNLIMITED
from tape.pipeline.jobs.ingest.validate import IngestRules, checking
from tape.pipeline.source.forms import FORMS
from tape.programs.serve import Addresses, ServeOptions, serve
from tape.runs.declare import Apps
from tape.runs.driving.run_here import new_run
from tape.settings import MIB, Limits, Settings, SqliteSettings
from tests.pipeline.ingest.test_validate import message

GREAT = Settings(limits=Limits(payload_bytes=4 * MIB), sqlite=SqliteSettings(poll_s=0.02))
SMALL = Settings(limits=Limits(payload_bytes=2_000), sqlite=SqliteSettings(poll_s=0.02))
BOUND_S = 60.0

APPS = Apps()


@tape.effect(registry=APPS, semantics="observe_only")
async def echo(text: str, answers: bool) -> str:
    return text if answers else ""


@tape.effect(registry=APPS)
async def act(text: str) -> str:
    return text


@tape.app("doors", registry=APPS)
async def doors(ctx: tape.Context, given: Any) -> Any:
    """One thing that an app does with something large."""
    where, text = given["where"], "x" * given["size"]
    match where:
        case "effect request":
            await echo(text, False)
        case "effect response":
            return len(await ctx.call(echo, text[:1], True)) + len(await _big(ctx, len(text)))
        case "decision":
            await ctx.decide("model", None, _returning(text))
        case "sample":
            ctx.sample(lambda: text)
        case "value in a run":
            await ctx.set_value("app", "key", text)
        case "event in a run":
            await ctx.record("in.run", text)
        case "timer":
            await ctx.set_timer("t", 3600, payload=text)
        case "child run":
            await ctx.start("nobody", text)
        case "result":
            return text
    return None


async def _big(ctx: tape.Context, size: int) -> str:
    @tape.effect(name="big", registry=Apps(), semantics="observe_only")
    async def big() -> str:
        return "x" * size

    answer: str = await ctx.call(big)
    return answer


def _returning(text: str) -> Callable[[], Awaitable[str]]:
    async def ask() -> str:
        return text

    return ask


IN_A_RUN = (
    "effect request", "effect response", "decision", "sample", "value in a run", "event in a run",
    "timer", "child run", "result",
)  # fmt: skip


class Door:
    """Where a test comes in: a client, the file behind it, and HTTP where there is a server."""

    def __init__(self, client: tape.AsyncTapeClient, file: Path, http: str | None) -> None:
        self.client = client
        self._file = file
        self.http = http

    async def tried(self, size: int, settings: Settings) -> dict[str, str]:
        """What each way in says of a payload of that size."""
        text = "x" * size
        client = self.client
        await client.create_session("app", "user", "one")
        ways: dict[str, Callable[[], Awaitable[Any]]] = {
            "record": lambda: client.record("a", text),
            "value": lambda: client.set_value("n", "k", text),
            "session": lambda: client.create_session("app", "user", "two", {"state": text}),
            "session event": lambda: client.append_event(
                "app", "user", "one", {"content": {"text": text}}
            ),
            "start": lambda: client.start_run("doors", text),
            "run": lambda: client.run(doors_app(), {"where": "", "size": 0, "more": text}),
            "signal": lambda: self._signal(text),
            "outbox": lambda: asyncio.to_thread(self._publish, text, settings),
            "spark write": lambda: asyncio.to_thread(_write_by_spark, text, settings),
            "ingest": lambda: asyncio.to_thread(_ingest, text, settings),
        }
        for where in IN_A_RUN:
            ways[where] = lambda where=where: client.run(  # type: ignore[misc]
                doors_app(), {"where": where, "size": size}
            )
        if self.http is not None:
            ways["http"] = lambda: self._post(text)
        return {name: await _said(way) for name, way in ways.items()}

    async def _signal(self, text: str) -> None:
        run = await self.client.start_run("nobody")
        await self.client.send_signal(run.run_id, "gate", text)

    def _publish(self, text: str, settings: Settings) -> None:
        with closing(sqlite3.connect(self._file, timeout=30, isolation_level=None)) as file:
            file.execute("BEGIN IMMEDIATE")
            tape.publish_within(file, "a.b", text, settings=settings)
            file.execute("COMMIT")

    async def _post(self, text: str) -> None:
        async with httpx.AsyncClient(timeout=60) as http:
            answer = await http.post(
                f"http://{self.http}/api/events/record", json={"event_type": "a", "payload": text}
            )
        if answer.status_code >= 400:
            raise InvalidArgument(answer.text)


def doors_app() -> tape.App[Any]:
    return APPS.apps["doors"]


def _write_by_spark(text: str, settings: Settings) -> None:
    row = {"event_type": "a", "payload_json": f'"{text}"'}
    list(FORMS["events"].checked(pa.RecordBatch.from_pylist([row]), settings.limits))


def _ingest(text: str, settings: Settings) -> None:
    body = f'"{text}"'
    batch = pa.RecordBatch.from_pylist([message(body)])
    (checked,) = checking(IngestRules(event_type="a"), settings.limits)(iter([batch]))
    if reason := checked.to_pylist()[0]["reason"]:
        raise InvalidArgument(reason)


async def _said(way: Callable[[], Awaitable[Any]]) -> str:
    try:
        await way()
    except TapeError as error:
        return "refused" if "the limit is" in str(error) else repr(error)
    return "taken"


@asynccontextmanager
async def opened(kind: str, folder: Path, settings: Settings) -> AsyncIterator[Door]:
    file = folder / "tape.db"
    url = f"sqlite:{file}"
    if kind == "embedded":
        async with tape.connect_async(url, settings=settings) as client:
            yield Door(client, file, None)
        return
    stop = asyncio.Event()
    ready: asyncio.Future[Addresses] = asyncio.get_running_loop().create_future()
    options = ServeOptions(url, "127.0.0.1:0", "127.0.0.1:0", settings)
    serving = asyncio.create_task(serve(options, on_ready=ready.set_result, stop=stop))
    addresses = await ready
    try:
        async with tape.connect_async(f"tape://{addresses.grpc}") as client:
            yield Door(client, file, addresses.http)
    finally:
        stop.set()
        await serving


@pytest.mark.parametrize("kind", ["embedded", "server"])
async def test_what_is_above_the_default_and_within_the_limit_is_taken(
    kind: str, tmp_path: Path
) -> None:
    async with asyncio.timeout(BOUND_S), opened(kind, tmp_path, GREAT) as door:
        said = await door.tried(2_000_000, GREAT)
        assert set(said.values()) == {"taken"}, said
        await door.client.subscribe_events("big.*", "drained", awaits_end=False)
        await door.client.record("big.one", "x" * 2_000_000)
        # A server drains by itself as well, and then this pass is passed over for it.
        while (await door.client.drain()).skipped_due_to_lock:  # noqa: ASYNC110 - only asking tells
            await asyncio.sleep(0.01)
        (run,) = await door.client.list_runs(app_name="drained")
        (begun, *_) = await door.client.read_run(run.run_id)
        assert len(begun.payload_json) > 2_000_000


@pytest.mark.parametrize("kind", ["embedded", "server"])
async def test_what_is_above_the_limit_is_refused(kind: str, tmp_path: Path) -> None:
    async with asyncio.timeout(BOUND_S), opened(kind, tmp_path, SMALL) as door:
        said = await door.tried(3_000, SMALL)
        assert set(said.values()) == {"refused"}, said


def test_a_run_to_begin_is_judged_by_who_begins_it() -> None:
    new = new_run("doors", "x" * 2_000_000)
    assert new.checked(UNLIMITED) == new
