"""A partition that is read: nothing is committed over what is not acknowledged."""

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tape.sources import kafka_partition
from tape.sources.kafka_partition import PartitionReading


def reading(*offsets: int) -> PartitionReading[str]:
    made = compared()
    for offset in offsets:
        assert made.add(offset, 1, f"message {offset}")
    return made


def compared() -> PartitionReading[str]:
    made: PartitionReading[str] = PartitionReading(0, 1)
    made.is_compared = True
    return made


def taken(of: PartitionReading[str], most: int = 100) -> list[tuple[int, int]]:
    """Offsets, each with its delivery, of a topic that is still the same."""
    of.ask()
    of.confirm()
    return [(message[0], count) for message, count in of.take(most)]


def test_what_is_acknowledged_counts_once_all_before_it_are() -> None:
    part = reading(3, 4, 7, 8)  # 5 and 6 were compacted
    assert taken(part) == [(3, 1), (4, 1), (7, 1), (8, 1)]
    passed = []
    for offset in (7, 4, 3, 3, 99):
        part.ack(offset)
        passed.append(part.next_offset)
    assert passed == [None, None, 8, 8, 8]


def test_a_message_waits_until_the_topic_was_asked_for_after_it_came() -> None:
    part = reading(0, 1)
    part.ask()
    part.add(2, 1, "after the question")
    assert [*part.take(10)] == []
    part.confirm()
    assert [message[0] for message, _ in part.take(1)] == [0]
    part.ask()
    assert [message[0] for message, _ in part.take(10)] == [1]
    part.give_back(0)
    part.confirm()  # of what is read again
    part.seek_to = None
    assert part.add(0, 1, "")
    assert part.is_unsure
    assert [*part.take(10)] == []


def test_nothing_is_handed_out_before_the_groups_offset_is_known_to_be_of_this_topic() -> None:
    part = reading(0)
    part.is_compared = False
    assert taken(part) == []
    part.is_compared = True
    assert taken(part) == [(0, 1)]


def test_what_is_given_back_is_read_again_without_what_is_behind_it() -> None:
    part = reading(0, 1, 2, 3, 4)
    taken(part, 4)
    part.ack(2)
    assert part.give_back(1) == 1  # one byte waited
    assert part.seek_to == 1
    assert not part.add(5, 1, "on its way when it was given back")
    part.seek_to = None
    assert [part.add(offset, 1, "") for offset in (1, 2, 3, 4, 5)] == [
        True,
        False,
        False,
        True,
        True,
    ]
    assert taken(part) == [(1, 2), (4, 1), (5, 1)]
    for offset in (0, 1, 3):
        part.ack(offset)
    assert part.next_offset == 4


def test_what_is_gone_when_it_is_read_again_is_not_waited_for() -> None:
    part = reading(0, 1, 2)
    taken(part)
    part.give_back(0)
    part.give_back(1)
    part.seek_to = None
    assert not part.add(2, 1, "the topic has let go of what was before it")
    part.ack(2)
    assert part.next_offset == 3


def test_no_more_than_so_many_behind_one() -> None:
    limit = kafka_partition.MOST_BEHIND
    part = reading(*range(limit + 5))
    assert len(taken(part, limit + 5)) == limit
    part.give_back(0)
    part.seek_to = None
    assert part.add(0, 1, "")
    assert taken(part) == [(0, 2)]  # which is not behind itself
    part.ack(0)
    assert part.add(limit, 1, "")
    assert taken(part) == [(limit, 1)]


class Partition(RuleBasedStateMachine):
    """A log with gaps, a client that reads on from where it is, and somebody who takes,
    acknowledges and gives back at will."""

    def __init__(self) -> None:
        super().__init__()
        self.log = [offset for offset in range(200) if offset % 7 not in (3, 4)]
        self.at = 0
        self.part = compared()
        self.in_hand: set[int] = set()
        self.acknowledged: set[int] = set()
        self.seen: set[int] = set()

    @rule(count=st.integers(1, 20))
    def read(self, count: int) -> None:
        if self.part.seek_to is not None:
            self.at = self.part.seek_to
            self.part.seek_to = None
        for offset in [each for each in self.log if each >= self.at][:count]:
            self.part.add(offset, 1, "")
            self.at = offset + 1

    @rule(most=st.integers(1, 10))
    def take(self, most: int) -> None:
        for offset, count in taken(self.part, most):
            assert offset not in self.in_hand
            assert offset not in self.acknowledged
            assert (count > 1) == (offset in self.seen)
            self.in_hand.add(offset)
            self.seen.add(offset)

    @precondition(lambda self: self.in_hand)
    @rule(data=st.data())
    def ack(self, data: st.DataObject) -> None:
        offset = data.draw(st.sampled_from(sorted(self.in_hand)))
        self.part.ack(offset)
        self.in_hand.discard(offset)
        self.acknowledged.add(offset)

    @precondition(lambda self: self.in_hand)
    @rule(data=st.data())
    def give_back(self, data: st.DataObject) -> None:
        offset = data.draw(st.sampled_from(sorted(self.in_hand)))
        self.part.give_back(offset)
        self.in_hand.discard(offset)

    @invariant()
    def only_what_is_acknowledged_is_committed(self) -> None:
        committed = self.part.next_offset or 0
        assert all(offset in self.acknowledged for offset in self.log if offset < committed)

    def teardown(self) -> None:
        for _ in range(100):
            self.read(20)
            self.take(10)
            for offset in sorted(self.in_hand):
                self.part.ack(offset)
                self.acknowledged.add(offset)
            self.in_hand.clear()
        assert self.acknowledged == set(self.log)
        assert self.part.next_offset == self.log[-1] + 1


TestPartition = Partition.TestCase


@given(st.lists(st.integers(0, 30)))
def test_offsets_that_are_read_twice_are_kept_once(offsets: list[int]) -> None:
    part = compared()
    for offset in sorted(offsets):
        part.add(offset, 1, "")
        taken(part)
    assert part.in_hand == len(set(offsets))
