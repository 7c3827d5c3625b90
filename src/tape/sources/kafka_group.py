"""A member of a consumer group: one thread that polls, whatever else goes on.

The thread alone talks to the client: a call of another could wait for a callback that waits for
that other. What others want of it is noted under a lock, and done within a tenth of a second. It
never stops polling, so nobody is put out of the group because messages are long in hand: while
nobody takes messages it pauses its partitions, and polls for news alone. One question has to wait
for its answer, `committed`: the client serves one thread at a time, and one that polls again and
again would leave others waiting for long. So it lets those that ask go first.

* A partition that is taken away in good order has what is acknowledged of it committed first; what
  is in hand of it is forgotten and comes again, to its new owner. Of one that was lost nothing is
  committed: its new owner may be further by now.
* Commits are confirmed: one is on its way at a time, and what failed is committed again with what
  has come since. Nobody waits for one but `close`, for a client that finds no coordinator answers
  only after a minute.
* A commit says of which topic it is, by its id. One that was committed of another topic of this
  name, before anybody knew that it was made again, would skip messages: these are read from the
  beginning.
"""

import contextlib
import logging
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from tape.errors import SourceUnavailable, TapeError
from tape.model.message import kafka_origin
from tape.sources.kafka_partition import PartitionReading
from tape.sources.kafka_settings import KafkaSettings
from tape.sources.kafka_topic import ASK_S, TopicWatch, refused

log = logging.getLogger("tape.kafka")

POLL_S: Final = 0.1
PAUSE_AFTER_S: Final = 0.5
COMMIT_AGAIN_S: Final = 0.5
ANSWER_POLL_S: Final = 0.005
"""While an answer is waited for that lets messages be handed out."""
COMPARE_S: Final = 1.0
SETTLE_S: Final = 0.5
CLOSE_S: Final = 3.0
CHUNK: Final = 500
MOST_MESSAGES: Final = 2_000
MOST_BYTES: Final = 8 << 20
TOPIC_ID: Final = "tape: of topic "
"""Begins the metadata of a commit. Other programs commit without it."""
DENIED: Final = (KafkaError.GROUP_AUTHORIZATION_FAILED, KafkaError.TOPIC_AUTHORIZATION_FAILED)


class Taken(NamedTuple):
    """A message, and the origin that its reading has. `receipt` names both."""

    origin: str
    raw: Message
    receipt: str
    deliveries: int


