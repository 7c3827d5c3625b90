"""Apps that poll: what they get is recorded before it is acknowledged, and none of it is lost."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import tape
from tape.model.lease import Taker
from tape.model.message import SourceMessage
from tape.model.poll import places_of
from tape.model.polled_message import polled_item
from tape.model.subscription_spec import PayloadFrom, SourceKind, SourceSpec
from tape.ports.source import Source
from tape.reactions.threads import HandlerThreads
from tape.runs.declare import Apps
from tape.runs.looking.offline import ReplayVerdict, replay_offline
from tape.runs.looking.timeline import timeline
from tape.settings import Limits, Settings
from tape.telemetry import metrics, tracing
from tape.testing.polling import MessagesToPoll
from tape.testing.runs import AppKit, Crash, app_kit, crashes

NATS: dict[str, Any] = {
    "source": "nats", "auth": "nats_main", "stream": "ORDERS", "consumer": "drain",
}  # fmt: skip
ORDERS = ({"order": 1}, {"order": 2}, {"order": 3})


@pytest.fixture
def messages() -> MessagesToPoll:
    return MessagesToPoll(*ORDERS)


@asynccontextmanager
async def a_kit(
    tmp_path: Path, apps: Apps, messages: Any, settings: Settings | None = None
) -> AsyncIterator[AppKit]:
    async with app_kit(tmp_path, apps=apps, open_source=messages, settings=settings) as kit:
        yield kit


async def outcome(kit: AppKit, app: tape.App[Any], payload: Any = None) -> tape.Run:
    begun = await kit.start_run(app, payload)
    run = await kit.settle(begun.run_id)
    assert run is not None
    return run


def returned(run: tape.Run) -> Any:
    assert run.status == tape.RunStatus.TERMINAL, run.outcome_json
    return orjson.loads(run.outcome_json)


def orders_of(polled: tape.Polled) -> list[int]:
    return [message["payload"]["order"] for message in polled.messages]


@pytest.mark.parametrize("ack", ["on_success", "auto"])
async def test_a_poll_brings_what_there_is_and_acknowledges_it(
    tmp_path: Path, apps: Apps, messages: MessagesToPoll, ack: Any
) -> None:
    at_the_poll: list[list[str]] = []

    @tape.app("drain", registry=apps)
    async def drain(ctx: tape.Context) -> Any:
        polled = await ctx.poll(**NATS, ack=ack)
        at_the_poll.append([*messages.acked])
        again = await ctx.poll(**NATS, ack=ack)
        return [polled.count, polled.acked, polled.receipts, orders_of(polled), again.count]

    async with a_kit(tmp_path, apps, messages) as kit:
        run = await outcome(kit, drain)
        assert returned(run) == [3, ack == "auto", [], [1, 2, 3], 0]
        assert at_the_poll == [messages.places if ack == "auto" else []]
        assert messages.acked == messages.places
        assert (messages.opened, messages.closed) == (1, 1)
        empty = await outcome(kit, drain)
        assert orjson.loads(empty.outcome_json)[0] == 0
        journal = await kit.journal(run.run_id)
        assert journal.steps == ["decision recorded poll/nats/ORDERS/drain"] * 2


async def test_a_message_is_what_a_subscription_would_give(
    tmp_path: Path, apps: Apps, messages: MessagesToPoll
) -> None:
    @tape.app("drain", registry=apps)
    async def drain(ctx: tape.Context) -> Any:
        return (await ctx.poll(**NATS)).messages[0]

    async with a_kit(tmp_path, apps, messages) as kit:
        assert returned(await outcome(kit, drain)) == {
            "payload": {"order": 1},
            "message": {
                "id": "test/messages/1",
                "place": "test/messages/1",
                "source": "test",
                "subscription": "",
                "subject": "",
                "headers": {},
                "attributes": {},
                "key": "",
                "timestamp_ms": 0,
                "content_type": "",
                "schema_hint": "",
                "body_encoding": "",
                "trace": None,
            },
        }


async def test_a_synchronous_app_polls(
    tmp_path: Path, apps: Apps, messages: MessagesToPoll
) -> None:
    @tape.app("drain", registry=apps)
    def drain(ctx: tape.SyncContext) -> Any:
        polled = ctx.poll(**NATS, ack="manual", batch=2)
        return [orders_of(polled), ctx.ack(polled.receipts[:1])]

    async with a_kit(tmp_path, apps, messages) as kit:
        assert returned(await outcome(kit, drain)) == [[1, 2], 1]
        assert messages.acked == messages.places[:1]
        assert messages.waiting == messages.places[1:]


@pytest.mark.parametrize("ack", ["on_success", "manual"])
async def test_what_a_failed_run_has_in_hand_comes_again(
    tmp_path: Path, apps: Apps, messages: MessagesToPoll, ack: Any
) -> None:
    @tape.app("drain", registry=apps)
    async def drain(ctx: tape.Context) -> None:
        await ctx.poll(**NATS, ack=ack)
        raise ValueError("no")

    async with a_kit(tmp_path, apps, messages) as kit:
        assert (await outcome(kit, drain)).status == tape.RunStatus.FAILED
    assert messages.acked == []
    assert messages.waiting == messages.places


async def test_receipts_are_acknowledged_once_and_by_their_own_run(
    tmp_path: Path, apps: Apps, messages: MessagesToPoll
) -> None:
    @tape.app("drain", registry=apps)
    async def drain(ctx: tape.Context) -> Any:
        polled = await ctx.poll(**NATS, ack="manual")
        counts = [await ctx.ack(polled.receipts), await ctx.ack(polled.receipts)]
        with pytest.raises(tape.InvalidArgument, match="not a receipt"):
            await ctx.ack([places_of(polled.messages)[0]])
        return counts

    async with a_kit(tmp_path, apps, messages) as kit:
        run = await outcome(kit, drain)
        assert returned(run) == [3, 0]
        texts = [line.text for line in timeline(await kit.read_run(run.run_id))]
        assert "draw 0: polls nats/ORDERS/drain, which brings 3 messages" in texts
        assert "draw 1: acknowledges messages" in texts
    assert messages.acked == messages.places


@pytest.mark.parametrize("ack", ["on_success", "manual"])
async def test_a_run_that_waits_gives_back_and_asks_again(
    tmp_path: Path, apps: Apps, messages: MessagesToPoll, ack: Any
) -> None:
    """`on_success`: acknowledged at the end all the same. `manual`: nothing is in hand any more."""

    @tape.app("drain", registry=apps)
    async def drain(ctx: tape.Context) -> Any:
        polled = await ctx.poll(**NATS, ack=ack)
        await ctx.gate("go on")
        count = await ctx.ack(polled.receipts) if ack == "manual" else None
        return [orders_of(polled), count]

    async with a_kit(tmp_path, apps, messages) as kit:
        begun = await kit.start_run(drain)
        await kit.settle()
        assert messages.acked == []
        assert messages.waiting == messages.places
        messages.send({"order": 4})
        await kit.send_signal(begun.run_id, "go on")
        run = await kit.settle(begun.run_id)
        assert run is not None
        assert returned(run) == [[1, 2, 3], None if ack == "on_success" else 0]
        assert messages.acked == (messages.places[:3] if ack == "on_success" else [])
        assert messages.in_hand == []
        assert messages.waiting == (messages.places[3:] if ack == "on_success" else messages.places)


async def test_a_run_that_has_waited_gets_no_message_twice(
    tmp_path: Path, apps: Apps, messages: MessagesToPoll
) -> None:
    @tape.app("drain", registry=apps)
    async def drain(ctx: tape.Context) -> Any:
        first = await ctx.poll(**NATS)
        await ctx.sleep(5)
        second = await ctx.poll(**NATS)
        return [orders_of(first), orders_of(second)]

    async with a_kit(tmp_path, apps, messages) as kit:
        begun = await kit.start_run(drain)
        await kit.work()
        messages.send({"order": 4})
        run = await kit.settle(begun.run_id)
        assert run is not None
        assert returned(run) == [[1, 2, 3], [4]]
    assert sorted(messages.acked) == messages.places


class TwoConsumers:
    """Opens two sources whose messages have the same places, as consumers of one stream have."""

    def __init__(self) -> None:
        self.of = {"a": MessagesToPoll(*ORDERS), "b": MessagesToPoll(*ORDERS)}

    async def __call__(self, spec: SourceSpec, name: str) -> Source:
        return await self.of[spec.consumer](spec, name)


@pytest.mark.parametrize("ack", ["on_success", "auto", "manual"])
async def test_two_consumers_of_one_stream_are_two(tmp_path: Path, apps: Apps, ack: Any) -> None:
    consumers = TwoConsumers()

    @tape.app("drain", registry=apps)
    async def drain(ctx: tape.Context) -> Any:
        first = await ctx.poll(**(NATS | {"consumer": "a"}), ack=ack)
        second = await ctx.poll(**(NATS | {"consumer": "b"}), ack=ack)
        if ack == "manual":
            assert await ctx.ack(first.receipts) == 3
        return [orders_of(first), orders_of(second)]

    async with a_kit(tmp_path, apps, consumers) as kit:
        assert returned(await outcome(kit, drain)) == [[1, 2, 3], [1, 2, 3]]
    a, b = consumers.of["a"], consumers.of["b"]
    assert a.acked == a.places
    assert b.acked == ([] if ack == "manual" else b.places)


async def test_a_poll_is_cut_to_what_a_run_records_at_once(tmp_path: Path, apps: Apps) -> None:
    settings = Settings(limits=replace(Limits(), payload_bytes=4_000))
    messages = MessagesToPoll(*({"n": n, "text": "x" * 1_000} for n in range(5)))

    @tape.app("drain", registry=apps)
    async def drain(ctx: tape.Context) -> Any:
        polled = await ctx.poll(**NATS, ack="auto")
        return [message["payload"]["n"] for message in polled.messages]

    async with a_kit(tmp_path, apps, messages, settings) as kit:
        polled = [returned(await outcome(kit, drain)) for _ in range(3)]
    assert polled == [[0, 1, 2], [3, 4], []]
    assert messages.acked == messages.places


async def test_what_cannot_be_read_blocks_nothing(tmp_path: Path, apps: Apps) -> None:
    settings = Settings(limits=replace(Limits(), payload_bytes=4_000))
    deep = b"[" * 63 + b"]" * 63
    messages = MessagesToPoll(
        b"", b"\xff\xfe", b"{", deep, b"123456789012345678901234567890", b'"' + b"x" * 5_000 + b'"'
    )

    @tape.app("drain", registry=apps)
    async def drain(ctx: tape.Context) -> Any:
        polled = await ctx.poll(**NATS, ack="auto")
        return [
            [message["payload"], message["message"]["body_encoding"], message.get("refused")]
            for message in polled.messages
        ]

    async with a_kit(tmp_path, apps, messages, settings) as kit:
        found = returned(await outcome(kit, drain)) + returned(await outcome(kit, drain))
    assert found == [
        ["", "", "not_json"],
        ["//4=", "base64", "not_json"],
        ["{", "", "not_json"],
        [deep.decode(), "", "too_deep"],
        ["123456789012345678901234567890", "", "number_too_large"],
        [None, "", "too_large"],
    ]
    assert messages.acked == messages.places


@pytest.mark.parametrize("payload_from", [*PayloadFrom])
def test_an_item_is_within_the_limits_whatever_the_message_is(payload_from: PayloadFrom) -> None:
    limits = replace(Limits(), payload_bytes=2_000)
    spec = SourceSpec(SourceKind.NATS)
    large = [
        SourceMessage("nats", "nats/S@1", "1", b"", (("x", b"y" * 5_000),)),
        SourceMessage("nats", "nats/S@1", "1", b"", key="k" * 5_000, subject="k" * 5_000),
    ]
    if payload_from is not PayloadFrom.ATTRIBUTES:
        large.append(SourceMessage("nats", "nats/S@1", "1", b"\0" * 5_000))
    for message in large:
        item = polled_item(message, spec, payload_from, limits)
        assert len(item) <= limits.payload_bytes
        found = orjson.loads(item)
        assert (found["payload"], found["refused"]) == (None, "too_large")
        assert places_of([found]) == [message.place]


class AwayFor:
    """Opens sources only after it has refused to, so often."""

    def __init__(self, messages: MessagesToPoll, *errors: Exception) -> None:
        self._messages = messages
        self._errors = [*errors]

    async def __call__(self, spec: SourceSpec, name: str) -> Source:
        if self._errors:
            raise self._errors.pop(0)
        return await self._messages(spec, name)


@pytest.mark.parametrize(
    "error",
    [
        tape.SourceUnavailable("nobody there"),
        tape.SourceRefused("nobody there"),
        tape.NoCredential("nobody there"),
        tape.PermissionDenied("nobody there"),
        tape.WalletLocked("nobody there"),
        tape.WalletUnavailable("nobody there"),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_a_source_that_is_away_fails_the_step_now_and_in_every_replay(
    tmp_path: Path, apps: Apps, messages: MessagesToPoll, error: tape.TapeError
) -> None:
    @tape.app("drain", registry=apps)
    async def drain(ctx: tape.Context) -> Any:
        try:
            polled = await ctx.poll(**NATS)
        except tape.EffectFailed as failed:
            why = str(failed)
            await ctx.sleep(1)
            polled = await ctx.poll(**NATS)
        return [why, polled.count]

    away = AwayFor(messages, error)
    async with a_kit(tmp_path, apps, away) as kit:
        run = await outcome(kit, drain)
        why, count = returned(run)
        assert count == 3
        assert "poll/nats/ORDERS/drain" in why
        assert "nobody there" in why
        texts = [line.text for line in timeline(await kit.read_run(run.run_id))]
        assert "decision 0: failed to poll nats/ORDERS/drain" in texts


@pytest.mark.parametrize("is_caught", [True, False])
async def test_what_a_client_says_in_an_unknown_error_is_nowhere(
    tmp_path: Path,
    apps: Apps,
    messages: MessagesToPoll,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    is_caught: bool,
) -> None:
    @tape.app("drain", registry=apps)
    async def drain(ctx: tape.Context) -> Any:
        try:
            return (await ctx.poll(**NATS)).count
        except tape.EffectFailed as failed:
            if not is_caught:
                raise
            await ctx.sleep(1)  # so that it goes on from its journal
            return [str(failed), (await ctx.poll(**NATS)).count]

    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(tracing, "TRACER", provider.get_tracer("tape"))
    away = AwayFor(messages, ValueError("no login with password hunter2"))
    async with a_kit(tmp_path, apps, away) as kit:
        with tracing.TRACER.start_as_current_span("outside"):
            begun = await kit.start_run(drain)
        run = await kit.settle(begun.run_id)
        assert run is not None
        said = "the source's client failed with ValueError; the worker's log says where"
        if is_caught:
            why, count = returned(run)
            assert (why.endswith(f"SourceUnavailable: {said}"), count) == (True, 3)
        else:
            assert run.status == tape.RunStatus.FAILED
        assert said in run.outcome_json
        told = [run.outcome_json, *map(str, await kit.read_run(run.run_id))]
        spans = [span.to_json() for span in exporter.get_finished_spans()]
        assert any("ValueError" in text for text in told)
        assert any("SourceUnavailable" in text for text in spans)
        assert not [text for text in (*told, *spans, caplog.text) if "hunter2" in text]
    (line,) = [each.getMessage() for each in caplog.records if "left out" in each.getMessage()]
    assert line.startswith(
        f"run {run.run_id}: to poll nats/ORDERS/drain has failed with ValueError;"
    )
    assert line.endswith("in __call__")


async def test_a_journal_that_is_away_is_no_answer_of_the_source(
    tmp_path: Path, apps: Apps, messages: MessagesToPoll
) -> None:
    @tape.app("drain", registry=apps)
    async def drain(ctx: tape.Context) -> Any:
        return (await ctx.poll(**NATS)).count

    away = AwayFor(messages, tape.StoreUnavailable("the wallet's store is away"))
    async with a_kit(tmp_path, apps, away) as kit:
        begun = await kit.start_run(drain)
        await kit.work()
        kit.clock.advance(60)
        run = await kit.settle(begun.run_id)
        assert run is not None
        assert returned(run) == 3


async def test_a_process_that_opens_no_sources_says_so(tmp_path: Path, apps: Apps) -> None:
    @tape.app("drain", registry=apps)
    async def drain(ctx: tape.Context) -> Any:
        return (await ctx.poll(**NATS)).count

    async with a_kit(tmp_path, apps, None) as kit:
        run = await outcome(kit, drain)
    assert run.status == tape.RunStatus.FAILED
    assert "open_source" in run.outcome_json


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"source": "webhook"}, "source"),
        ({"auth": ""}, "auth"),
        ({"topic": "t"}, "topic"),
        ({"consumer": "a.b"}, "consumer"),
        ({"stream": "a\nb"}, "stream"),
        ({"batch": 0}, "batch"),
        ({"batch": True}, "batch"),
        ({"timeout_ms": 5_001}, "timeout_ms"),
        ({"ack": "never"}, "ack"),
        ({"payload_from": "body"}, "payload_from"),
        ({"source": "file", "stream": "", "consumer": "", "folder": "/tmp"}, "auth"),
        ({"source": "pubsub", "stream": "", "consumer": "", "subscription": "s"}, "subscription"),
    ],
)
async def test_a_bad_request_names_its_field(
    tmp_path: Path, apps: Apps, messages: MessagesToPoll, wrong: dict[str, Any], field: str
) -> None:
    @tape.app("drain", registry=apps)
    async def drain(ctx: tape.Context) -> Any:
        with pytest.raises(tape.InvalidArgument) as refused:
            await ctx.poll(**(NATS | wrong))
        return refused.value.field

    async with a_kit(tmp_path, apps, messages) as kit:
        assert returned(await outcome(kit, drain)) == field
    assert messages.opened == 0


async def test_an_offline_replay_polls_nothing(
    tmp_path: Path, apps: Apps, messages: MessagesToPoll
) -> None:
    @tape.app("drain", registry=apps)
    async def drain(ctx: tape.Context) -> Any:
        polled = await ctx.poll(**NATS, ack="manual")
        return [polled.count, await ctx.ack(polled.receipts)]

    @tape.app("drain", registry=Apps())
    async def other(ctx: tape.Context) -> Any:
        return (await ctx.poll(**NATS, ack="auto")).count

    @tape.app("drain", registry=Apps())
    async def longer(ctx: tape.Context) -> Any:
        polled = await ctx.poll(**NATS, ack="manual")
        await ctx.ack(polled.receipts)
        return (await ctx.poll(**NATS)).count

    threads = HandlerThreads(1)
    async with a_kit(tmp_path, apps, messages) as kit:
        run = await outcome(kit, drain)
        entries = await kit.read_run(run.run_id)
        messages.send({"order": 4})
        same = await replay_offline(run, drain, entries, threads)
        assert (same.verdict, same.steps) == (ReplayVerdict.SAME, 2)
        assert (await replay_offline(run, other, entries, threads)).verdict == "diverged"
        further = await replay_offline(run, longer, entries, threads)
        assert "polls nats/ORDERS/drain" in further.text
    threads.shutdown()
    assert messages.waiting == messages.places[3:]


def _lost(messages: MessagesToPoll, journal: set[str]) -> set[str]:
    """Places that neither the journal nor the source has."""
    return {*messages.places} - journal - {*messages.waiting} - {*messages.in_hand}


async def _recorded(crash: Crash) -> set[str]:
    async with app_kit(crash.folder, apps=crash.apps, clock=crash.clock) as kit:
        polls = [
            entry.payload["response"]
            for entry in await kit.read_run(crash.run_id)
            if entry.kind == "decision" and entry.payload["model"].startswith("poll/")
        ]
    return {place for items in polls for place in places_of(items)}


def _polling(apps: Apps, ack: Any) -> tape.App[Any]:
    @tape.effect(registry=apps)
    async def settle(order: int) -> int:
        return order

    @tape.app("drain", registry=apps)
    async def drain(ctx: tape.Context) -> Any:
        polled = await ctx.poll(**NATS, ack=ack, batch=2)
        settled = [await ctx.call(settle, order) for order in orders_of(polled)]
        acked = await ctx.ack(polled.receipts) if ack == "manual" else None
        more = await ctx.poll(**NATS, ack=ack)
        return [settled, acked, orders_of(more)]

    return drain


@pytest.mark.parametrize("ack", ["on_success", "auto", "manual"])
async def test_cut_off_everywhere_nothing_is_lost(tmp_path: Path, ack: Any) -> None:
    """Acknowledged is only what is recorded; what is not, comes to the next poll."""
    apps, made = Apps(), list[MessagesToPoll]()
    drain = _polling(apps, ack)

    def fresh() -> MessagesToPoll:
        made.append(MessagesToPoll(*ORDERS))
        return made[-1]

    places, came_again = [], 0
    async for crash in crashes(tmp_path, drain, apps=apps, open_source=fresh):
        messages = made[-1]
        recorded = await _recorded(crash)
        assert {*messages.acked} <= recorded, crash.boundary
        assert _lost(messages, recorded) == set(), crash.boundary
        came_again += bool(messages.in_hand)
        messages.redeliver()
        run = await crash.recovered()
        settled, acked, more = returned(run)
        assert settled == [1, 2], crash.boundary
        assert {*messages.acked} <= await _recorded(crash)
        assert messages.in_hand == [], crash.boundary
        if ack == "manual":
            assert acked in (0, 2), crash.boundary
            assert 3 in more, crash.boundary
            assert sorted([*messages.acked, *messages.waiting]) == messages.places, crash.boundary
        else:
            assert more == [3], crash.boundary
            had_ended = crash.journal.tokens() == [1] and ack == "on_success"
            if not had_ended:  # nobody is left to acknowledge for it
                assert sorted(messages.acked) == messages.places, crash.boundary
            assert _lost(messages, await _recorded(crash)) == set()
        places.append(crash.boundary)
    assert came_again > 0
    for expected in ("before poll", "after poll", "before ack", "after ack", "before close"):
        assert any(place.startswith(expected) for place in places), expected
    assert len(places) > 12


async def test_cut_off_where_it_waits_nothing_is_lost(tmp_path: Path) -> None:
    apps, made = Apps(), list[MessagesToPoll]()

    @tape.app("drain", registry=apps)
    async def drain(ctx: tape.Context) -> Any:
        polled = await ctx.poll(**NATS)
        await ctx.sleep(5)
        return orders_of(polled)

    def fresh() -> MessagesToPoll:
        made.append(MessagesToPoll(*ORDERS))
        return made[-1]

    count = 0
    async for crash in crashes(tmp_path, drain, apps=apps, open_source=fresh):
        messages = made[-1]
        assert _lost(messages, await _recorded(crash)) == set(), crash.boundary
        messages.redeliver()
        assert returned(await crash.recovered()) == [1, 2, 3], crash.boundary
        assert {*messages.acked} | {*messages.waiting} == {*messages.places}, crash.boundary
        count += 1
    assert count > 8


async def test_a_branch_that_is_cut_off_gives_back_at_once(
    tmp_path: Path, apps: Apps, messages: MessagesToPoll
) -> None:
    """Its poll is not recorded: what it had fetched comes to the next poll of the same run."""
    held = Held(messages)

    @tape.app("drain", registry=apps)
    async def drain(ctx: tape.Context) -> Any:
        polling = asyncio.create_task(ctx.poll(**NATS))
        await held.fetched.wait()
        polling.cancel()
        await asyncio.gather(polling, return_exceptions=True)
        assert messages.waiting == messages.places
        held.lets_go = True
        return orders_of(await ctx.poll(**NATS))

    async with a_kit(tmp_path, apps, held) as kit:
        assert returned(await outcome(kit, drain)) == [1, 2, 3]
    assert messages.acked == messages.places


@pytest.mark.parametrize("on_the_loop", [True, False])
async def test_a_poll_ends_with_its_process(
    tmp_path: Path, apps: Apps, messages: MessagesToPoll, *, on_the_loop: bool
) -> None:
    """A client that closes while an app polls gives back, and somebody else goes on."""
    held = Held(messages)
    if on_the_loop:

        @tape.app("drain", registry=apps)
        async def drain(ctx: tape.Context) -> Any:
            return orders_of(await ctx.poll(**NATS))

    else:

        @tape.app("drain", registry=apps)
        def drain(ctx: tape.SyncContext) -> Any:
            return orders_of(ctx.poll(**NATS))

    async with a_kit(tmp_path, apps, held) as kit:
        running = asyncio.create_task(kit.run(drain, invocation_id="once"))
        await held.fetched.wait()
    with pytest.raises(tape.errors.Closed):
        await running
    assert messages.waiting == messages.places
    assert messages.closed == 1
    async with a_kit(tmp_path, apps, messages) as kit:
        await kit.settle()
        (run,) = await kit.list_runs()
        assert returned(run) == [1, 2, 3]


class Held:
    """Opens sources whose second fetch takes for ever, until it is let go."""

    def __init__(self, messages: MessagesToPoll) -> None:
        self._messages = messages
        self.fetched = asyncio.Event()
        self.lets_go = False

    async def __call__(self, spec: SourceSpec, name: str) -> Source:
        source: Any = await self._messages(spec, name)
        fetch = source.fetch

        async def hold(most: int, wait_s: float) -> Any:
            if self.fetched.is_set() and not self.lets_go:
                await asyncio.Event().wait()
            self.fetched.set()
            return await fetch(most, wait_s)

        source.fetch = hold
        opened: Source = source
        return opened


async def test_a_driver_that_lost_its_lease_gives_back_and_records_nothing(
    tmp_path: Path, apps: Apps, messages: MessagesToPoll
) -> None:
    """The other driver polls, and its journal has one poll."""
    others: list[AppKit] = []

    class TakenMeanwhile:
        async def __call__(self, spec: SourceSpec, name: str) -> Source:
            if not others:
                others.append(kit)
                kit.clock.advance(60)
                (run,) = await kit.list_runs()
                taken = await kit._operations.runs.resume_run(
                    run.run_id, Taker("other", "recovery", 1_000)
                )
                assert taken.fencing_token == 2
            return await messages(spec, name)

    @tape.app("drain", registry=apps)
    async def drain(ctx: tape.Context) -> Any:
        return orders_of(await ctx.poll(**NATS, ack="auto"))

    async with a_kit(tmp_path, apps, TakenMeanwhile()) as kit:
        begun = await kit.start_run(drain)
        await kit.work()
        assert (messages.acked, messages.waiting) == ([], messages.places)
        assert (await kit.journal(begun.run_id)).steps == []
        kit.clock.advance(60)
        run = await kit.settle(begun.run_id)
        assert run is not None
        assert returned(run) == [1, 2, 3]
        assert messages.acked == messages.places


async def test_a_poll_has_a_span(
    tmp_path: Path, apps: Apps, messages: MessagesToPoll, monkeypatch: pytest.MonkeyPatch
) -> None:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(tracing, "TRACER", provider.get_tracer("tape"))

    @tape.app("drain", registry=apps)
    async def drain(ctx: tape.Context) -> Any:
        return (await ctx.poll(**NATS)).count

    async with a_kit(tmp_path, apps, messages) as kit:
        with tracing.TRACER.start_as_current_span("outside"):
            await kit.start_run(drain)
        await kit.settle()
    spans = {span.name: span for span in exporter.get_finished_spans()}
    span, run = spans["tool.dispatch.subscription"], spans["run drain"]
    assert span.parent is not None
    assert run.context is not None
    assert span.parent.span_id == run.context.span_id
    attributes = dict(span.attributes or {})
    assert attributes["tape.source"] == "nats"
    assert attributes["tape.polled"] == "nats/ORDERS/drain"
    assert attributes["tape.messages"] == 3
    provider.shutdown()


async def test_what_is_polled_is_counted(
    tmp_path: Path,
    apps: Apps,
    messages: MessagesToPoll,
    counted: Callable[[str], float],
) -> None:
    @tape.app("drain", registry=apps)
    async def drain(ctx: tape.Context) -> Any:
        return (await ctx.poll(**NATS)).count

    before = counted("nats")
    async with a_kit(tmp_path, apps, messages) as kit:
        returned(await outcome(kit, drain))
    assert counted("nats") == before + 3


@pytest.fixture
def counted() -> Callable[[str], float]:
    return lambda source: metrics.POLLED_MESSAGES.labels(source).value
