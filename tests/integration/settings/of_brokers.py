"""The outbox and its stream, consumers, and the hosts of brokers."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import patch

from tape.brokers.by_target import check_target, open_broker
from tape.brokers.jetstream import new_config
from tape.brokers.logins import Logins
from tape.brokers.reach import Reach
from tape.errors import BrokerUnavailable, InvalidArgument, NoCredential, StoreUnavailable
from tape.journal.ids import UlidFactory
from tape.outbox.relay import OutboxRelay
from tape.outbox.term import Term
from tape.programs.connect import bus_broker
from tape.programs.consumers import Consumer, _handle
from tape.settings import Settings
from tape.sources.nats_reader import DurableReader
from tests.integration.settings.demonstrating import Demonstration, Demonstrations, Waited

NATS = "nats://127.0.0.1:4222"


async def _publishes(settings: Settings, _folder: Path) -> bool:
    broker = bus_broker(settings)
    if broker is not None:
        await broker.close()
    return broker is not None


class _Leader:
    """Leads an outbox without rows; notes what it is asked."""

    is_certain = True

    def __init__(self) -> None:
        self.asked: list[Any] = []

    async def read_unpromoted(self, limit: int, _held: Sequence[str] = ()) -> list[Any]:
        self.asked.append(("unpromoted", limit))
        return []

    async def forget_promoted(self, older_than_ms: int, _limit: int) -> int:
        self.asked.append(("forget", older_than_ms))
        return 0

    async def forget_repeats(self, older_than_ms: int, _limit: int) -> int:
        self.asked.append(("forget repeats", older_than_ms))
        return 0

    async def wait(self, timeout_s: float) -> None:
        raise Waited(timeout_s)


class _Store:
    """Of a relay: somebody else leads, or the store is away."""

    def __init__(self, *, away: bool = False) -> None:
        self._away = away
        self.leads: list[Any] = []
        self.outbox = self

    async def has_unpromoted(self) -> bool:
        return True

    async def lead_outbox(self, lead: Any) -> None:
        self.leads.append((lead.lock_key, lead.hung_s))
        if self._away:
            raise StoreUnavailable


def _term(settings: Settings, leader: Any) -> Term:
    return Term(leader, cast("Any", None), None, settings.outbox, settings.limits)


async def _round(settings: Settings, _folder: Path) -> list[Any]:
    """What a term asks of the store in its first round, and how long it then rests."""
    leader = _Leader()
    try:
        await _term(settings, leader).serve(asyncio.Event())
    except Waited as waited:
        return [*leader.asked, waited.seconds]
    raise AssertionError("it did not rest")


async def _rests(settings: Settings, _folder: Path) -> float:
    """After a round that had something to do."""
    stopping: Any = asyncio.get_running_loop().create_future()
    try:
        await _term(settings, _Leader())._rest(stopping, worked=True)
    except Waited as waited:
        return waited.seconds
    raise AssertionError("it did not rest")


async def _elects(settings: Settings, _folder: Path) -> Any:
    """What a relay asks to lead with, and when it asks again: in vain, and of a store away."""
    pauses, leads = [], []
    for away in (False, True):
        store = _Store(away=away)
        relay = OutboxRelay(cast("Any", store), cast("Any", None), UlidFactory(), settings.outbox,
                            settings.limits)  # fmt: skip
        pauses.append(await relay._once(asyncio.Event()))
        leads += store.leads
    return pauses, leads


async def _backs_off(settings: Settings, _folder: Path) -> list[float]:
    term = _term(settings, _Leader())
    pauses = []
    for _ in range(8):
        term._back_off(BrokerUnavailable("away"), 0.0)
        pauses.append(term._pause_s)
    return pauses


async def _gives_way(settings: Settings, _folder: Path) -> bool:
    """After ten seconds of a broker that cannot be reached."""
    term = _term(settings, _Leader())
    term._failing_since = asyncio.get_running_loop().time() - 10
    return term._is_hopeless()


OUTBOX: Demonstrations = {
    "nats": Demonstration(("", NATS), _publishes),
    "batch": Demonstration((3, 4), _round),
    "idle_poll_s": Demonstration((3, 4), _round),
    "keep_s": Demonstration((3, 4), _round),
    "active_poll_s": Demonstration((3, 4), _rests),
    "lead_retry_s": Demonstration((3, 4), _elects),
    "hung_s": Demonstration((3, 4), _elects),
    "lock_key": Demonstration((3, 4), _elects),
    "backoff_first_s": Demonstration((3, 4), _backs_off),
    "backoff_most_s": Demonstration((3, 4), _backs_off),
    "give_way_s": Demonstration((5, 50), _gives_way),
}


async def _stream(settings: Settings, _folder: Path) -> Any:
    return new_config(settings.stream)


STREAM: Demonstrations = {
    "name": Demonstration(("one", "other"), _stream),
    "subjects": Demonstration((("a",), ("b",)), _stream),
    **{
        name: Demonstration((3, 4), _stream)
        for name in ("max_age_s", "max_bytes", "duplicate_window_s", "replicas")
    },
}


def _consumer(settings: Settings) -> Consumer:
    return Consumer(NATS, stream="s", durable="d", subject="a", settings=settings)


async def _durable(settings: Settings, _folder: Path) -> Any:
    return _consumer(settings)._consumer._config().ack_wait


async def _fetches(settings: Settings, _folder: Path) -> int:
    asked: list[int] = []

    async def fetch(_reader: DurableReader, most: int, _wait_s: float) -> list[Any]:
        asked.append(most)
        raise Waited(0)

    with patch.object(DurableReader, "fetch", fetch):
        async with aclosing(_consumer(settings)._consumer.batches()) as batches:
            with suppress(Waited):
                await anext(batches)
    return asked[0]


async def _reconnects(settings: Settings, _folder: Path) -> list[float]:
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 4:
            raise Waited(seconds)

    async def attach(_reader: DurableReader) -> Any:
        raise BrokerUnavailable("away")

    with (
        patch("asyncio.sleep", sleep),
        patch("random.uniform", lambda _least, most: most),
        patch.object(DurableReader, "attach", attach),
    ):
        async with aclosing(_consumer(settings)._consumer.batches()) as batches:
            try:
                await anext(batches)
            except Waited:
                return pauses
    raise AssertionError("it did not wait")


async def _redelivers(settings: Settings, _folder: Path) -> list[float]:
    """After how long a message comes again whose handler fails, the first time and the fifth."""
    delays: list[float] = []

    async def nak(delay_s: float) -> bool:
        delays.append(delay_s)
        return True

    async def fail(_message: Any) -> None:
        raise ValueError

    for deliveries in (1, 5):
        message = SimpleNamespace(deliveries=deliveries, message_id="m", subject="a", nak=nak)
        with patch("tape.programs.consumers.log"):
            await _handle(_consumer(settings), cast("Any", message), fail)
    return delays


CONSUMERS: Demonstrations = {
    "ack_wait_s": Demonstration((3, 4), _durable),
    "fetch": Demonstration((3, 4), _fetches),
    "reconnect_first_s": Demonstration((1, 2), _reconnects),
    "reconnect_most_s": Demonstration((1, 2), _reconnects),
    "retry_first_s": Demonstration((1, 2), _redelivers),
    "retry_most_s": Demonstration((1, 2), _redelivers),
}


async def _may_have(settings: Settings, _folder: Path) -> str:
    try:
        check_target("nats://169.254.1.1:4222/a", Reach.of(settings))
    except InvalidArgument:
        return "refused"
    return "taken"


async def _may_be_near(settings: Settings, _folder: Path) -> str:
    try:
        check_target("nats://10.0.0.5:4222/a", Reach.of(settings))
    except InvalidArgument:
        return "refused"
    return "taken"


def _logs_in(target: str) -> Callable[[Settings, Path], Awaitable[str]]:
    """With which credential it is logged in there: one that nobody has is refused by its alias."""

    async def log_in(settings: Settings, _folder: Path) -> str:
        try:
            await open_broker(target, logins=Logins(settings.credentials))
        except NoCredential as refused:
            return str(refused)
        return "none"

    return log_in


CREDENTIALS: Demonstrations = {
    "nats": Demonstration(("a", "b"), _logs_in(f"{NATS}/subject")),
    "kafka": Demonstration(("a", "b"), _logs_in("kafka://127.0.0.1:9/topic")),
    "pubsub": Demonstration(("a", "b"), _logs_in("pubsub://project/topic")),
    "webhook": Demonstration(("a", "b"), _logs_in("https://hooks.example/x")),
}

OF_BROKERS: Demonstrations = {
    **{f"outbox.{name}": each for name, each in OUTBOX.items()},
    **{f"stream.{name}": each for name, each in STREAM.items()},
    **{f"consumers.{name}": each for name, each in CONSUMERS.items()},
    **{f"credentials.{name}": each for name, each in CREDENTIALS.items()},
    "brokers.hosts": Demonstration(((), ("169.254.1.1",)), _may_have),
    "brokers.allow_private": Demonstration((True, False), _may_be_near),
}
