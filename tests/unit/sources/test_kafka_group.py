"""A member of a group whose client does what a test says: what happens between two of its calls."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("confluent_kafka", reason="needs the extra kafka")

from confluent_kafka import TopicPartition

from tape.errors import SourceUnavailable
from tape.sources import kafka_group
from tape.sources.kafka_group import GroupMember, Taken

TOPIC = "orders"
BOUND_S = 20.0


class Client:
    """One partition, read from an offset on. `during_seek` happens while the client seeks."""

    def __init__(self, *_settings: object, **_more: object) -> None:
        self.at = 0
        self.ends = 0
        self.committed_to: int | None = None
        self.during_seek: list[Callable[[], None]] = []

    def seek(self, place: TopicPartition) -> None:
        self.at = place.offset
        if self.during_seek:
            self.during_seek.pop()()

    def poll(self, _wait_s: float) -> Any:
        if self.at >= self.ends:
            return None
        self.at += 1
        return Raw(self.at - 1)

    def consume(self, most: int, _wait_s: float) -> list[Any]:
        return [found for _ in range(most) if (found := self.poll(0)) is not None]

    def commit(self, offsets: list[TopicPartition], **_how: object) -> None:
        (place,) = offsets
        self.committed_to = place.offset

    def subscribe(self, _topics: object, **_callbacks: object) -> None: ...

    def pause(self, _places: object) -> None: ...

    def resume(self, _places: object) -> None: ...

    def close(self) -> None: ...


class Raw:
    def __init__(self, offset: int) -> None:
        self._offset = offset

    def __len__(self) -> int:
        return 1

    def error(self) -> None:
        return None

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self._offset


class Watch:
    """Of a topic of brokers that know no ids."""

    refusal = away = None
    is_sure, is_asking, is_settled = True, False, True
    view = SimpleNamespace(topic_id="")
    partitions = (0,)

    def __init__(self, *_told: object) -> None: ...

    def note_error(self, error: object) -> None: ...

    def ask_soon(self) -> None: ...

    def poll(self, _wait_s: float = 0) -> bool:
        return False

    def unavailable(self, why: str) -> SourceUnavailable:
        return SourceUnavailable(f"kafka topic {TOPIC}: {why}")


@pytest.fixture
def member(monkeypatch: pytest.MonkeyPatch) -> GroupMember:
    monkeypatch.setattr(kafka_group, "Consumer", Client)
    monkeypatch.setattr(kafka_group, "TopicWatch", Watch)
    return GroupMember({"group.id": "desk"}, TOPIC, lambda: None)


def ended(member: GroupMember) -> str:
    """What is said of a member whose thread has ended."""
    member.start()
    assert member.joined.wait(BOUND_S)
    member.close()
    assert member.has_ended
    assert isinstance(member.failure, SourceUnavailable)
    return str(member.failure)


def fails(*_told: object, **_more: object) -> Any:
    raise ValueError("sasl.password=hunter2")


@pytest.mark.parametrize("where", ["subscribe", "poll"])
def test_whatever_ends_the_thread_is_told_with_its_place_and_without_its_text(
    member: GroupMember, where: str
) -> None:
    setattr(client_of(member), where, fails)
    text = ended(member)
    assert text.startswith(
        "kafka topic orders: its reader ended by ValueError at test_kafka_group."
    )
    assert text.endswith(", in fails")
    assert "hunter2" not in text


def test_so_is_what_goes_wrong_while_the_group_is_left(member: GroupMember) -> None:
    client_of(member).close = fails
    member._closing = True
    assert "ended by ValueError" in ended(member)


class Committed:
    """An offset that another program committed, with bytes for metadata."""

    offset, partition, error = 7, 0, None

    @property
    def metadata(self) -> str:
        return b"\xff".decode()


def test_metadata_of_another_program_need_not_be_text(member: GroupMember) -> None:
    client_of(member).committed = lambda _places, _wait_s: [Committed()]
    assert member.committed() == {0: 7}


def client_of(member: GroupMember) -> Any:
    return member._consumer


def stepped(member: GroupMember) -> dict[int, Taken]:
    """What there is after a step of the thread, by offset."""
    member._step()
    return {int(taken.receipt.split("/")[1]): taken for taken in member.take(100)}


def test_offsets_are_committed_where_brokers_know_no_ids(member: GroupMember) -> None:
    client = client_of(member)
    member._assigned(client, [TopicPartition(TOPIC, 0)])
    client.ends = 2
    member.ack([each.receipt for each in stepped(member).values()])
    member._step()
    assert client.committed_to == 2


def test_what_is_given_back_while_the_client_seeks_is_sought_next(member: GroupMember) -> None:
    client = client_of(member)
    member._assigned(client, [TopicPartition(TOPIC, 0)])
    client.ends = 6
    taken = stepped(member)
    assert [*taken] == [0, 1, 2, 3, 4, 5]
    member.nak([taken[4].receipt])
    client.during_seek = [lambda: member.nak([taken[2].receipt])]
    member.ack([taken[offset].receipt for offset in (0, 1, 3, 5)])
    assert stepped(member) == {}  # of what comes from 4 on nothing is taken in
    again = stepped(member)
    assert {offset: each.deliveries for offset, each in again.items()} == {2: 2, 4: 2}
    member._step()
    assert client.committed_to == 2
    member._note_commit(None, [TopicPartition(TOPIC, 0, 2)])
    member.ack([each.receipt for each in again.values()])
    member._step()
    assert client.committed_to == 6
