"""The outbox's truth for rows that anybody writes, around every limit, whatever is killed.

Rows come from `publish_within`, from `bus.publish` and from plain INSERTs. Their payloads are
around the broker's limit, their keys and ids are used again on the same subject and on others,
before and after the stream has forgotten the ids it had; a quarter of the transactions is rolled
back. Relays and NATS are killed with -9. Then every row that was committed is on the stream once,
or it is told of: as a repeat with the event it repeats, or as refused with the reason, to be
skipped.
"""

import asyncio
import os
import re
from collections import Counter, defaultdict
from pathlib import Path
from typing import NamedTuple

import pytest
from nats.aio.client import Client
from nats.js.api import ConsumerConfig, DeliverPolicy

import tape
from tape.brokers.nats import header_bytes
from tests.crash.foreign_producers import MAX_PAYLOAD, Event, Programs, large_events
from tests.crash.outbox_checks import check_leadership
from tests.crash.outbox_producer import connected, transaction
from tests.crash.outbox_world import STREAM, World, a_world, until
from tests.crash.test_outbox_killed import inflict, stream_is_there

SEED = os.environ.get("TAPE_SEED", "20261116")
TOO_LARGE = re.compile(
    rf"the message has (\d+) bytes, \d+ of them headers, and the server's max_payload is "
    rf"{MAX_PAYLOAD}:"
)
ANOTHERS_ID = "event_id: belongs to another event (row "


class Size(NamedTuple):
    transactions: int
    faults: str
    """R kills the leading relay, N kills NATS; in this order."""


SHORT, LONG = Size(90, "RN"), Size(6_000, "RNRRNRNRRNRN")


class Row(NamedTuple):
    id: int
    event_id: str
    subject: str
    payload: str
    key: str
    global_seq: int
    published: bool
    term: int
    last_error: str
    has_entry: bool
    repeat_of: str
    repeat_of_seq: int


class Kept(NamedTuple):
    """A message as the stream has it, in its order."""

    message_id: str
    subject: str
    payload: str
    global_seq: int
    size: int


