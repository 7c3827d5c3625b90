"""The systems that are listened to, from their other end.

Messages are sent by programs that nobody here wrote. Each has an id of its own and counts within
its key. What a system will not deliver again is asked of the system itself, by its own clients.
"""

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from typing import Any, Final, NamedTuple, Protocol

import orjson
from confluent_kafka import Consumer, Producer, TopicPartition
from google.cloud.pubsub_v1 import PublisherClient  # type: ignore[import-untyped]  # no types
from google.cloud.pubsub_v1.types import PublisherOptions  # type: ignore[import-untyped]  # likewise
from nats.aio.client import Client
from nats.js.api import AckPolicy, ConsumerConfig, RetentionPolicy

from tape.model.subscription_spec import SourceKind
from tests.integration.sources.far_sides import KafkaSide, PubSubSide
from tests.servers.kafka import KafkaServer
from tests.servers.nats import NatsServer
from tests.servers.nats_raw import publish_each_raw
from tests.servers.pubsub import PubSubEmulator

BOUND_S: Final = 60.0
TOGETHER: Final = 1_000
PARTITIONS: Final = 4
ACK_WAIT_S: Final = 0.5


class NumberedMessage(NamedTuple):
    id: str
    key: str
    n: int

    @property
    def body(self) -> bytes:
        return orjson.dumps(self._asdict())


class FarEnd(Protocol):
    """`spec` is what a document says of it. `keeps_order` is whether what comes again comes before
    what is behind it."""

    kind: SourceKind
    keeps_order: bool
    spec: dict[str, str]

    @property
    def credential(self) -> dict[str, Any]: ...

    async def make(self) -> None: ...

    async def send(self, messages: Sequence[NumberedMessage]) -> None:
        """In this order, where one key is concerned; returns once the system has them."""

    async def passed(self) -> set[str] | None:
        """The ids that will not be delivered again, None where the system does not say."""

    def rebalanced(self) -> AbstractAsyncContextManager[None]:
        """Within this, somebody else has a share of the messages, where a group has shares."""


NewEnd = Callable[[], FarEnd]
"""Each with a stream, topic or subscription of its own."""


class NatsEnd:
    """A stream from which an acknowledged message is removed, so what is left in it is what was not
    acknowledged. It keeps the order where one message at a time is on its way."""

    kind = SourceKind.NATS

    def __init__(
        self, server: NatsServer, most_on_their_way: int = 1_000, ack_wait_s: float = ACK_WAIT_S
    ) -> None:
        self._server = server
        self._most = most_on_their_way
        self._ack_wait_s = ack_wait_s
        self.keeps_order = most_on_their_way == 1
        self._stream = f"s{uuid.uuid4().hex[:12]}"
        self._ids: list[str] = []
        self.spec = {"stream": self._stream, "consumer": "tape"}

    @property
    def credential(self) -> dict[str, Any]:
        return {"servers": [f"nats://{self._server.address}"]}

    async def make(self) -> None:
        async with self._client() as client:
            jetstream = client.jetstream()
            await jetstream.add_stream(
                name=self._stream, subjects=[f"{self._stream}.>"],
                retention=RetentionPolicy.WORK_QUEUE,
            )  # fmt: skip
            durable = ConsumerConfig(
                durable_name="tape", ack_policy=AckPolicy.EXPLICIT, ack_wait=self._ack_wait_s,
                max_ack_pending=self._most,
            )  # fmt: skip
            await jetstream.add_consumer(self._stream, durable)

    async def send(self, messages: Sequence[NumberedMessage]) -> None:
        for at in range(0, len(messages), TOGETHER):
            part = messages[at : at + TOGETHER]
            raw = [(f"{self._stream}.{message.key}", b"", message.body) for message in part]
            await asyncio.to_thread(publish_each_raw, self._server.address, raw)
            self._ids += [message.id for message in part]
            await self._until_stored()

    async def passed(self) -> set[str]:
        state = await self._state()
        gone = {*range(1, state["first_seq"]), *state.get("deleted", ())}
        return {self._ids[number - 1] for number in gone if number <= len(self._ids)}

    def rebalanced(self) -> AbstractAsyncContextManager[None]:
        return nullcontext()

    async def _until_stored(self) -> None:
        async with asyncio.timeout(BOUND_S):
            while (await self._state())["last_seq"] < len(self._ids):  # noqa: ASYNC110 - only asking tells
                await asyncio.sleep(0.01)

    async def _state(self) -> dict[str, Any]:
        async with self._client() as client:
            asked = orjson.dumps({"deleted_details": True})
            answer = await client.request(
                f"$JS.API.STREAM.INFO.{self._stream}", asked, timeout=BOUND_S
            )
        state: dict[str, Any] = orjson.loads(answer.data)["state"]
        return state

    @asynccontextmanager
    async def _client(self) -> AsyncIterator[Client]:
        client = Client()
        await client.connect(f"nats://{self._server.address}", allow_reconnect=False)
        try:
            yield client
        finally:
            await client.close()


