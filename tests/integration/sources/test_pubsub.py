"""What is particular to Pub/Sub: deadlines, pulls that outlive a fetch, what the service says."""

import asyncio
import signal
from typing import Any

import grpc
import pytest
from google.pubsub_v1 import DeadLetterPolicy

from tape.errors import SourceRefused, SourceUnavailable
from tape.ports.source import Source
from tape.sources import pubsub, pubsub_leases
from tape.sources.by_spec import open_source
from tape.sources.pubsub import PubSubSource
from tests.conformance.source import (
    BOUND_S,
    Sent,
    ack,
    bodies,
    by_place,
    fetch_count,
    numbered,
    opened,
)
from tests.integration.sources.credentials import opened as opened_credential
from tests.integration.sources.far_sides import PubSubSide
from tests.servers.pubsub import PubSubEmulator
from tests.servers.pubsub_front import PubSubFront


@pytest.fixture
async def side(emulator: PubSubEmulator) -> PubSubSide:
    made = PubSubSide(emulator)
    await made.make()
    return made


async def test_a_message_says_where_it_was(side: PubSubSide) -> None:
    await side.send([Sent(b"1", "k", (("b", b"2"), ("a", "ä".encode())))])
    async with opened(side) as source:
        (found,) = await fetch_count(source, 1)
        message = found.message
        assert message.place == f"pubsub/{side.subscription}/{message.message_id}"
        assert message.message_id.isdecimal()
        assert message.key == "k"
        attributes = [header for header in message.headers if header[0] in "ab"]
        assert attributes == [("a", "ä".encode()), ("b", b"2")]


async def test_what_a_pull_brings_after_its_fetch_is_for_the_next(side: PubSubSide) -> None:
    """To give a pull up would cost what is on its way to it a whole deadline."""
    async with opened(side) as source, asyncio.timeout(BOUND_S):
        for number in range(3):
            assert await source.fetch(10, 0.01) == []
            await side.send([Sent(b"%d" % number)])
            found = await source.fetch(10, BOUND_S)
            assert bodies(found) == [b"%d" % number]
            assert found[0].message.deliveries == 1
            await ack(source, found)


async def test_what_nobody_fetches_is_given_back(
    side: PubSubSide, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pubsub, "UNSEEN_S", 0.3)
    async with opened(side) as idle:
        assert await idle.fetch(10, 0.01) == []  # its pull is still open
        await side.send(numbered(5, keys=5))
        async with opened(side) as source:
            found = await fetch_count(source, 5)
            await ack(source, found)


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (grpc.StatusCode.NOT_FOUND, "subscription: Pub/Sub says NotFound"),
        (grpc.StatusCode.PERMISSION_DENIED, "auth: Pub/Sub says PermissionDenied"),
        (grpc.StatusCode.UNAUTHENTICATED, "auth: Pub/Sub says Unauthenticated"),
        (grpc.StatusCode.FAILED_PRECONDITION, "subscription: Pub/Sub says FailedPrecondition"),
    ],
)
async def test_what_the_service_refuses(side: PubSubSide, code: grpc.StatusCode, said: str) -> None:
    async with PubSubFront(side.emulator.host) as front:
        front.refuses = {"Pull": code}
        source = await side.open({"emulator_host": front.host})
        with pytest.raises(SourceRefused, match=said):
            await source.fetch(10, BOUND_S)
        await source.close()


@pytest.mark.parametrize(
    "code",
    [grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.INTERNAL,
     grpc.StatusCode.ABORTED],
)  # fmt: skip
async def test_what_may_pass(side: PubSubSide, code: grpc.StatusCode) -> None:
    await side.send(numbered(1))
    async with PubSubFront(side.emulator.host) as front:
        source = await side.open({"emulator_host": front.host})
        front.refuses = {"Pull": code}
        for wait_s in (BOUND_S, 0.0, 0.0):
            with pytest.raises(SourceUnavailable):
                await source.fetch(10, wait_s)
        assert front.told["Pull"] < 3  # not asked again at once
        front.refuses = {}
        assert bodies(await fetch_count(source, 1)) == [b"0"]
        await source.close()


async def test_a_login_that_may_pull_and_not_look(side: PubSubSide) -> None:
    await side.send(numbered(1))
    async with PubSubFront(side.emulator.host) as front:
        front.refuses = {"GetSubscription": grpc.StatusCode.PERMISSION_DENIED}
        source = await side.open({"emulator_host": front.host})
        assert "may not look at the subscription" in source.warnings()[0]
        await ack(source, await fetch_count(source, 1))
        await source.close()


