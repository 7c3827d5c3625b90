"""Act 8: a subscription makes a run of each line of a file, and headers choose the app of some."""

import asyncio
from pathlib import Path
from typing import Any, Final

import orjson

from tape.cli.demo.stage import Stage, working
from tape.model.entry import Entry
from tape.programs.worker import WorkerOptions
from tape.runs.declare import Apps, app
from tape.stores.by_url import sqlite_path

TITLE = "Wires come in"
STORY = (
    "A bank drops wires into a folder, a line each. A subscription makes a run of each line. A "
    "header may send a wire to the app for urgent ones, which is on the list; one asks for an app "
    "that is not. Some wires are there twice."
)
NAME = "wires"
USUAL, URGENT, NOT_LISTED = "book_wire", "rush_wire", "pay_everybody"
WIRES = 40
EVERY_URGENT = 10
ODD = 7
TWICE: Final = (3, 13, 23)
POOL = "clearing"
PATIENCE_S = 60.0


async def play(stage: Stage) -> None:
    folder = sqlite_path(stage.url).with_name(NAME)
    booked: list[int] = []
    await stage.client.register_subscription(_document(folder))
    folder.mkdir()
    numbers = [*range(1, WIRES + 1), *TWICE]
    (folder / "monday.jsonl").write_bytes(b"".join(_line(number) + b"\n" for number in numbers))
    await stage.client.move_subscription(NAME, "activate")
    options = WorkerOptions(url=stage.url, apps=_apps(booked), pool=POOL, listen=POOL)
    async with working(options, "tape.runs"), asyncio.timeout(PATIENCE_S):
        await _await_entries(stage, f"/tape/run/terminal/*/subscription/{NAME}/**", WIRES)
        await _await_entries(stage, f"/tape/subscription/message_deduplicated/{NAME}", len(TWICE))
    await stage.client.move_subscription(NAME, "deactivate")
    begun = await _entries(stage, f"/tape/run/runnable/*/subscription/{NAME}/**")
    apps = {_number(entry): entry.payload["app_name"] for entry in begun}
    counts = (await stage.client.subscription(NAME)).listener
    stage.say(
        f"{len(numbers)} lines: {counts.accepted} accepted, {counts.deduplicated} there before; "
        f"{list(apps.values()).count(URGENT)} rerouted"
    )
    stage.promise(
        f"{WIRES} wires are one run each, begun in the order of the file",
        [_number(entry) for entry in begun] == sorted(booked) == list(range(1, WIRES + 1)),
    )
    stage.promise(
        "the urgent ones, and no others, went to the app for urgent ones",
        all((name == URGENT) == _is_urgent(number) for number, name in apps.items()),
    )
    audit = await _entries(stage, f"/tape/subscription/message_directives_applied/{NAME}")
    refused = [each["value"] for entry in audit for each in entry.payload["refused"]]
    stage.promise(
        "an app that is not on the list was not started, and the journal says who asked for it",
        apps.get(ODD) == USUAL and refused == [NOT_LISTED],
    )


def _document(folder: Path) -> dict[str, Any]:
    directives = [
        {"header": "x-route", "controls": "dispatch.playbook", "allowed": [USUAL, URGENT]},
        {"header": "x-wire-id", "controls": "idempotency_key"},
    ]
    return {
        "apiVersion": "tape/v1",
        "kind": "Subscription",
        "metadata": {"name": NAME, "path": f"subscriptions/{NAME}"},
        "spec": {
            "source": "file",
            "mode": "pull",
            "activation": "continuous",
            "folder": str(folder),
            "runtime": {"pool": POOL},
            "dispatch": {"playbook": USUAL, "execution_pool": POOL},
            "headers": {"directives": directives},
            "dedup": {"window_secs": 3600},
        },
    }


def _line(number: int) -> bytes:
    headers = {"X-Wire-Id": f"wire-{number}"}
    if _is_urgent(number):
        headers["X-Route"] = URGENT
    elif number == ODD:
        headers["X-Route"] = NOT_LISTED
    return orjson.dumps({"headers": headers, "body": {"number": number}})


def _is_urgent(number: int) -> bool:
    return number % EVERY_URGENT == 0


def _number(begun: Entry) -> int:
    return int(begun.payload["input"]["payload"]["number"])


def _apps(booked: list[int]) -> Apps:
    apps = Apps()

    async def book(_ctx: object, wire: dict[str, Any]) -> None:
        booked.append(wire["payload"]["number"])

    for name in (USUAL, URGENT):
        app(name, registry=apps)(book)
    return apps


async def _await_entries(stage: Stage, pattern: str, count: int) -> None:
    async with stage.client.follow(pattern) as entries:
        async for _entry in entries:
            count -= 1
            if not count:
                return


async def _entries(stage: Stage, pattern: str) -> list[Entry]:
    async with stage.client.follow(pattern, live=False) as entries:
        return [entry async for entry in entries]
