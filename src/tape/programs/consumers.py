"""Durable consumers of the outbox's stream, for programs.

    consumer = Consumer(
        "nats://127.0.0.1:4222", stream="tape-bus", durable="executor-default",
        subject="intents.executor",
    )
    run_consumer(consumer, handle)

At least once: a message comes again until it is acknowledged, also after a crash in the middle of
its handling. `tape.processed_within` makes the handling of a repeat nothing.
"""

import asyncio
import contextlib
import inspect
import logging
import re
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import orjson

from tape.brokers.by_target import require_nats
from tape.brokers.logins import Logins
from tape.brokers.targets import parse_nats_url
from tape.errors import InvalidArgument
from tape.model.bus_subject import check_bus_pattern
from tape.ports.source import ReceivedMessage
from tape.ports.user_code import as_failure, called
from tape.programs.credentials import DistantWallet
from tape.settings import ConsumerSettings, Settings
from tape.settings.file import read_settings

if TYPE_CHECKING:
    from tape.sources.nats_reader import DurableReader

log = logging.getLogger("tape.consumer")

_DURABLE = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*").fullmatch
_STREAM = re.compile(r"[A-Za-z0-9_-]{1,255}").fullmatch
DURABLE_MOST = 128


class Message:
    """An event as the broker delivers it. `deliveries` counts from 1."""

    def __init__(self, received: ReceivedMessage, reader: "DurableReader") -> None:
        self._message, self._receipt = received
        self._headers = {
            name: value.decode(errors="replace") for name, value in self._message.headers
        }
        self._reader = reader
        self._settled = False

    def __repr__(self) -> str:
        return f"Message({self.subject}, {self.message_id}, delivery {self.deliveries})"

    @property
    def subject(self) -> str:
        return self._message.subject

    @property
    def data(self) -> bytes:
        """The payload as it was sent."""
        return self._message.body

    @property
    def payload(self) -> Any:
        """The payload, parsed at each use."""
        return orjson.loads(self._message.body)

    @property
    def message_id(self) -> str:
        """The event's id, the same each time the event is sent."""
        return self._message.message_id

    @property
    def global_seq(self) -> int:
        """The event's number in the journal; 0 if the message does not come from the journal."""
        text = self.attribute("tapeseq")
        return int(text) if text.isdecimal() else 0

    @property
    def schema_version(self) -> int:
        text = self.attribute("tapeschemaversion")
        return int(text) if text.isdecimal() else 0

    @property
    def trace(self) -> str:
        """The W3C traceparent, empty where there is none."""
        return self.attribute("traceparent")

    @property
    def deliveries(self) -> int:
        return self._message.deliveries

    @property
    def stream_seq(self) -> int:
        """The message's number in the stream."""
        return int(self._message.position)

    @property
    def is_settled(self) -> bool:
        return self._settled

    def attribute(self, name: str) -> str:
        """A CloudEvents attribute, empty where the message has none."""
        return unquote(self._headers.get(f"ce-{name}", ""))

    async def ack(self) -> bool:
        """Acknowledge the message. Returns False if that failed; then it is delivered again."""
        return await self._settle(b"+ACK")

    async def nak(self, delay_s: float = 0.0) -> bool:
        """Refuse the message: it is delivered again, after a pause."""
        nanoseconds = int(delay_s * 1_000_000_000)
        return await self._settle(b'-NAK {"delay": %d}' % nanoseconds if nanoseconds else b"-NAK")

    async def in_progress(self) -> bool:
        """Report that the message is being handled. The consumer does so every third of
        `ack_wait_s`.
        """
        return await self._reader.report(self._receipt)

    async def _settle(self, how: bytes) -> bool:
        if self._settled:
            return False
        self._settled = True
        return await self._reader.settle(self._receipt, how)


Handler = Callable[[Message], Awaitable[None] | None]


class Consumer:
    """A durable consumer. `async with` attaches it, `async for` returns its messages.

    The reader of `async for` acknowledges each message. Several processes may use one durable: each
    message goes to one of them. With `in_order` no message is delivered to any of them before the
    previous one is acknowledged: a strict order, at a round trip per message.

    Without `settings` it reads the settings file, as a command does. If that names a credential for
    NATS, it is opened at the store or server that TAPE_URL or TAPE_STORE names.
    """

    def __init__(
        self,
        nats_url: str,
        *,
        stream: str,
        durable: str,
        subject: str | Sequence[str],
        settings: Settings | ConsumerSettings | None = None,
        in_order: bool = False,
    ) -> None:
        subjects = [subject] if isinstance(subject, str) else list(subject)
        check_durable(durable)
        if not _STREAM(stream):
            raise InvalidArgument("is not letters, digits, - and _", field="stream")
        if not subjects:
            raise InvalidArgument("is empty: name the subjects to consume", field="subject")
        for one in subjects:
            check_bus_pattern(one, field="subject")
        parse_nats_url(nats_url, field="nats_url")
        require_nats()
        from tape.sources.nats_consumer import NatsConsumer

        self.durable = durable
        if settings is None:
            settings = read_settings(None)
        self.settings = settings.consumers if isinstance(settings, Settings) else settings
        whole = settings if isinstance(settings, Settings) else Settings()
        self._wallet = DistantWallet(whole)
        self._consumer = NatsConsumer(
            nats_url,
            stream=stream,
            durable=durable,
            subjects=subjects,
            settings=self.settings,
            in_order=in_order,
            logins=Logins(whole.credentials, self._wallet),
        )

    async def __aenter__(self) -> "Consumer":
        await self._consumer.open()
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self._consumer.close()
        await self._wallet.close()

    async def __aiter__(self) -> AsyncGenerator[Message, None]:
        async with contextlib.aclosing(self._consumer.batches()) as batches:
            async for batch in batches:
                for message in batch:
                    yield Message(message, self._consumer.reader)


