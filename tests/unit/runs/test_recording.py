"""Events that an app records: their versions, and what an older version recorded."""

from typing import Any

import pytest

import tape
from tape.errors import InvalidArgument
from tape.runs.declare import App, Apps
from tape.runs.driving.context import Context
from tape.runs.driving.sync_context import SyncContext
from tape.testing.runs import AppKit
from tests.unit.runs.driven import outcome, ran, signalled


def recording(apps: Apps, colour: str, events: list[tuple[str, Any]]) -> App[Any]:
    """An app that records events and waits; it answers with what was refused."""

    @tape.app("records", registry=apps)
    async def records(ctx: Context) -> list[str]:
        refused = []
        for event_type, payload in events:
            try:
                await ctx.record(event_type, payload)
            except InvalidArgument as error:
                refused.append(str(error))
        await ctx.gate("go")
        return refused

    @tape.app("records in a thread", registry=apps)
    def records_plainly(ctx: SyncContext) -> list[str]:
        refused = []
        for event_type, payload in events:
            try:
                ctx.record(event_type, payload)
            except InvalidArgument as error:
                refused.append(str(error))
        ctx.gate("go")
        return refused

    return records if colour == "async" else records_plainly


@pytest.mark.parametrize("colour", ["async", "thread"])
async def test_an_event_has_the_version_that_its_payload_tells(
    kit: AppKit, apps: Apps, colour: str
) -> None:
    events: list[tuple[str, Any]] = [
        ("paid", {"schema_version": 2}),
        ("paid", {"schema_version": "next"}),
        ("paid", {"paid": 1}),
    ]
    run = await ran(kit, recording(apps, colour, events))
    entries = await kit.read_run(run.run_id)
    assert [e.schema_version for e in entries if e.kind == "event"] == [2, 1, 1]
    assert outcome(await signalled(kit, run)) == []


async def test_what_is_refused_is_refused_in_every_replay(kit: AppKit, apps: Apps) -> None:
    events: list[tuple[str, Any]] = [
        ("paid", {"schema_version": 2.5}),
        ("paid", {"schema_version": 2}),
        ("workflow.paid", None),
    ]
    run = await ran(kit, recording(apps, "async", events))
    assert (await kit.journal(run.run_id)).steps == ["event recorded paid", "gate waiting go"]
    version, reserved = outcome(await signalled(kit, run))
    assert "the payload says 2.5" in version
    assert "types that begin with workflow." in reserved


async def test_what_an_older_version_recorded_unchecked_is_replayed(
    kit: AppKit, apps: Apps, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[tuple[str, Any]] = [
        ("paid", {"schema_version": 99_999}),
        ("workflow.paid", {"cents": 5}),
    ]
    app = recording(apps, "async", events)
    with monkeypatch.context() as before:
        for module in ("tape.model.event", "tape.runs.driving.context"):
            before.setattr(f"{module}.check_statement", lambda _event: None)
        run = await ran(kit, app)
    assert outcome(await signalled(kit, run)) == []