async def test_the_login_before_is_tried_where_nobody_is(
    side: PubSubSide, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pubsub, "ANSWER_S", 5.0)
    away = {"emulator_host": "127.0.0.1:9"}
    await side.send(numbered(1))
    source = await open_source(side.spec, opened_credential(away, side.credential), name="t")
    assert bodies(await fetch_count(source, 1)) == [b"0"]
    await source.close()
    with pytest.raises(SourceUnavailable):
        await open_source(side.spec, opened_credential(away, away), name="t")


async def test_a_dead_letter_topic_is_told_of(side: PubSubSide) -> None:
    name = f"{side.subscription}-dead"
    policy = DeadLetterPolicy(dead_letter_topic=side.topic, max_delivery_attempts=7)
    await side.subscribe(name, dead_letter_policy=policy)
    source = await side.open(subscription=name)
    (warning,) = source.warnings()
    assert "was delivered 7 times" in warning
    await source.close()


async def test_acknowledgements_are_said_again(
    side: PubSubSide, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pubsub_leases, "AGAIN_S", 0.05)
    await side.send(numbered(4, keys=4))
    async with PubSubFront(side.emulator.host) as front:
        front.refuses = {"Acknowledge": grpc.StatusCode.UNAVAILABLE}
        source = await side.open({"emulator_host": front.host})
        found = await fetch_count(source, 4)
        await ack(source, found)
        front.refuses = {}
        async with asyncio.timeout(BOUND_S):
            while leases(source)._unsaid:  # noqa: ASYNC110 - it tells nobody
                await asyncio.sleep(0.01)
        await source.close()
    async with opened(side) as source:
        assert await source.fetch(10, 1.0) == []


def leases(source: Source) -> pubsub_leases.MessageLeases:
    assert isinstance(source, PubSubSource)
    return source._leases


@pytest.mark.middle  # the shortest deadline is ten seconds
async def test_what_is_in_hand_is_not_handed_out_again(side: PubSubSide) -> None:
    """It comes again, as its deadline could not be extended; the one in hand still counts."""
    await side.send(numbered(2, keys=2))
    async with PubSubFront(side.emulator.host) as front:
        front.loses = {"ModifyAckDeadline"}
        source = await side.open({"emulator_host": front.host})
        found = await fetch_count(source, 2)
        assert await source.fetch(10, 1.3 * side.silent_s) == []
        assert sum(len(held.ack_ids) for held in leases(source)._in_hand.values()) > 2
        front.loses = set()
        await ack(source, found)
        assert await source.fetch(10, 1.3 * side.silent_s) == []
        await source.close()


async def test_a_service_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The emulator keeps nothing when it is killed; so it is stopped, and goes on."""
    with PubSubEmulator() as emulator:
        monkeypatch.setenv("PUBSUB_EMULATOR_HOST", emulator.host)
        side = PubSubSide(emulator)
        await side.make()
        await side.send(numbered(8, keys=8))
        async with opened(side) as source:
            found = await fetch_count(source, 3, most=3)
            process: Any = emulator._process
            process.send_signal(signal.SIGSTOP)
            acknowledging = asyncio.create_task(ack(source, found))
            assert await source.fetch(10, 0.5) == []  # it may be that there is nothing
            process.send_signal(signal.SIGCONT)
            await acknowledging
            got = by_place(found)
            async with asyncio.timeout(BOUND_S):
                while len(got) < 8:
                    some = await source.fetch(10, 1.0)
                    got |= by_place(some)
                    await ack(source, some)
            assert sorted(got.values()) == [b"%d" % number for number in range(8)]


async def test_an_emulator_that_is_killed_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    with PubSubEmulator() as emulator:
        monkeypatch.setenv("PUBSUB_EMULATOR_HOST", emulator.host)
        side = PubSubSide(emulator)
        await side.make()
        await side.send(numbered(2, keys=2))
        async with opened(side) as source:
            found = await fetch_count(source, 2)
            emulator.kill()
            with pytest.raises(SourceUnavailable):
                async with asyncio.timeout(BOUND_S):
                    await source.fetch(10, BOUND_S)
            await ack(source, found)  # does not fail


async def test_many_acknowledgements_at_once(
    side: PubSubSide, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pubsub_leases, "REQUEST_IDS", 10)
    await side.send(numbered(35, keys=35))
    async with PubSubFront(side.emulator.host) as front:
        source = await side.open({"emulator_host": front.host})
        found = await fetch_count(source, 35)
        await ack(source, found)
        assert front.told["Acknowledge"] == 4
        await source.close()
