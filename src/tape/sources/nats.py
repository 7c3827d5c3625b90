"""NATS JetStream: the messages of a durable pull consumer that somebody made beforehand.

It is bound to, never created, and refused if it is not there, is a push consumer, or does not take
explicit acknowledgements. See `nats_reader.py` for what is in hand and `nats_durable.py` for the
incarnation in a place.

Everything that is acknowledged is published and then flushed, so `ack` returns when the server has
read it. It has not promised to keep it: an acknowledgement that is lost with the server, or on the
way, means that the message comes again after the consumer's `ack_wait`.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

from nats.aio.msg import Msg

from tape.brokers.nats_connection import LoginRefused, NatsConnection
from tape.brokers.nats_login import NatsAddress
from tape.errors import SourceRefused, SourceUnavailable
from tape.model.subscription_spec import SourceSpec
from tape.ports.credentials import OpenedCredential
from tape.ports.source import ReceivedMessage
from tape.sources.nats_durable import ConsumerState, consumer_state
from tape.sources.nats_login import connect_nats, nats_addresses
from tape.sources.nats_reader import AWAY, DurableReader
from tape.sources.next_try import NextTry

Answer = TypeVar("Answer")


class JetStreamSource:
    def __init__(self, addresses: Sequence[NatsAddress], spec: SourceSpec, name: str) -> None:
        """The first address has the login that is good now; the others, those before it."""
        self._addresses = addresses
        self._spec = spec
        self._name = name
        self._reader = DurableReader(self._connect, spec.stream, spec.consumer)
        self._next_try = NextTry()
        self._away = SourceUnavailable()

    def __repr__(self) -> str:
        return f"JetStreamSource({self._spec.stream}/{self._spec.consumer})"

    async def open(self) -> None:
        await self._asked(self._reader.attach)

    async def fetch(self, most: int, wait_s: float) -> list[ReceivedMessage]:
        if not await self._next_try.wait(wait_s):
            raise self._away
        return await self._asked(lambda: self._reader.fetch(most, wait_s))

    async def ack(self, receipts: Sequence[str]) -> None:
        await self._reader.settle_all(receipts, Msg.Ack.Ack)

    async def nak(self, receipts: Sequence[str]) -> None:
        await self._reader.settle_all(receipts, Msg.Ack.Nak)

    async def backlog(self) -> int | None:
        """What was not delivered yet, and what was and is not acknowledged."""
        state = await self._state()
        return state.waiting + state.in_hand

    async def passed(self) -> Mapping[str, int]:
        """The consumer's ack floor. A server that crashes may fall behind it for as long as it
        holds its writes back (`sync_interval`, two minutes unless configured)."""
        state = await self._state()
        bound = self._reader.bound
        return {bound.origin: state.passed} if bound else {}

    def warnings(self) -> list[str]:
        bound, connection = self._reader.bound, self._reader.connection
        found = [*bound.warnings] if bound else []
        if connection is not None and connection.forbidden:
            found.append(f"auth: the server says of this login: {connection.forbidden}")
        return found

    async def close(self) -> None:
        await self._reader.close()

    async def _connect(self) -> NatsConnection:
        return await connect_nats(self._addresses, self._name)

    async def _state(self) -> ConsumerState:
        """Over the connection that there is: only `fetch` makes another, and finds out that one
        does not work."""
        connection = self._reader.connection
        if connection is None:
            raise self._unavailable("there is no connection")
        try:
            return await consumer_state(connection, self._spec.stream, self._spec.consumer)
        except AWAY as error:
            raise self._unavailable(error) from None

    async def _asked(self, ask: Callable[[], Awaitable[Answer]]) -> Answer:
        """What it answers, errors as those of a source."""
        try:
            answer = await ask()
        except LoginRefused as refusal:
            raise SourceRefused(f"auth: {refusal}") from None
        except AWAY as error:
            self._away = self._unavailable(error)
            self._next_try.failed()
            await self._reader.detach()
            raise self._away from None
        self._next_try.succeeded()
        return answer

    def _unavailable(self, why: str | BaseException) -> SourceUnavailable:
        told = str(why) or type(why).__name__
        at = self._addresses[0].shown if self._addresses else ""
        return SourceUnavailable(
            f"stream {self._spec.stream}, consumer {self._spec.consumer}: {told}", at=at
        )


async def open_nats(
    spec: SourceSpec, credential: OpenedCredential | None, *, name: str
) -> JetStreamSource:
    source = JetStreamSource(nats_addresses(credential), spec, name)
    try:
        await source.open()
    except BaseException:
        await source.close()
        raise
    return source