class GroupMember:
    def __init__(self, settings: KafkaSettings, topic: str, wake: Callable[[], None]) -> None:
        """`wake` is called, in the thread, when there may be something to take or to say."""
        self._topic = topic
        self._wake = wake
        self._lock = threading.Lock()
        self._leaving = threading.Lock()
        """The consumer must not go while another thread asks it something."""
        self._has_left = False
        self._stir = threading.Condition(self._lock)
        self._asking = 0
        """So many others ask the client something."""
        self._readings: deque[PartitionReading[Message]] = deque()
        self._bytes = 0
        self._assignments = 0
        self._committed: dict[int, int] = {}
        self._committing = False
        self._commit_at = 0.0
        self._compare_at = 0.0
        self._full_since: float | None = None
        self._paused: bool | None = None
        """None once partitions have come: those that are kept stay as they were, others are not."""
        self._topic_id = ""
        self._origins: dict[int, str] = {}
        self._in_hand: dict[str, tuple[PartitionReading[Message], int]] = {}
        self._failure: TapeError | None = None
        self._closing = False
        self.joined = threading.Event()
        """Set once the group has given this member its partitions, or it has failed."""
        self.watch = TopicWatch(settings, topic, str(settings["group.id"]))
        callbacks = {"on_commit": self._note_commit, "error_cb": self.watch.note_error}
        self._consumer = Consumer({**settings, **callbacks}, logger=log)
        self._thread = threading.Thread(target=self._run, name="tape-kafka", daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def failure(self) -> TapeError | None:
        """Why nothing can be taken, None if it can."""
        return self._failure or self.watch.refusal or self.watch.away

    @property
    def has_ended(self) -> bool:
        return self._failure is not None

    def origin(self, partition: int) -> str:
        return kafka_origin(self._topic, self._topic_id, partition)

    def take(self, most: int) -> list[Taken]:
        """What has come, at most so many, from each partition in turn."""
        found: list[Taken] = []
        with self._lock:
            for turn in range(len(self._readings), 0, -1):
                share = -(-(most - len(found)) // turn)
                found += self._take_of(self._readings[0], share)
                self._readings.rotate(-1)
            for reading in self._readings:  # what the others left of their share
                found += self._take_of(reading, most - len(found))
            self._stir.notify_all()
        return found

    def ack(self, receipts: Sequence[str]) -> None:
        with self._lock:
            for reading, offset in self._named(receipts):
                reading.ack(offset)
            self._stir.notify_all()

    def nak(self, receipts: Sequence[str]) -> None:
        with self._lock:
            for reading, offset in self._named(receipts):
                self._bytes -= reading.give_back(offset)
            self._stir.notify_all()

    def committed(self) -> dict[int, int | None]:
        """By partition, what the group is to be given next, None where it has committed nothing of
        this topic. Empty once it was left. Blocks; SourceUnavailable.

        What was acknowledged before is committed first, unless that takes long.

        The library's admin client says it, too, but it ends the whole process by an assertion when
        the broker that it asks goes away.
        """
        with self._lock:
            acknowledged = {each.partition: each.next_offset for each in self._readings}
            self._stir.wait_for(
                lambda: self._has_left or self._has_committed(acknowledged), SETTLE_S
            )
        with self._leaving, self._goes_first():
            wanted = [self._place(partition) for partition in self.watch.partitions]
            if self._has_left or not wanted:
                return {}
            try:
                told = self._consumer.committed(wanted, ASK_S)
            except KafkaException as failure:
                raise self.watch.away_for(failure) from None
        if failed := next((part.error for part in told if part.error is not None), None):
            raise self.watch.away_for(KafkaException(failed))
        return {
            part.partition: part.offset if part.offset >= 0 and self._is_of_this(part) else None
            for part in told
        }

    @contextlib.contextmanager
    def _goes_first(self) -> Iterator[None]:
        """Within this, the thread that polls does not."""
        with self._lock:
            self._asking += 1
        try:
            yield
        finally:
            with self._lock:
                self._asking -= 1
                self._stir.notify_all()

    def close(self) -> None:
        """Commit and leave the group; what takes too long of that goes on by itself."""
        with self._lock:
            self._closing = True
            self._stir.notify_all()
        self._thread.join(2 * CLOSE_S)

    def _run(self) -> None:
        try:
            while not self._closing and not self.watch.is_settled:
                self.watch.poll(POLL_S / 10)
            if self._knows_topic():
                self._consumer.subscribe(
                    [self._topic],
                    on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost,
                )  # fmt: skip
            else:
                self._failure = self.failure
            while not self._closing and not self.has_ended:
                self._step()
            self._say_last()
        except KafkaException as failure:
            self._failure = self.watch.away_for(failure)
        except Exception as fault:  # noqa: BLE001 - else nobody would know that nothing comes
            self._failure = self._fault_of_thread(fault)
        finally:
            self._leave()

    def _leave(self) -> None:
        try:
            with self._leaving, contextlib.suppress(KafkaException, RuntimeError):
                self._has_left = True
                self._consumer.close()
        except Exception as fault:  # noqa: BLE001 - likewise: callbacks are called once more
            self._failure = self._failure or self._fault_of_thread(fault)
        finally:
            self.joined.set()
            self._wake()

    def _fault_of_thread(self, fault: Exception) -> SourceUnavailable:
        """Where it was raised, and not its text, which may repeat a setting."""
        *_, frame = traceback.extract_tb(fault.__traceback__)
        return self.watch.unavailable(
            f"its reader ended by {type(fault).__name__} at "
            f"{Path(frame.filename).name}:{frame.lineno}, in {frame.name}"
        )

    def _step(self) -> None:
        self._ask_for_topic()
        self._compare_commits()
        with self._lock:
            self._stir.wait_for(lambda: not self._asking)
        self._seek_back()
        with self._lock:
            if time.monotonic() >= self._commit_at:
                self._commit()
            awaits = any(reading.is_unsure for reading in self._readings)
            wait_s = ANSWER_POLL_S if awaits else POLL_S
            roomy = self._stir.wait_for(self._is_roomy, 0 if self._paused else wait_s)
        if roomy:
            self._full_since = None
            self._set_paused(False)
            first = self._consumer.poll(wait_s)
            rest = self._consumer.consume(CHUNK, 0) if first is not None else []
        else:
            now = time.monotonic()
            self._full_since = self._full_since or now
            if now < self._full_since + PAUSE_AFTER_S:
                return
            self._set_paused(True)
            first, rest = self._consumer.poll(wait_s), []
        if first is not None:
            self._take_in([first, *rest])

    def _ask_for_topic(self) -> None:
        """What has come is handed out once it is known that the topic is the same still."""
        with self._lock:
            is_unsure = any(reading.is_unsure for reading in self._readings)
        if is_unsure:
            self.watch.ask_soon()
        was_asking = self.watch.is_asking
        answered = self.watch.poll()
        if self.watch.is_asking and not was_asking:
            with self._lock:
                for reading in self._readings:
                    reading.ask()
        if not answered:
            return
        self._compare_topic()
        if self.watch.is_sure:
            with self._lock:
                for reading in self._readings:
                    reading.confirm()
        self._wake()

    def _compare_commits(self) -> None:
        """Whether what the group has of new partitions is of this topic: else it is another's, and
        they are read from the beginning."""
        with self._lock:
            new = {each.partition: each for each in self._readings if not each.is_compared}
        if not new or time.monotonic() < self._compare_at:
            return
        try:
            told = self._consumer.committed([self._place(each) for each in new], COMPARE_S)
        except KafkaException:  # nobody knows; the next step asks again
            told = []
        with self._lock:
            for part in told:
                reading = new[part.partition]
                if part.error is not None:
                    continue
                reading.is_compared = True
                if not self._is_of_this(part):
                    self._bytes -= reading.drop()
                    reading.seek_to = OFFSET_BEGINNING
            if not all(reading.is_compared for reading in new.values()):
                self._compare_at = time.monotonic() + COMMIT_AGAIN_S

    def _is_of_this(self, committed: TopicPartition) -> bool:
        """Unless the commit says that it was of another topic of this name."""
        try:
            told = committed.metadata or ""
        except UnicodeDecodeError:  # another program's: the client takes all metadata for text
            return True
        return not told.startswith(TOPIC_ID) or told == TOPIC_ID + self._topic_id

    def _is_roomy(self) -> bool:
        waiting = sum(map(len, self._readings))
        return self._closing or (waiting < MOST_MESSAGES and self._bytes < MOST_BYTES)

    def _take_in(self, messages: Iterable[Message]) -> None:
        with self._lock:
            readings = {reading.partition: reading for reading in self._readings}
            for raw in messages:
                error, partition, offset = raw.error(), raw.partition(), raw.offset()
                if error is not None:
                    self._note_error(error)
                elif partition in readings and offset is not None:
                    size = len(raw)
                    reading = readings[partition]
                    if reading.add(offset, size, raw):
                        self._bytes += size
                    if not self._topic_id:  # nobody can tell
                        reading.ask()
                        reading.confirm()
        self._wake()

    def _note_error(self, error: KafkaError) -> None:
        if error.fatal():
            self._failure = self.watch.unavailable(error.name())
        elif error.code() in DENIED:
            self._failure = refused(error)
        else:
            self.watch.note_error(error)
            self.watch.ask_soon()

    def _set_paused(self, paused: bool) -> None:
        if paused == self._paused:
            return
        with self._lock:
            wanted = [self._place(reading.partition) for reading in self._readings]
        with contextlib.suppress(KafkaException):  # one was taken away a moment ago
            if paused:
                self._consumer.pause(wanted)
            else:
                self._consumer.resume(wanted)
        self._paused = paused

    def _seek_back(self) -> None:
        with self._lock:
            wanted = [(each, each.seek_to) for each in self._readings if each.seek_to is not None]
        for reading, offset in wanted:
            try:
                self._consumer.seek(self._place(reading.partition, offset))
            except KafkaException:  # it is not read yet: the next step tries again
                continue
            with self._lock:
                reading.note_sought(offset)

    def _knows_topic(self) -> bool:
        if self.watch.view is None:
            return False
        self._topic_id = self.watch.view.topic_id
        return True

    def _compare_topic(self) -> None:
        """A topic that was made again is read from its beginning. What is in hand of the one before
        it is forgotten: its offsets are other messages' now."""
        view = self.watch.view
        if view is None or view.topic_id == self._topic_id:
            return
        log.warning(
            "the topic %s was deleted and made again: it is read from its beginning", self._topic
        )
        with self._lock:
            self._topic_id = view.topic_id
            self._committed.clear()
            partitions = [reading.partition for reading in self._readings]
            self._forget(partitions)
            self._take_on(partitions)
            for reading in self._readings:
                reading.is_compared = True
                reading.seek_to = OFFSET_BEGINNING
            # What was committed of the one before it since would skip messages of this one.
            with contextlib.suppress(KafkaException, RuntimeError):
                first = [self._place(partition, 0) for partition in partitions]
                self._consumer.commit(offsets=first, asynchronous=True)

    def _assigned(self, _consumer: Consumer, partitions: Sequence[TopicPartition]) -> None:
        with self._lock:
            self._take_on(part.partition for part in partitions)
            self._paused = None
        self.joined.set()
        self._wake()

    def _revoked(self, _consumer: Consumer, partitions: Sequence[TopicPartition]) -> None:
        with self._lock:
            self._commit(force=True)
            self._forget([part.partition for part in partitions])

    def _lost(self, _consumer: Consumer, partitions: Sequence[TopicPartition]) -> None:
        with self._lock:
            self._forget([part.partition for part in partitions])

    def _take_on(self, partitions: Iterable[int]) -> None:
        for partition in partitions:
            self._assignments += 1
            reading: PartitionReading[Message] = PartitionReading(partition, self._assignments)
            reading.is_compared = not self._topic_id
            self._readings.append(reading)
            self._origins[partition] = self.origin(partition)

    def _forget(self, partitions: Sequence[int]) -> None:
        for reading in [*self._readings]:
            if reading.partition in partitions:
                self._bytes -= reading.drop()
                self._readings.remove(reading)
                self._committed.pop(reading.partition, None)
                for receipt in [r for r, (of, _) in self._in_hand.items() if of is reading]:
                    del self._in_hand[receipt]

    def _take_of(self, reading: PartitionReading[Message], most: int) -> Iterator[Taken]:
        origin = self._origins.get(reading.partition, "")
        for (offset, size, raw), deliveries in reading.take(most):
            self._bytes -= size
            receipt = f"{reading.partition}/{offset}/{reading.assignment}"
            self._in_hand[receipt] = reading, offset
            yield Taken(origin, raw, receipt, deliveries)

    def _named(self, receipts: Sequence[str]) -> list[tuple[PartitionReading[Message], int]]:
        """What receipts name; those of readings that are over name nothing."""
        return [self._in_hand.pop(receipt) for receipt in receipts if receipt in self._in_hand]

    def _uncommitted(self) -> list[TopicPartition]:
        return [
            self._place(reading.partition, reading.next_offset)
            for reading in self._readings
            if reading.next_offset is not None
            and reading.next_offset != self._committed.get(reading.partition)
        ]

    def _has_committed(self, wanted: Mapping[int, int | None]) -> bool:
        """Whether it is so of all partitions that are still read."""
        owned = {reading.partition for reading in self._readings}
        return all(
            at is None or partition not in owned or self._committed.get(partition, 0) >= at
            for partition, at in wanted.items()
        )

    def _commit(self, *, force: bool = False) -> None:
        """What is acknowledged and not committed. `force`: although a commit is on its way."""
        if self._committing and not force:
            return
        wanted = self._uncommitted()
        if not wanted:
            return
        try:
            self._consumer.commit(offsets=wanted, asynchronous=True)
        except (KafkaException, RuntimeError):  # while the group is being left or joined
            self._commit_at = time.monotonic() + COMMIT_AGAIN_S
        else:
            self._committing = True

    def _note_commit(self, error: KafkaError | None, partitions: Sequence[TopicPartition]) -> None:
        with self._lock:
            self._committing = False
            if error is None:
                owned = {reading.partition for reading in self._readings}
                for part in partitions:
                    if part.error is None and part.partition in owned:
                        self._committed[part.partition] = part.offset
                self._commit_at = 0.0
                self._stir.notify_all()
            else:
                self._commit_at = time.monotonic() + COMMIT_AGAIN_S

    def _say_last(self) -> None:
        """Commit what is acknowledged, and wait for the answer for a moment."""
        give_up = time.monotonic() + CLOSE_S
        self._set_paused(True)
        while time.monotonic() < give_up:
            with self._lock:
                self._commit()
                if not self._committing and not self._uncommitted():
                    return
            self._consumer.poll(POLL_S)

    def _place(self, partition: int, offset: int | None = None) -> TopicPartition:
        if offset is None:
            return TopicPartition(self._topic, partition)
        told = TOPIC_ID + self._topic_id if self._topic_id else ""
        return TopicPartition(self._topic, partition, offset, metadata=told)
