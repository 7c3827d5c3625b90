"""One partition that is read: what waits, what is in hand, and up to where it may be committed.

A group remembers one offset for each partition, so an acknowledgement counts once all before it are
acknowledged. What is given back is read again by seeking to it. The messages behind it come again
then, too, and those of them that are in hand or acknowledged are passed over.

A message is handed out once the topic's id has been asked for after it came: the topic may have
been made again, and its messages have the offsets of others then.

An offset that is missing (compacted, or a mark of a transaction) is nothing that anybody waits for.
"""

from collections import deque
from collections.abc import Iterator
from typing import Final, Generic, TypeVar

MOST_BEHIND: Final = 100_000
"""So many are acknowledged or in hand behind one that is not: then nothing more is handed out."""

Raw = TypeVar("Raw")
Waiting = tuple[int, int, Raw]
"""An offset, how many bytes the message has, and the message."""


class PartitionReading(Generic[Raw]):
    """`assignment` tells this reading from an earlier one of the same partition."""

    def __init__(self, partition: int, assignment: int) -> None:
        self.partition = partition
        self.assignment = assignment
        self.is_compared = False
        """Whether it is known that the group's offset is of this topic: nothing comes before."""
        self.seek_to: int | None = None
        """Where to read again from, None if nothing was given back."""
        self._waiting: deque[Waiting[Raw]] = deque()
        self._asked_for = 0
        self._sure = 0
        """So many of the first that wait are of this topic; `_asked_for`, if the answer says so."""
        self._handed_out: deque[int] = deque()
        self._in_hand: dict[int, int] = {}
        self._done: set[int] = set()
        self._given_back: dict[int, int] = {}
        self._read_again: set[int] = set()
        self._passed: int | None = None

    def __len__(self) -> int:
        """How many wait."""
        return len(self._waiting)

    @property
    def is_unsure(self) -> bool:
        """Whether something waits for the topic's id."""
        return self._sure < len(self._waiting)

    def ask(self) -> None:
        """The topic's id is being asked for."""
        self._asked_for = len(self._waiting)

    def confirm(self) -> None:
        """It is still the same: what waited when it was asked for is of this topic."""
        if self.is_compared:
            self._sure = self._asked_for

    @property
    def in_hand(self) -> int:
        return len(self._in_hand)

    @property
    def next_offset(self) -> int | None:
        """What may be committed: everything below is acknowledged. None if nothing was."""
        return self._passed

    def add(self, offset: int, size: int, raw: Raw) -> bool:
        """Keep what was read; False if it is in hand or acknowledged, or to be read again."""
        if self.seek_to is not None:
            return False
        if self._given_back:
            self._note_gone(offset)
        if offset in self._in_hand or offset in self._done or offset < (self._passed or 0):
            return False
        self._waiting.append((offset, size, raw))
        return True

    def take(self, most: int) -> Iterator[tuple[Waiting[Raw], int]]:
        """The next ones, each with which delivery of it this is."""
        while self._sure and most > 0:
            message = self._waiting[0]
            offset = message[0]
            count = self._given_back.pop(offset, 0) + 1
            if count == 1:
                if len(self._handed_out) >= MOST_BEHIND:
                    return
                self._handed_out.append(offset)
            else:
                self._read_again.discard(offset)
            self._waiting.popleft()
            self._sure -= 1
            self._asked_for -= 1
            self._in_hand[offset] = count
            most -= 1
            yield message, count

    def ack(self, offset: int) -> None:
        if self._in_hand.pop(offset, None) is None:
            return
        self._done.add(offset)
        self._advance()

    def give_back(self, offset: int) -> int:
        """Read it again; how many bytes no longer wait."""
        count = self._in_hand.pop(offset, None)
        if count is None:
            return 0
        self._given_back[offset] = count
        self.seek_to = min(self._given_back)
        return self.drop()

    def note_sought(self, offset: int) -> None:
        """The client reads on from there. Something before it may have been given back since it was
        told to: then nothing is taken in until it is told again."""
        if self.seek_to == offset:
            self.seek_to = None

    def drop(self) -> int:
        """Nothing waits any more; how many bytes did."""
        size = sum(size for _, size, _ in self._waiting)
        self._waiting.clear()
        self._sure = self._asked_for = 0
        self._read_again.clear()
        return size

    def _note_gone(self, offset: int) -> None:
        """What was given back and is not there any more when it is read again (the topic was
        compacted, or has let go of it) is not waited for."""
        if offset in self._given_back:
            self._read_again.add(offset)
        gone = [g for g in self._given_back if g < offset and g not in self._read_again]
        for each in gone:
            del self._given_back[each]
            self._done.add(each)
        if gone:
            self._advance()

    def _advance(self) -> None:
        while self._handed_out and self._handed_out[0] in self._done:
            passed = self._handed_out.popleft()
            self._done.discard(passed)
            self._passed = passed + 1
