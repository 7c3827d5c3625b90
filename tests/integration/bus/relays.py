"""Relays on the test's own event loop, and what came of them."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

from nats.aio.client import Client

from tape.bus import Bus, FollowQuery
from tape.model.entry import Entry
from tape.programs.outbox_relay import relay_until
from tape.settings import ConsumerSettings, OutboxSettings, Settings, StreamSettings

T = TypeVar("T")
BOUND_S = 60.0
OUTBOX = OutboxSettings(
    batch=10, active_poll_s=0.01, idle_poll_s=0.05, lead_retry_s=0.05, hung_s=20.0,
    backoff_first_s=0.05, backoff_most_s=0.2,
)  # fmt: skip
CONSUMERS = ConsumerSettings(reconnect_first_s=0.05, retry_first_s=0.05, retry_most_s=0.2)


def quick(nats_url: str, prefix: str) -> Settings:
    return Settings(
        outbox=replace(OUTBOX, nats=nats_url),
        stream=StreamSettings(name=prefix, subjects=(f"{prefix}.>",), max_bytes=1 << 24),
        consumers=CONSUMERS,
    )


class Relays:
    def __init__(self, store_url: str, settings: Settings) -> None:
        self.settings = settings
        self._store_url = store_url
        self._running: list[tuple[asyncio.Event, asyncio.Task[None]]] = []

    def start(self, **outbox: Any) -> None:
        settings = replace(self.settings, outbox=replace(self.settings.outbox, **outbox))
        stop = asyncio.Event()
        task = asyncio.create_task(relay_until(stop, self._store_url, settings=settings))
        self._running.append((stop, task))

    async def stop(self) -> None:
        """All of them; an error of any is ours."""
        running, self._running = self._running, []
        for stop, _task in running:
            stop.set()
        await asyncio.gather(*(task for _stop, task in running))

    async def stop_first(self) -> None:
        stop, task = self._running.pop(0)
        stop.set()
        await task


class Stored(NamedTuple):
    """A message as the stream has it."""

    subject: str
    payload: str
    headers: dict[str, str]

    @property
    def message_id(self) -> str:
        return self.headers["Nats-Msg-Id"]


async def read_stream(nats_url: str, stream: str, count: int) -> list[Stored]:
    """The first so many messages of a stream, when they are there."""
    client = Client()
    await client.connect(nats_url)
    try:
        jetstream = client.jetstream()

        async def enough() -> bool:
            names = [info.config.name for info in await jetstream.streams_info()]
            if stream not in names:
                return False
            return (await jetstream.stream_info(stream)).state.messages >= count

        await until(enough)
        found = [await jetstream.get_msg(stream, seq) for seq in range(1, count + 1)]
    finally:
        await client.close()
    return [Stored(m.subject or "", (m.data or b"").decode(), m.headers or {}) for m in found]


async def until(true: Callable[[], Awaitable[T]]) -> T:
    """What it says once it says something: nobody tells us when."""
    async with asyncio.timeout(BOUND_S):
        while not (found := await true()):  # noqa: ASYNC110 - only asking tells
            await asyncio.sleep(0.02)
    return found


async def entries(bus: Bus, pattern: str) -> list[Entry]:
    head = (await bus.info()).head_global_seq
    if not head:
        return []
    pages = bus.follow(FollowQuery(pattern, until=head))
    return [entry async for page in pages for entry in page.entries]