@pytest.mark.parametrize(
    "size", [pytest.param(SHORT, id="short"), pytest.param(LONG, id="long", marks=pytest.mark.long)]
)
@pytest.mark.parametrize("store", ["postgres", "sqlite"])
@pytest.mark.timeout(1_800)
def test_on_the_stream_once_or_told_of(
    tmp_path: Path, size: Size, store: str, request: pytest.FixtureRequest
) -> None:
    on_sqlite = store == "sqlite"
    server = None if on_sqlite else request.getfixturevalue("postgres_server")
    with a_world(tmp_path, on_sqlite=on_sqlite, shared=server) as world:
        with connected(world.url) as database, transaction(database, rolls_back=False):
            database.execute(
                "CREATE TABLE sent (event_id TEXT, subject TEXT, payload TEXT, k TEXT)"
            )
        for _ in range(2):
            world.start_relay()
        world.await_leader(0)
        until(lambda: stream_is_there(world))
        programs = Programs(world.url, size.transactions, SEED)
        large = large_events(programs.ways, places=2)
        programs.write(large)
        programs.write([(programs.ways[0], Event("own.plain0", "0"))], rolls_back=True)
        kill_meanwhile(world, programs, size)
        await_settled(world)
        # The stream forgets the ids it had; the keys are still known.
        asyncio.run(forget_ids(world))
        keyed = [row for row in rows_of(world) if row.key and row.has_entry]
        for row in keyed:
            way = programs.ways[row.id % len(programs.ways)]
            programs.write([(way, Event(row.subject, "9", row.key))])
        await_settled(world)
        told = skip_everything(world)
        check(world, told, len(large) // 2)
        terms = check_leadership(world)
        print(f", {programs.rolled_back} transactions rolled back, {terms} terms")


def kill_meanwhile(world: World, programs: Programs, size: Size) -> None:
    programs.start()
    term = 0
    for number, fault in enumerate(size.faults, 1):
        wanted = size.transactions * number // (len(size.faults) + 1)
        until(lambda: programs.done >= wanted, 600)  # noqa: B023 - asked at once
        term = inflict(world, fault, term)
    programs.join()


def rows_of(world: World) -> list[Row]:
    found = world.rows(
        "SELECT id, event_id, subject, payload_json, coalesce(idempotency_key, ''), global_seq, "
        "published_to_nats, published_term, last_error, has_entry, repeat_of, repeat_of_seq "
        f"FROM {world.outbox} ORDER BY id"
    )
    return [Row(*row) for row in found]


def await_settled(world: World) -> None:
    """Until nothing waits but what is held for good, and what is behind it."""
    held = f"SELECT subject FROM {world.outbox} WHERE last_error <> '' AND NOT published_to_nats"
    waiting = (
        f"SELECT count(*) FROM {world.outbox} WHERE NOT published_to_nats AND repeat_of = '' "
        f"AND subject NOT IN ({held})"
    )
    passing = (
        f"{held} AND last_error NOT LIKE '%max_payload is%' AND last_error NOT LIKE 'event_id:%'"
    )
    until(lambda: world.rows(waiting) == [(0,)] and world.rows(passing) == [], 300)


async def forget_ids(world: World) -> None:
    client = Client()
    await client.connect(f"nats://{world.nats.address}")
    jetstream = client.jetstream()
    config = (await jetstream.stream_info(STREAM)).config
    config.duplicate_window = 0.1
    await jetstream.update_stream(config)
    await client.close()


def skip_everything(world: World) -> dict[int, str]:
    """What an operator is told of each row that is held, until all of them are left out."""
    told: dict[int, str] = {}
    with tape.connect(world.url) as client:

        def nothing_waits() -> bool:
            status = client.outbox_status()
            for row in status.failing:
                if row.id not in told:
                    client.skip_outbox_row(row.id, reason="left out")
                    told[row.id] = row.last_error
            return status.waiting == 0

        until(nothing_waits, 300)
    return told


async def read_stream(world: World) -> list[Kept]:
    client = Client()
    await client.connect(f"nats://{world.nats.address}")
    try:
        jetstream = client.jetstream()
        total = (await jetstream.stream_info(STREAM)).state.messages
        subscription = await jetstream.pull_subscribe(
            "", stream=STREAM, config=ConsumerConfig(deliver_policy=DeliverPolicy.ALL)
        )
        kept: list[Kept] = []
        while len(kept) < total:
            for message in await subscription.fetch(min(100, total - len(kept)), timeout=20):
                await message.ack()
                headers = message.headers or {}
                kept.append(
                    Kept(
                        headers["Nats-Msg-Id"], message.subject, message.data.decode(),
                        int(headers["ce-tapeseq"]), header_bytes(headers) + len(message.data),
                    )
                )  # fmt: skip
    finally:
        await client.close()
    return kept


def check(world: World, told: dict[int, str], large: int) -> None:
    rows = rows_of(world)
    stream = asyncio.run(read_stream(world))
    sent = world.rows("SELECT event_id, subject, payload, k FROM sent")
    assert Counter((r.event_id, r.subject, r.payload, r.key) for r in rows) == Counter(
        tuple(row) for row in sent
    )
    published = [row for row in rows if row.published and row.term and not row.last_error]
    repeats = [row for row in rows if row.repeat_of]
    skipped = [row for row in rows if row.last_error.startswith("skipped: left out; was: ")]
    assert len(published) + len(repeats) + len(skipped) == len(rows)
    assert not any(row.published for row in repeats)
    # What is marked is on the stream once, as it was committed, and nothing else is.
    assert Counter((m.message_id, m.subject, m.payload, m.global_seq) for m in stream) == Counter(
        (r.event_id, r.subject, r.payload, r.global_seq) for r in published
    )
    assert len({message.message_id for message in stream}) == len(stream)
    places: dict[str, list[int]] = defaultdict(list)
    for message in stream:
        places[message.subject].append(message.global_seq)
    assert all(found == sorted(found) for found in places.values())  # tapeseq never goes back
    # What is not, was told of.
    assert {row.id for row in skipped} == set(told)
    sizes = check_reasons(told, {row.id: row for row in rows}, large)
    check_repeats(rows, repeats)
    on_limit = [m.size for m in stream if m.size > MAX_PAYLOAD - 9]
    assert on_limit
    assert max(on_limit) <= MAX_PAYLOAD < min(sizes) < MAX_PAYLOAD + 9
    assert len(on_limit) + len(sizes) == large
    print(
        f"\n{len(rows)} rows committed: {len(published)} published, {len(repeats)} repeats, "
        f"{len(sizes)} too large, {len(told) - len(sizes)} with another's id",
        end="",
    )


def check_reasons(told: dict[int, str], rows: dict[int, Row], large: int) -> list[int]:
    """The sizes of what was too large."""
    sizes: list[int] = []
    for row_id, reason in told.items():
        if found := TOO_LARGE.search(reason):
            sizes.append(int(found[1]))
            assert rows[row_id].has_entry
            continue
        assert reason.startswith(ANOTHERS_ID)
        first = rows[int(reason.removeprefix(ANOTHERS_ID).partition(",")[0])]
        row = rows[row_id]
        assert first.event_id == row.event_id
        assert (first.subject, first.payload) != (row.subject, row.payload)
        assert first.has_entry
        assert not row.has_entry
    assert 0 < len(sizes) < large
    assert len(sizes) < len(told)
    return sizes


def check_repeats(rows: list[Row], repeats: list[Row]) -> None:
    firsts = {row.event_id: row for row in rows if row.has_entry}
    assert len(firsts) == sum(row.has_entry for row in rows)
    keys = Counter((row.subject, row.key) for row in rows if row.key and row.has_entry)
    assert keys
    assert set(keys) == {(row.subject, row.key) for row in rows if row.key}
    assert set(keys.values()) == {1}
    for row in repeats:
        first = firsts[row.repeat_of]
        assert (first.global_seq, first.subject) == (row.repeat_of_seq, row.subject)
        same_event = (first.event_id, first.payload) == (row.event_id, row.payload)
        assert same_event or (row.key and first.key == row.key)