def check_durable(name: str) -> str:
    """A durable's name is its cursor: one that is spelled otherwise is another one."""
    if not _DURABLE(name) or len(name) > DURABLE_MOST:
        raise InvalidArgument(
            f"{name!r} is not lower-case words joined by -, such as executor-default. The name "
            "identifies the cursor: a renamed consumer starts at the oldest message that is kept",
            field="durable",
        )
    return name


def run_consumer(consumer: Consumer, handler: Handler, *, concurrency: int = 1) -> None:
    """Handle messages until SIGTERM or SIGINT, then finish the current ones."""
    from tape.client.running_loop import refuse_running_loop
    from tape.programs.event_loop import run_to_end, stopping_on_signals

    refuse_running_loop("run_consumer", "await tape.consumers.consume(consumer, handler)")

    async def work() -> None:
        stop = asyncio.Event()
        with stopping_on_signals(stop):
            await consume(consumer, handler, concurrency=concurrency, stop=stop)

    run_to_end(work())


async def consume(
    consumer: Consumer,
    handler: Handler,
    *,
    concurrency: int = 1,
    stop: asyncio.Event | None = None,
) -> None:
    """Handle messages until `stop` is set: one after the other, or `concurrency` at once.

    A message is acknowledged when its handler returns. If the handler fails, the message is
    delivered again after a pause that grows with each delivery, and other messages are handled
    meanwhile. A handler that is not asynchronous runs in a thread.
    """
    if concurrency < 1:
        raise InvalidArgument(f"{concurrency} is not 1 or more", field="concurrency")
    stopping = asyncio.ensure_future((stop or asyncio.Event()).wait())
    room = asyncio.Semaphore(concurrency)
    working: set[asyncio.Task[None]] = set()
    with ThreadPoolExecutor(concurrency, "tape-consumer") as threads:
        call = _caller(handler, threads)

        async def handle(message: Message) -> None:
            try:
                await _handle(consumer, message, call)
            finally:
                room.release()

        async with consumer, contextlib.aclosing(aiter(consumer)) as messages:
            try:
                while True:
                    await room.acquire()
                    message = await _next(messages, stopping)
                    if message is None:
                        return
                    task = asyncio.create_task(handle(message), name="tape-handler")
                    working.add(task)
                    task.add_done_callback(working.discard)
            finally:
                stopping.cancel()
                await asyncio.gather(*working, return_exceptions=True)


async def _handle(
    consumer: Consumer, message: Message, call: Callable[[Message], Awaitable[None]]
) -> None:
    try:
        await call(message)
    except BaseException as error:
        as_failure(error)  # raised again, if the handler is not to blame
        settings = consumer.settings
        tries = min(message.deliveries - 1, 30)
        delay_s = min(settings.retry_first_s * 2**tries, settings.retry_most_s)
        log.exception(
            "consumer %s: the handler failed for message %s of %s, delivery %d; retry in %g s",
            consumer.durable, message.message_id, message.subject, message.deliveries, delay_s,
        )  # fmt: skip
        await message.nak(delay_s)
    else:
        if not message.is_settled and not await message.ack():
            log.warning(
                "consumer %s: message %s was handled but could not be acknowledged; it will be "
                "delivered again",
                consumer.durable, message.message_id,
            )  # fmt: skip


def _caller(handler: Handler, threads: ThreadPoolExecutor) -> Callable[[Message], Awaitable[None]]:
    loop = asyncio.get_running_loop()

    async def call(message: Message) -> None:
        if inspect.iscoroutinefunction(handler):
            await handler(message)
            return
        result = await loop.run_in_executor(threads, called, handler, message)
        if inspect.isawaitable(result):
            await result

    return call


async def _next(messages: AsyncIterator[Message], stopping: asyncio.Future[Any]) -> Message | None:
    """The next message; None when it is time to stop."""
    fetching = asyncio.ensure_future(anext(messages, None))
    try:
        await asyncio.wait((fetching, stopping), return_when=asyncio.FIRST_COMPLETED)
        return None if stopping.done() else fetching.result()
    finally:
        if not fetching.done():
            fetching.cancel()
            await asyncio.wait((fetching,))
