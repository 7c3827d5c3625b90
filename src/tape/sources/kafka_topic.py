"""What the brokers say of a topic and its group, beside what they deliver.

A topic that is deleted and made again counts its messages from 0 again, and a client that is
reading it goes on at its old offsets without a word. So the topic's id is part of a place. It is
asked for whenever messages have come, which nobody gets before the answer, and every few seconds.
The answer also tells whether anybody is there.
"""

import asyncio
import logging
import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final, NamedTuple

from confluent_kafka import (
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]  # it does

from tape.errors import SourceRefused, SourceUnavailable
from tape.model.subscription_spec import SourceSpec
from tape.ports.credentials import OpenedCredential
from tape.sources.first_login import open_with_first
from tape.sources.kafka_settings import KafkaSettings, admin_settings, kafka_settings

log = logging.getLogger("tape.kafka")

ASK_S: Final = 5.0
AGAIN_S: Final = 5.0
SOON_S: Final = 1.0
APART_S: Final = 0.01
"""However many messages come, the brokers are not asked more often."""
FOUND_S: Final = 15.0
POLL_S: Final = 0.1
NO_ID: Final = "AAAAAAAAAAAAAAAAAAAAAA"  # of brokers that know no ids: sixteen zeros
_AS_KAFKA_WRITES_IT: Final = str.maketrans("+/", "-_")
MISSED_MOST: Final = 2
"""A broker that has just started may not know its topics yet, so it is asked again."""

_REFUSED: Final = {
    KafkaError._AUTHENTICATION: "auth",  # noqa: SLF001 - the name librdkafka's own errors have
    KafkaError._SSL: "auth",  # noqa: SLF001 - likewise
    KafkaError.SASL_AUTHENTICATION_FAILED: "auth",
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "topic",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "group",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "auth",
    KafkaError.UNSUPPORTED_SASL_MECHANISM: "auth",
    KafkaError.INVALID_GROUP_ID: "group",
    KafkaError.INCONSISTENT_GROUP_PROTOCOL: "group",
}


class TopicView(NamedTuple):
    """`topic_id` is empty where the brokers know no ids."""

    topic_id: str
    partitions: tuple[int, ...]


