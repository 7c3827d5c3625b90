"""The three reactions that the first description of Tape shows run as they are printed there."""

import asyncio
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from tape.bus import Bus, FollowQuery
from tape.model.entry import EntryDraft
from tape.model.move import Decision, Need, State
from tape.model.subjects import effect
from tape.model.task import TaskStatus
from tape.model.value import Author
from tape.programs.connect import open_bus
from tests.conformance.reacting import until
from tests.integration.brokers.far_sides import PubSubFarSide
from tests.servers.pubsub import PubSubEmulator, why_no_emulator
from tests.servers.tape_server import ServerProcess
from tests.servers.tape_worker import WorkerProcess

PRINTED = """
import tape

# ── declare reactions at startup ──
@tape.on_value_change("treasury", key="fx_rate",
                      predicate="double(payload.value.value_json) > 1.10",
                      max_concurrency=8, debounce_ms=500)
def reprice_book(envelope):
    # ephemeral task; this Python fn runs in the dispatcher process.
    ...

@tape.on_effect_confirmed("execute_sweep",
                          agent="treasury-followup",     # ⇒ HandlerKind.AGENT
                          max_concurrency=4)
def _():  # body is unused for agent handlers; the decorator registers the reaction
    ...

@tape.on("/tape/effect/failed/**",
         publish="pubsub://my-proj/incident-stream")    # ⇒ HandlerKind.PUBLISH
def _():
    ...

# ── run the dispatcher (in-proc reference impl) ──
tape.reactions.run_dispatcher(url="tape://localhost:7878")
"""


class AppendEntry:
    """An effect as a run would note it down."""

    weight = 512

    def __init__(self, verb: str, tool: str) -> None:
        self._draft = EntryDraft(
            f"effect-{verb}", "effect", effect(verb, tool, "run-1"), f'{{"tool":"{tool}"}}'
        )

    def needs(self) -> Iterable[Need]:
        return ()

    def decide(self, state: State) -> Decision[None]:
        return Decision(lambda _place: None, [self._draft])


@pytest.fixture
def emulator(monkeypatch: pytest.MonkeyPatch) -> Iterator[PubSubEmulator]:
    if reason := why_no_emulator():
        pytest.skip(reason)
    with PubSubEmulator() as running:
        monkeypatch.setenv("PUBSUB_EMULATOR_HOST", running.host)
        yield running


async def incident_stream(emulator: PubSubEmulator) -> PubSubFarSide:
    far_side = PubSubFarSide(emulator)
    far_side.topic = "projects/my-proj/topics/incident-stream"
    far_side.subscription = "projects/my-proj/subscriptions/all"
    await far_side.make_topic()
    return far_side


async def test_they_run_as_printed(
    sqlite_url: str, emulator: PubSubEmulator, tmp_path: Path
) -> None:
    far_side = await incident_stream(emulator)
    with ServerProcess(sqlite_url) as server:
        program = tmp_path / "treasury.py"
        program.write_text(PRINTED.replace("tape://localhost:7878", server.url))
        with WorkerProcess(str(program), log=tmp_path / "worker.log") as worker:
            bus = await open_bus(sqlite_url)
            try:
                await _registered(bus)
                await _write(bus)
                await _handled(bus)
            finally:
                await bus.close()
            (received,) = await far_side.received(1)
            assert await asyncio.to_thread(worker.stop) == 0
    assert received.key == "/tape/effect/failed/wire/run-1"


async def _registered(bus: Bus) -> None:
    async def three() -> bool:
        return len(await bus.reactions.list_reactions()) == 3

    await until(three)


async def _write(bus: Bus) -> None:
    for rate in ("1.05", "1.12", "1.15"):
        await bus.values.write_value("treasury", "fx_rate", rate, -1, Author("test"))
    await bus.values.write_value("treasury", "other", "9.9", -1, Author("test"))
    await bus._writer.submit(AppendEntry("confirmed", "execute_sweep"))
    await bus._writer.submit(AppendEntry("failed", "wire"))


async def _handled(bus: Bus) -> None:
    async def all_done() -> bool:
        return len(await bus.tasks.list_tasks("", TaskStatus.DONE)) == 3

    await until(all_done)
    (repriced,) = await bus.tasks.list_tasks("treasury.reprice_book", TaskStatus.DONE)
    assert repriced.entry.payload["value"]["value_json"] == "1.15", "the last of the burst"
    head = (await bus.info()).head_global_seq
    pages = bus.follow(FollowQuery("/tape/run/runnable/treasury-followup/**", until=head))
    (run,) = [entry async for page in pages for entry in page.entries]
    assert run.payload["input"]["subject"] == "/tape/effect/confirmed/execute_sweep/run-1"