class KafkaEnd:
    kind = SourceKind.KAFKA
    keeps_order = True

    def __init__(self, server: KafkaServer) -> None:
        self._side = KafkaSide(server)
        self._side.silent_s = 1.5
        self._address = server.address
        self._ids: dict[tuple[int, int], str] = {}
        self.spec = {"topic": self._side.topic, "group": self._side.topic}

    @property
    def credential(self) -> dict[str, Any]:
        return self._side.credential

    async def make(self) -> None:
        await asyncio.to_thread(self._side.make, PARTITIONS)

    async def send(self, messages: Sequence[NumberedMessage]) -> None:
        await asyncio.to_thread(self._send, messages)

    def _send(self, messages: Sequence[NumberedMessage]) -> None:
        producer = Producer(
            {"bootstrap.servers": self._address, "log_level": 0, "enable.idempotence": True}
        )
        for message in messages:
            self._produce(producer, message)
        assert producer.flush(BOUND_S) == 0

    def _produce(self, producer: Producer, message: NumberedMessage) -> None:
        def note(error: Any, report: Any) -> None:
            assert error is None
            self._ids[report.partition(), report.offset()] = message.id

        producer.produce(self._side.topic, message.body, message.key.encode(), on_delivery=note)
        producer.poll(0)

    async def passed(self) -> set[str]:
        committed = await asyncio.to_thread(self._committed)
        return {
            each for (partition, offset), each in self._ids.items() if offset < committed[partition]
        }

    def _committed(self) -> dict[int, int]:
        looker = Consumer(self._of_group({}))
        try:
            asked = [TopicPartition(self._side.topic, number) for number in range(PARTITIONS)]
            return {part.partition: part.offset for part in looker.committed(asked, BOUND_S)}
        finally:
            looker.close()

    def _of_group(self, more: dict[str, Any]) -> dict[str, Any]:
        return {
            **self.credential, "group.id": self._side.topic, "enable.auto.commit": False,
            "log_level": 0, **more,
        }  # fmt: skip

    @asynccontextmanager
    async def rebalanced(self) -> AsyncIterator[None]:
        """Another member of the group: it is given a share, reads of it and commits nothing."""
        strategy = {"partition.assignment.strategy": "cooperative-sticky"}
        member = Consumer(self._of_group(strategy))
        member.subscribe([self._side.topic])
        try:
            async with asyncio.timeout(BOUND_S):
                while not await asyncio.to_thread(self._has_share, member):
                    continue
            yield
        finally:
            await asyncio.to_thread(member.close)

    def _has_share(self, member: Consumer) -> bool:
        member.poll(0.1)
        return bool(member.assignment())


class PubSubEnd:
    """The emulator does not tell what was acknowledged: what it was told wrongly never comes. Where
    a reader has died with a message of a key, it delivers those behind it before that again."""

    kind = SourceKind.PUBSUB
    keeps_order = False

    def __init__(self, emulator: PubSubEmulator) -> None:
        self._side = PubSubSide(emulator)
        self.spec = {"subscription": self._side.subscription}

    @property
    def credential(self) -> dict[str, Any]:
        return {"emulator_host": self._side.emulator.host}

    async def make(self) -> None:
        await self._side.make()

    async def send(self, messages: Sequence[NumberedMessage]) -> None:
        await asyncio.to_thread(self._send, messages)

    def _send(self, messages: Sequence[NumberedMessage]) -> None:
        publisher = PublisherClient(
            publisher_options=PublisherOptions(enable_message_ordering=True)
        )
        sent = [
            publisher.publish(self._side.topic, message.body, ordering_key=message.key)
            for message in messages
        ]
        for each in sent:
            each.result(BOUND_S)
        publisher.stop()

    async def passed(self) -> None:
        return None

    def rebalanced(self) -> AbstractAsyncContextManager[None]:
        return nullcontext()
