"""Kafka: a member of a consumer group, whose offsets are committed once messages are acknowledged.

See `kafka_group.py` for rebalances and commits, `kafka_partition.py` for what an acknowledgement
means where a group remembers one offset, `kafka_topic.py` for the topic's id in a place.
"""

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final, TypeVar

from confluent_kafka import KafkaException, Message

from tape.errors import SourceRefused
from tape.model.message import Header, SourceMessage, shown_kafka_headers
from tape.model.subscription_spec import SourceKind, SourceSpec
from tape.ports.credentials import OpenedCredential
from tape.ports.source import ReceivedMessage
from tape.sources.first_login import open_with_first
from tape.sources.kafka_group import GroupMember, Taken
from tape.sources.kafka_settings import KafkaSettings, kafka_settings

THREADS: Final = 3
"""Of each source: whoever asks what waits, joins or leaves may wait for long, and must hold up
neither another source nor anything else of the process."""
JOIN_S: Final = 10.0
"""A group that waits for its other members for longer is waited for in `fetch`."""
Answer = TypeVar("Answer")


class KafkaSource:
    def __init__(self, settings: KafkaSettings, spec: SourceSpec) -> None:
        self._settings = settings
        self._spec = spec
        self._loop = asyncio.get_running_loop()
        self._news = asyncio.Event()
        self._member = self._new_member()
        self._threads = ThreadPoolExecutor(THREADS, "tape-kafka-ask")

    def __repr__(self) -> str:
        return f"KafkaSource({self._spec.topic}, group {self._spec.group})"

    async def open(self) -> None:
        """Join the group, so that the first fetch finds what there is."""
        self._member.start()
        await self._do(partial(self._member.joined.wait, JOIN_S))
        if self._member.failure is not None:
            raise self._member.failure

    async def fetch(self, most: int, wait_s: float) -> list[ReceivedMessage]:
        if self._member.has_ended:
            await self._join_anew()
        ends = self._loop.time() + wait_s
        while True:
            self._news.clear()
            if found := self._member.take(most):
                return [_received(taken) for taken in found]
            failure = self._member.failure
            if failure and (self._member.has_ended or isinstance(failure, SourceRefused)):
                raise failure
            try:
                async with asyncio.timeout_at(ends):
                    await self._news.wait()
            except TimeoutError:
                if self._member.failure is not None:
                    raise self._member.failure from None
                return []

    async def ack(self, receipts: Sequence[str]) -> None:
        self._member.ack(receipts)

    async def nak(self, receipts: Sequence[str]) -> None:
        self._member.nak(receipts)

    async def backlog(self) -> int | None:
        """The lag of the whole group: what is not committed. In a topic of transactions their marks
        are counted as well."""
        return await self._do(self._lag)

    async def passed(self) -> Mapping[str, int]:
        """Up to what the group has committed."""
        committed = await self._do(self._member.committed)
        return {
            self._member.origin(partition): (offset or 0) - 1
            for partition, offset in committed.items()
        }

    def warnings(self) -> list[str]:
        return []

    async def close(self) -> None:
        """The group is left also if nobody waits for the end of it."""
        closing = self._threads.submit(self._member.close)
        self._threads.shutdown(wait=False)
        await asyncio.shield(asyncio.wrap_future(closing))

    async def _do(self, work: Callable[[], Answer]) -> Answer:
        return await self._loop.run_in_executor(self._threads, work)

    def _new_member(self) -> GroupMember:
        return GroupMember(self._settings, self._spec.topic, self._wake)

    async def _join_anew(self) -> None:
        """The client has ended itself: another takes its place. What was in hand comes again."""
        await self._do(self._member.close)
        self._member = self._new_member()
        await self.open()

    def _wake(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has been closed meanwhile
            self._loop.call_soon_threadsafe(self._news.set)

    def _lag(self) -> int:
        watch, committed = self._member.watch, self._member.committed()
        ends = watch.ends()
        nexts = {partition: at for partition, at in committed.items() if at is not None}
        if ends.keys() - nexts.keys():
            nexts = watch.begins() | nexts
        return sum(max(0, end - nexts.get(partition, 0)) for partition, end in ends.items())


async def open_kafka(
    spec: SourceSpec, credential: OpenedCredential | None, *, name: str
) -> KafkaSource:
    async def open_with(settings: KafkaSettings) -> KafkaSource:
        source = _made(settings, spec)
        try:
            await source.open()
        except BaseException:
            await source.close()
            raise
        return source

    return await open_with_first(kafka_settings(credential, spec, name), open_with)


def _made(settings: KafkaSettings, spec: SourceSpec) -> KafkaSource:
    try:
        return KafkaSource(settings, spec)
    except KafkaException as failure:  # its text may repeat a setting that is a secret
        text = failure.args[0].str()
        wrong = next((name for name in settings if f'"{name}"' in text), "")
        told = f"{wrong} is not a setting, or not one of that value" if wrong else "bad settings"
        raise SourceRefused(f"auth: the Kafka client says: {told}") from None


def _received(taken: Taken) -> ReceivedMessage:
    raw = taken.raw
    message = SourceMessage(
        SourceKind.KAFKA.value,
        taken.origin,
        str(raw.offset()),
        _bytes(raw.value()),
        _headers(raw),
        key=_bytes(raw.key()).decode(errors="replace"),
        timestamp_ms=max(0, raw.timestamp()[1]),
        deliveries=taken.deliveries,
    )
    return ReceivedMessage(message, taken.receipt)


def _headers(raw: Message) -> tuple[Header, ...]:
    try:
        found: Any = raw.headers() or []  # pairs; its types say that it may be a dict as well
    except UnicodeDecodeError:  # of a name, which the library cannot show
        return ()
    return shown_kafka_headers(tuple((name, _bytes(value)) for name, value in found))


def _bytes(value: str | bytes | None) -> bytes:
    return value.encode() if isinstance(value, str) else value or b""
