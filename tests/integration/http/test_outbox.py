"""The outbox of a server over HTTP, gRPC and the command line: what was not taken, and skipping."""

import asyncio
import contextlib
import sqlite3
from pathlib import Path

import httpx
import orjson
import pytest

import tape as sdk
from tests.integration.bus.relays import until
from tests.integration.cli.command import tape
from tests.integration.http.conftest import Serving

INSERT = "INSERT INTO bus_outbox (event_id, subject, payload_json) VALUES (?, 'desk.orders', ?)"


def put(url: str, *payloads: str) -> None:
    """By hand, so that a row can be what publish_within would not write."""
    with contextlib.closing(sqlite3.connect(url.removeprefix("sqlite:"))) as file, file:
        for number, payload in enumerate(payloads, 1):
            file.execute(INSERT, (f"01HZZZZZZZZZZZZZZZZZZZZZZ{number}", payload))


async def test_a_row_that_is_no_event_is_seen_and_skipped_from_outside(
    sqlite_url: str, serving: Serving, tmp_path: Path
) -> None:
    grpc, http, _ = await serving(sqlite_url)
    put(sqlite_url, "1", "{", "3")
    async with (
        httpx.AsyncClient(base_url=f"http://{http}", timeout=20) as client,
        sdk.connect_async(f"tape://{grpc}") as remote,
    ):

        async def is_failing() -> bool:
            return bool((await client.get("/api/outbox")).json()["failing"])

        await until(is_failing)
        told = (await client.get("/api/outbox")).json()
        (failing,) = told["failing"]
        assert (failing["id"], failing["subject"]) == (2, "desk.orders")
        assert "payload_json" in failing["last_error"]
        assert [relay["relay"] for relay in told["relays"]] == ["journal"]
        status = await remote.outbox_status()
        assert [row._asdict()["id"] for row in status.failing] == [2]
        command = ("outbox", "status", "--url", f"tape://{grpc}")
        listed = await asyncio.to_thread(tape, *command, folder=tmp_path)
        assert "desk.orders" in listed.out

        for row, code in ((1, 400), (9, 404)):
            reply = await client.post(f"/api/outbox/{row}/skip", json={"reason": "a slip"})
            assert reply.status_code == code, reply.text
        with pytest.raises(sdk.InvalidArgument, match="reason: must not be empty"):
            await remote.skip_outbox_row(2, reason="")
        skipped = await client.post("/api/outbox/2/skip", json={"reason": "a slip"})
        assert skipped.raise_for_status().json()["subject"] == "desk.orders"
        async with remote.follow("/tape/outbox/skipped/**") as entries:
            assert orjson.loads((await anext(entries)).payload_json)["by"] == "http"
        async with remote.follow("/tape/event/recorded/desk.orders/**") as entries:
            assert [(await anext(entries)).payload for _ in range(2)] == [1, 3]


async def test_a_repeat_is_told_of_through_every_door(
    sqlite_url: str, serving: Serving, tmp_path: Path
) -> None:
    grpc, http, _ = await serving(sqlite_url)
    with contextlib.closing(sqlite3.connect(sqlite_url.removeprefix("sqlite:"))) as file, file:
        file.execute("BEGIN")
        first, again = [
            sdk.publish_within(file, "desk.orders", n, idempotency_key="o-7") for n in range(2)
        ]
    async with (
        httpx.AsyncClient(base_url=f"http://{http}", timeout=20) as client,
        sdk.connect_async(f"tape://{grpc}") as remote,
    ):

        async def is_repeated() -> bool:
            return bool((await client.get("/api/outbox")).json()["repeated"])

        await until(is_repeated)
        (told,) = (await client.get("/api/outbox")).json()["repeats"]
        assert (told["event_id"], told["repeat_of"]) == (again, first)
        assert told["idempotency_key"] == "o-7"
        status = await remote.outbox_status()
        assert (status.repeated, [row._asdict() for row in status.repeats]) == (1, [told])
        command = ("outbox", "status", "--url", f"tape://{grpc}")
        brief = await asyncio.to_thread(tape, *command, folder=tmp_path)
        assert "1 rows repeat an event and were not published: --repeats" in brief.out
        assert first not in brief.out
        listed = await asyncio.to_thread(tape, *command, "--repeats", folder=tmp_path)
        assert [first in line and "o-7" in line for line in listed.out.splitlines()][-1]
        as_json = await asyncio.to_thread(tape, *command, "--json", folder=tmp_path)
        assert as_json.records[0]["repeats"] == [told]
        (entry,) = (await client.get("/api/events/recent?event_type=desk.orders")).json()["events"]
        assert entry["idempotency_key"] == "bus.outbox/desk.orders/o-7"
        assert "\ntape_outbox_repeats_total " in (await client.get("/metrics")).text
