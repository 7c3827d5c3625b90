"""Whatever is delivered in whatever batches: one run of each message, and counts that add up."""

from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from tape.model.accept_messages import AcceptedMessage, PlannedMessage
from tape.model.run import RUNS
from tests.conformance.subscribing import bad, plain
from tests.unit.model.subscription_world import World

WINDOW_MS = 100


class Delivered(NamedTuple):
    """A message by the number of its place, which says whether it can be a run and what key it
    has; and what passes before it."""

    place: int
    wait_ms: int
    starts_batch: bool

    @property
    def planned(self) -> PlannedMessage:
        place = f"a/{self.place}"
        return bad(place) if self.place % 5 == 4 else plain(place, f"k{self.place % 3}")


deliveries = st.lists(
    st.builds(Delivered, st.integers(0, 14), st.sampled_from([0, 0, 40, 100]), st.booleans()),
    max_size=40,
)


def accepted(
    delivered: list[Delivered], *, one_by_one: bool
) -> tuple[World, list[AcceptedMessage]]:
    world = World().active()
    token = world.take()
    found: list[AcceptedMessage] = []
    batch: list[PlannedMessage] = []

    def flush() -> None:
        if batch:
            found.extend(world.accept(token, *batch, window_ms=WINDOW_MS).messages)
            batch.clear()

    for one in delivered:
        if one.wait_ms or one.starts_batch or one_by_one:
            flush()
        world.later(one.wait_ms)
        batch.append(one.planned)
    flush()
    return world, found


@given(deliveries)
def test_batches_make_no_difference(delivered: list[Delivered]) -> None:
    world, found = accepted(delivered, one_by_one=False)
    other, expected = accepted(delivered, one_by_one=True)
    assert found == expected
    assert len(world.words) == len(other.words)
    assert world.listener()[4:] == other.listener()[4:]


@given(deliveries)
def test_each_message_becomes_one_thing_and_stays_it(delivered: list[Delivered]) -> None:
    world, found = accepted(delivered, one_by_one=False)
    first: dict[str, AcceptedMessage] = {}
    for one in found:
        was = first.setdefault(one.place, one)
        if was is not one:
            assert (one.outcome.value, one.run_id) == ("redelivered", was.run_id)
        else:
            assert one.outcome.value != "redelivered"
    runs = world.state.saves.get(RUNS, {})
    begun = [one for one in first.values() if one.outcome.value == "accepted"]
    assert {one.run_id for one in begun} == set(runs)
    row = world.listener()
    assert row.accepted == len(begun) == world.words.count("runnable")
    assert row.deduplicated == world.words.count("message_deduplicated")
    assert row.dead_lettered == world.words.count("message_dead_lettered")
    counted = row.accepted + row.deduplicated + row.dead_lettered + row.redelivered
    assert counted == len(delivered) == len(found)


@given(deliveries)
def test_no_key_begins_two_runs_within_its_window(delivered: list[Delivered]) -> None:
    world, found = accepted(delivered, one_by_one=False)
    now, begun_at = 0, dict[str, int]()
    for one, became in zip(delivered, found, strict=True):
        now += one.wait_ms
        key = one.planned.key
        if became.outcome.value == "accepted":
            assert now - begun_at.get(key, -WINDOW_MS) >= WINDOW_MS
            begun_at[key] = now
        elif became.outcome.value == "deduplicated":
            assert now - begun_at[key] < WINDOW_MS
    assert world.state.now_ms >= now
