"""`tape prune`: every kind of cursor holds it back by name; what is not archived stays."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tape.bus import Bus
from tape.cli.root import run
from tape.journal_relay.cursor_file import CursorFile
from tape.model.event import NewEvent
from tape.model.reaction import HandlerKind, NewReaction
from tape.pipeline.lake.log import LakeLog, now_ms
from tape.programs.connect import open_bus
from tape.settings import Settings
from tape.stores.by_url import open_store
from tests.conformance.playing import a_run, save_run
from tests.conformance.reacting import claim, fail, keys_of, queue
from tests.pipeline.lake.world import entries_of, fill, plant

Prune = Callable[..., dict[str, Any]]


@pytest.fixture
def url(sqlite_url: str) -> str:
    return sqlite_url


@pytest.fixture
def lake(url: str, tmp_path: Path) -> Path:
    """All but the newest ten of a hundred, in three files."""
    fill(url, 100)
    entries = entries_of(url)
    for after in (0, 30, 60):
        plant(tmp_path / "lake", entries[after : after + 30], after)
    return tmp_path / "lake"


@pytest.fixture
def prune(url: str, lake: Path, capfd: pytest.CaptureFixture[str]) -> Prune:
    def pruned(*arguments: str, older_than: str = "0") -> dict[str, Any]:
        command = [
            "prune",
            "--store",
            url,
            "--lake",
            str(lake),
            "--older-than",
            older_than,
            "--json",
        ]
        code = run([*command, *arguments])
        out, err = capfd.readouterr()
        if code:
            return {"code": code, "error": err}
        found: dict[str, Any] = json.loads(out)
        return {**found, "by": {one["name"]: one["upto"] for one in found["held_by"]}}

    return pruned


def with_bus(url: str, *register: NewReaction) -> None:
    async def work(bus: Bus) -> None:
        for one in register:
            await bus.reactions.register_reaction(one)

    async def opened() -> None:
        bus = await open_bus(url)
        await work(bus)
        await bus.close()

    asyncio.run(opened())


def left(url: str) -> list[int]:
    return [entry.global_seq for entry in entries_of(url)]


def test_what_is_archived_goes_and_the_seam_stays(prune: Prune, url: str) -> None:
    looked = prune("--dry-run")
    assert (looked["would_reach"], looked["removed"]) == (89, 0)
    assert len(left(url)) == 100
    done = prune()
    assert (done["removed"], done["pruned_through"], done["by"]) == (
        89, 89, {"the end of the lake": 89},
    )  # fmt: skip
    assert left(url) == list(range(90, 101))
    assert prune()["removed"] == 0


def test_age_and_grace_and_word_hold_it(prune: Prune, url: str, lake: Path, tmp_path: Path) -> None:
    assert prune(older_than="7d")["by"] == {"--older-than 7d": 0}
    assert prune("--keep-from", "21")["by"] == {"--keep-from 21": 20}
    entries = entries_of(url)
    plant(lake, [e for e in entries if 90 < e.global_seq <= 95], 90, archived_at_ms=now_ms())
    assert prune("--grace", "1h")["by"] == {"--grace since it was archived": 90}
    assert prune("--grace", "0")["pruned_through"] == 94


def test_relays_hold_it(prune: Prune, tmp_path: Path) -> None:
    for name, position in (("fast", 80), ("slow", 40)):
        with CursorFile(tmp_path / name) as file:
            file.write(position)
    cursors = ["--cursor", str(tmp_path / "fast"), "--cursor", str(tmp_path / "slow")]
    assert prune(*cursors)["by"] == {f"relay {tmp_path / 'slow'}": 40}
    assert "no file" in prune("--cursor", str(tmp_path / "none"))["error"]
    (tmp_path / "odd").write_text("{}")
    assert "not a relay's cursor" in prune("--cursor", str(tmp_path / "odd"))["error"]


def test_every_kind_of_reaction_holds_it(prune: Prune, url: str) -> None:
    late = NewReaction("late", "/tape/**", HandlerKind.TASK, from_global_seq=33)
    bulk = NewReaction("bulk", "/tape/**", HandlerKind.TASK, engine="spark", from_global_seq=22)
    with_bus(url, late, bulk)
    done = prune()
    assert (done["pruned_through"], done["by"]) == (22, {"reaction bulk": 22})
    assert {one["name"] for one in done["bounds"]} >= {"reaction bulk", "reaction late"}

    async def drop(bus_url: str, *ids: str) -> None:
        bus = await open_bus(bus_url)
        for one in ids:
            await bus.reactions.deregister_reaction(one)
        await bus.reactions.register_reaction(NewReaction("now", "/tape/**", HandlerKind.TASK))
        await bus.record_events([NewEvent("more")])
        await bus.close()

    asyncio.run(drop(url, "bulk"))
    assert prune()["by"] == {"reaction late": 33}
    asyncio.run(drop(url, "late"))
    done = prune()
    assert done["by"] == {"the end of the lake": 89}
    assert "matcher" in {one["name"] for one in done["bounds"]}


def test_what_runs_and_tasks_need_stays(prune: Prune, url: str) -> None:
    async def plant_needs() -> None:
        store = await open_store(url, Settings())
        bus = Bus(store, Settings())
        reaction = NewReaction("r", "/tape/**", HandlerKind.TASK, retry_max=0, dlq_after_n=1)
        await bus.reactions.register_reaction(reaction)
        await queue(store, [5, 9])
        await fail(store, "a", keys_of(await claim(store, most=1)))
        await save_run(store, a_run("open"))
        await bus.close()

    asyncio.run(plant_needs())
    done = prune()
    assert done["kept"] == {"tasks": 1, "dead letters": 1}
    assert left(url)[:3] == [5, 9, 90]

    async def finish() -> None:
        store = await open_store(url, Settings())
        await store.tasks.complete_tasks("b", keys_of(await claim(store, owner="b")))
        await store.close()

    asyncio.run(finish())
    assert prune()["removed"] == 1  # what was left for a task goes when that is done
    assert left(url)[:2] == [5, 90]


def test_a_lake_that_is_not_whole_frees_nothing(
    prune: Prune, url: str, lake: Path, tmp_path: Path
) -> None:
    first = lake / LakeLog(lake).read().files[0].path
    text = first.read_bytes()
    first.write_bytes(text[:-1])
    assert "has changed since it was archived" in prune()["error"]
    first.unlink()
    assert "is missing or has changed" in prune()["error"]
    first.write_bytes(text)
    other = f"sqlite:{tmp_path / 'other.db'}"
    fill(other, 100)
    command = ["prune", "--store", other, "--lake", str(lake), "--older-than", "0"]
    assert run(command) == 1
    assert len(left(other)) == len(left(url)) == 100
    assert run(["prune", "--store", url, "--lake", str(tmp_path / "no")]) == 2
    newest = max((lake / "_tape").iterdir())
    newest.write_text("{")
    assert "damaged" in prune()["error"]
    assert len(left(url)) == 100
