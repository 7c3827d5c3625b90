"""What the journal has of the messages that were sent, read beside Tape's own code."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import orjson

from tests.crash.listening.far_ends import NumberedMessage
from tests.crash.watching import query

FETCHED = ".fetched"
BEGUN = """
SELECT subject, payload_json FROM tape_journal WHERE subject LIKE '/tape/run/runnable/%'
ORDER BY global_seq
"""
RUNS = "SELECT app_name, user_id, session_id, invocation_id FROM tape_runs"
PLACES = "SELECT count(*), count(DISTINCT run_id) FROM tape_accepted_places"
LISTENER = """
SELECT accepted, redelivered, deduplicated, dead_lettered, lease_owner, lease_expires_at_ms,
  fencing_token FROM tape_listeners
"""
STATE = "SELECT state FROM tape_subscriptions"
DUE = "SELECT due_at_ms FROM tape_listeners"
LIVES = """
SELECT subject FROM tape_journal WHERE subject LIKE '/tape/subscription/%' ORDER BY global_seq
"""


class Counts(NamedTuple):
    """A row of what listeners have done."""

    accepted: int
    redelivered: int
    deduplicated: int
    dead_lettered: int
    lease_owner: str
    lease_expires_at_ms: int
    fencing_token: int


def accepted(url: str) -> list[NumberedMessage]:
    """The messages that have a run, in the order in which their runs were begun."""
    return [
        NumberedMessage(**orjson.loads(payload)["input"]["payload"])
        for _subject, payload in query(url, BEGUN)
    ]


def counts(url: str) -> Counts:
    (row,) = query(url, LISTENER)
    return Counts(*row)


def lifecycle(url: str) -> list[str]:
    """What the journal tells of subscriptions, a word each."""
    return [subject.split("/")[3] for (subject,) in query(url, LIVES)]


def read_fetched(folder: Path) -> list[list[str]]:
    """The ids of what listeners have noted that they fetched, in order, of each source that they
    opened. A kill may cut the write of a note: what has no end of line was not given to anybody."""
    return [
        [orjson.loads(line)["id"] for line in file.read_bytes().split(b"\n")[:-1]]
        for file in folder.glob(f"*{FETCHED}")
    ]


class Deliveries:
    """In which order sources gave messages to listeners."""

    def __init__(self, fetched: Sequence[Sequence[str]]) -> None:
        self._first: list[dict[str, int]] = []
        for ids in fetched:
            places: dict[str, int] = {}
            for place, each in enumerate(ids):
                places.setdefault(each, place)
            self._first.append(places)

    def explain(self, first: str, second: str) -> bool:
        """Whether these may have been begun one after the other because a source gave the first,
        and had not given the second before."""
        return any(
            first in places and places.get(second, len(places)) > places[first]
            for places in self._first
        )


STATES = {
    "activated": "active", "paused": "paused", "resumed": "active", "draining": "draining",
    "deactivated": "deactivated",
}  # fmt: skip
FOLLOW = {
    "registered": {"activated"}, "active": {"paused", "draining", "deactivated"},
    "paused": {"resumed", "draining", "deactivated"}, "draining": {"deactivated"},
    "deactivated": {"activated"},
}  # fmt: skip


def check_life(url: str) -> str:
    """The journal tells of a legal life that ends in the state of the row; which one that is."""
    state = "registered"
    words = lifecycle(url)
    for word in words:
        if word in STATES:
            assert word in FOLLOW[state], f"{word} of {state}: {words}"
            state = STATES[word]
    row = state_of(url)
    assert row == state, words
    return state


def state_of(url: str) -> str:
    """As its row has it."""
    ((state,),) = query(url, STATE)
    return str(state)


def due_at_ms(url: str) -> int:
    """When a scheduled one fetches next."""
    ((due,),) = query(url, DUE)
    return int(due)


def check_accepted(
    url: str,
    sent: Sequence[NumberedMessage],
    *,
    of: str,
    fetched: Sequence[Sequence[str]] = (),
) -> Counts:
    """All of them, each once, in the order of its key, and nothing else. `of` is what is told where
    that is not so. `fetched` is given where listeners get messages in another order, which is the
    one to be kept then."""
    found = accepted(url)
    times = Counter(message.id for message in found)
    lost = [message for message in sent if message.id not in times]
    assert not lost, f"{of}: {len(lost)} of {len(sent)} were lost: {lost[:5]}"
    twice = [each for each, number in times.items() if number > 1]
    assert not twice, f"{of}: {len(twice)} have more than one run: {twice[:5]}"
    assert len(found) == len(sent), f"{of}: somebody else's"
    check_order(found, fetched, of=of)
    names = query(url, RUNS)
    assert len(names) == len(set(names)) == len(sent), f"{of}: runs"
    assert query(url, PLACES) == [(len(sent), len(sent))], f"{of}: places"
    told = counts(url)
    assert told[:1] + told[2:4] == (len(sent), 0, 0), f"{of}: {told}"
    return told


def check_order(
    found: Sequence[NumberedMessage], fetched: Sequence[Sequence[str]] = (), *, of: str
) -> None:
    """Those of a key were begun as they were sent, or else as they were delivered."""
    by_key: dict[str, list[NumberedMessage]] = defaultdict(list)
    for message in found:
        by_key[message.key].append(message)
    deliveries = Deliveries(fetched)
    back = [
        (first, second)
        for messages in by_key.values()
        for first, second in pairwise(messages)
        if first.n > second.n and not deliveries.explain(first.id, second.id)
    ]
    assert not back, f"{of}: these were begun one after the other: {back[:20]}"


def check_passed(url: str, passed: set[str] | None, *, of: str) -> None:
    """Nothing that its source will not deliver again is missing in the journal."""
    if passed is not None:
        lost = passed - {message.id for message in accepted(url)}
        assert not lost, f"{of}: {len(lost)} were acknowledged and not accepted"
