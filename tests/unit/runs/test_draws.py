"""What is drawn, decided and could not be decided has subjects of its own, and replays alike."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import orjson
import pytest

import tape
from tape.errors import EffectFailed, InvalidArgument
from tape.model.decision import RecordDecision
from tape.model.entry import Entry
from tape.model.run import DEFAULT_POOL, Run, RunStatus
from tape.programs.run_reactors import run_reactors
from tape.programs.worker import WorkerOptions
from tape.reactions.threads import HandlerThreads
from tape.runs.declare import DECLARED_APPS, App, Apps
from tape.runs.driving.context import Context
from tape.runs.looking.offline import ReplayVerdict, replay_offline
from tape.runs.looking.timeline import timeline
from tape.runs.reactors.run_reactors import RunReactors
from tape.settings import Limits, ReactorsSettings, Settings
from tape.stores.by_url import upgrade_store
from tape.stores.migrations import load_migrations
from tape.testing.runs import AppKit
from tests.unit.runs.driven import outcome, ran, signalled

BEFORE = Path(__file__).parent / "draws_of_before.jsonl"
"""The journal of a run of `draws`, by the version that had one subject for all of these."""
VERBS = [
    *(["drawn"] * 5),  # now, random, uuid, a sample, a value
    "recorded",
    "failed",
    *(["drawn"] * 3),  # nothing to delete, a child, a patch
]


def drawing(apps: Apps) -> App[Any]:
    @tape.app("child", registry=apps)
    async def child(ctx: Context) -> int:
        return 1

    @tape.app("draws", version="1", registry=apps)
    async def draws(ctx: Context, n: int) -> list[Any]:
        seen: list[Any] = [
            tape.now().isoformat(),
            tape.random(),
            str(tape.uuid()),
            tape.sample(lambda: 7),
            await ctx.get_value("ns", "k"),
        ]

        async def ask() -> Any:
            return {"colour": "blue"}

        async def no() -> None:
            raise OSError("away")

        seen.append(await ctx.decide("model", {"q": 1}, ask))
        with pytest.raises(EffectFailed) as failed:
            await ctx.decide("other", {"q": 2}, no)
        await ctx.delete_value("ns", "nothing")
        seen += [str(failed.value), await ctx.start(child), ctx.patched("new")]
        await ctx.gate("go")
        return seen

    return draws


async def decisions(kit: AppKit, run: Run) -> list[Entry]:
    entries = await kit._operations.runs.read_run(run.run_id, 0)
    return [entry for entry in entries if entry.kind == "decision"]


async def test_draws_and_failures_are_no_recorded_decisions(kit: AppKit, apps: Apps) -> None:
    app = drawing(apps)
    run = await ran(kit, app, 1)
    recorded = await decisions(kit, run)
    assert [entry.subject.split("/")[3] for entry in recorded] == VERBS
    assert [entry.subject.split("/")[-1] for entry in recorded] == [str(n) for n in range(10)]
    first = [entry.payload["response"] for entry in recorded]
    run = await signalled(kit, run)
    assert run.status == RunStatus.TERMINAL
    assert outcome(run)[1:4] == first[1:4]


async def test_the_timeline_tells_them_apart(kit: AppKit, apps: Apps) -> None:
    run = await ran(kit, drawing(apps), 1)
    entries = await kit._operations.runs.read_run(run.run_id, 0)
    decided = [entry for entry in entries if entry.kind == "decision"]
    told = [line.text for line in timeline(decided)]
    assert told[:2] == ["draw 0: draws now", "draw 1: draws random"]
    assert told[4:7] == [
        "draw 4: reads value ns/k",
        "decision 5: decides with model",
        "decision 6: failed to decide with other",
    ]


async def test_a_journal_of_before_is_replayed(apps: Apps) -> None:
    entries = []
    for line in BEFORE.read_text().splitlines():
        fields = orjson.loads(line)
        fields["payload_json"] = orjson.dumps(fields.pop("payload")).decode()
        entries.append(Entry(**fields))
    verbs = {entry.subject.split("/")[3] for entry in entries if entry.kind == "decision"}
    assert verbs == {"recorded"}
    last = entries[-1]
    run = Run(
        last.run_id, "draws", "", "", "old", DEFAULT_POOL, RunStatus.WAITING.value, last.seq,
        "", "", 0, 3, 0, 0, "1",
    )  # fmt: skip
    with ThreadPoolExecutor(1) as executor:
        replayed = await replay_offline(run, drawing(apps), entries, executor)
    assert replayed.verdict is ReplayVerdict.SAME, replayed
    assert replayed.text.endswith("waits for gate go")


def test_a_verb_that_is_none_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="'guessed' is not recorded, drawn or failed") as no:
        RecordDecision(0, "m", verb="guessed").checked(Limits())
    assert no.value.field == "verb"


def test_a_value_is_watched_without_a_client(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path}/tape.db"
    with tape.connect(url) as client:
        client.set_value("desk", "limit", 1)
        client.set_value("desk", "limit", 2)
    changes = tape.watch_value("desk", "limit", from_version=1, url=url)
    change = next(changes)
    assert (change.prev_value_json, change.value.value_json) == ("1", "2")
    changes.close()  # type: ignore[attr-defined]


async def test_an_app_does_not_watch_a_value(kit: AppKit, apps: Apps) -> None:
    @tape.app("watches", registry=apps)
    async def watches(ctx: Context) -> None:
        tape.watch_value("desk", "limit")

    assert "declare a reaction" in outcome(await ran(kit, watches))


def test_reactors_are_a_worker_without_reactions(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[WorkerOptions] = []
    monkeypatch.setattr("tape.programs.run_reactors.run_worker", started.append)
    run_reactors("sqlite:desk.db", pool="blue", owner="me")
    (options,) = started
    assert (options.url, options.pool, options.owner) == ("sqlite:desk.db", "blue", "me")
    assert (list(options.registry), options.apps) == ([], DECLARED_APPS)


@pytest.fixture
def sqlite_url(new_sqlite_url: str) -> str:
    return new_sqlite_url


async def test_a_store_that_older_versions_may_read_has_one_subject_for_all(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = "tape.stores." + store_url.partition(":")[0]
    with monkeypatch.context() as before:
        steps = [step for step in load_migrations(package) if step.phase == "pre"]
        before.setattr(f"{package}.migrate.load_migrations", lambda _package: steps)
        await upgrade_store(store_url, Settings(), with_post=False)

    async def verbs() -> list[str]:
        apps = Apps()
        app = drawing(apps)
        async with tape.connect_async(store_url) as client:
            threads = HandlerThreads(2)
            settings = ReactorsSettings()
            run = await client.start_run(app, 1)
            reactors = RunReactors(
                client._operations, apps, settings, threads, owner="w", pool=DEFAULT_POOL
            )
            await reactors.once()
            await reactors.close()
            entries = await client.read_run(run.run_id)
        return [entry.subject.split("/")[3] for entry in entries if entry.kind == "decision"]

    assert await verbs() == ["recorded"] * len(VERBS)
    upgraded = await upgrade_store(store_url, Settings(), with_post=True)
    assert upgraded.applied == ["draw_subjects"]
    assert await verbs() == VERBS