class TopicWatch:
    """Asks for a topic in the background. `poll` is called often, by one thread."""

    def __init__(self, settings: KafkaSettings, topic: str, group: str) -> None:
        self.topic = topic
        self.group = group
        self.view: TopicView | None = None
        self.refusal: SourceRefused | None = None
        self.away: SourceUnavailable | None = None
        self._brokers: str = settings["bootstrap.servers"]
        options = {**admin_settings(settings), "error_cb": self.note_error}
        self.admin = AdminClient(options, logger=log)
        self.is_sure = False
        """Whether the last answer said what there is."""
        self._asking: Future[Any] | None = None
        self._asked_at = 0.0
        self._next = 0.0
        self._missed = 0
        self._failed = False

    @property
    def is_settled(self) -> bool:
        """Whether it is known what there is. That no broker was reached yet may be a matter of
        which address was tried first."""
        return self.view is not None or self.refusal is not None or self._failed

    @property
    def is_asking(self) -> bool:
        return self._asking is not None

    def poll(self, wait_s: float = 0) -> bool:
        """Serve what has come; True if that is an answer."""
        self.admin.poll(wait_s)
        now = time.monotonic()
        if self._asking is None:
            if now >= self._next:
                self._asked_at = now
                wanted = TopicCollection([self.topic])
                self._asking = self.admin.describe_topics(wanted, request_timeout=ASK_S)[self.topic]
            return False
        if not self._asking.done():
            return False
        asked, self._asking = self._asking, None
        self._next = now + (SOON_S if self._take(asked) else AGAIN_S)
        return True

    def ask_soon(self) -> None:
        self._next = min(self._next, self._asked_at + APART_S)

    def note_error(self, error: KafkaError) -> None:
        """What the client says by the way."""
        code = error.code()
        if code in _REFUSED:
            self.refusal = refused(error)
        elif code == KafkaError._ALL_BROKERS_DOWN:  # noqa: SLF001 - the name librdkafka's has
            self.away = self.unavailable("no broker can be reached")
            self.ask_soon()

    def ends(self) -> dict[int, int]:
        """By partition, the offset that its next message gets. Blocks; SourceUnavailable."""
        return self._bounds(OffsetSpec.latest())  # type: ignore[no-untyped-call]  # no types there

    def begins(self) -> dict[int, int]:
        """By partition, the offset of its first message. Blocks; SourceUnavailable."""
        return self._bounds(OffsetSpec.earliest())  # type: ignore[no-untyped-call]  # likewise

    def _bounds(self, spec: OffsetSpec) -> dict[int, int]:
        wanted = {TopicPartition(self.topic, number): spec for number in self.partitions}
        asked = self.admin.list_offsets(
            wanted, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=ASK_S
        )
        return {part.partition: self._answer(found).offset for part, found in asked.items()}

    @property
    def partitions(self) -> tuple[int, ...]:
        """As far as they are known."""
        return self.view.partitions if self.view else ()

    def away_for(self, failure: KafkaException) -> SourceUnavailable:
        """The error to raise for one of the library's."""
        return self.unavailable(failure.args[0].name())

    def unavailable(self, why: str) -> SourceUnavailable:
        return SourceUnavailable(f"kafka topic {self.topic}: {why}", at=self._brokers)

    def _answer(self, asked: "Future[Any]") -> Any:
        try:
            return asked.result(ASK_S)
        except KafkaException as failure:
            raise self.away_for(failure) from None
        except TimeoutError:
            raise self.unavailable("no answer in time") from None

    def _take(self, asked: "Future[Any]") -> bool:
        """Whether to ask again soon."""
        try:
            told = asked.result(0)
        except KafkaException as failure:
            self.is_sure = False
            return self._take_failure(failure.args[0])
        self.is_sure = True
        self._missed, self.away, self.refusal = 0, None, None
        topic_id = str(told.topic_id).translate(_AS_KAFKA_WRITES_IT)
        self.view = TopicView(
            "" if topic_id == NO_ID else topic_id, tuple(part.id for part in told.partitions)
        )
        return False

    def _take_failure(self, error: KafkaError) -> bool:
        if error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            self._missed += 1
            if self._missed >= MISSED_MOST:
                self.refusal = SourceRefused(f"topic: there is no topic {self.topic}")
        elif error.code() in _REFUSED:
            self.refusal = refused(error)
        else:
            self._failed = True
            self.away = self.unavailable(error.name())
        return True


async def find_topic(credential: OpenedCredential | None, spec: SourceSpec) -> str:
    """The id of a topic; SourceRefused if there is none, SourceUnavailable if nobody answers."""
    thread = ThreadPoolExecutor(1, "tape-kafka-find")  # it may wait for long

    async def find(settings: KafkaSettings) -> str:
        return await asyncio.get_running_loop().run_in_executor(thread, _topic_id, settings, spec)

    try:
        return await open_with_first(kafka_settings(credential, spec, "tape"), find)
    finally:
        thread.shutdown(wait=False)


def _topic_id(settings: KafkaSettings, spec: SourceSpec) -> str:
    watch = TopicWatch(settings, spec.topic, spec.group)
    ends = time.monotonic() + FOUND_S
    while watch.view is None:
        watch.poll(POLL_S)
        if watch.refusal is not None:
            raise watch.refusal
        if time.monotonic() > ends:
            raise watch.away or watch.unavailable("no answer in time")
    return watch.view.topic_id


def refused(error: KafkaError) -> SourceRefused:
    """The names of librdkafka's errors tell enough; their texts may repeat a setting."""
    return SourceRefused(f"{_REFUSED.get(error.code(), 'auth')}: Kafka says {error.name()}")
