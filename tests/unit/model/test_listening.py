"""The hold of a listener, what it works by, its rate and its cadence."""

import json
from typing import Any

import pytest

from tape.errors import InvalidArgument, NotFound, StaleLease, TapeError
from tape.model.listening import (
    MOST_PASSED,
    SAID_AGAIN_MS,
    EndDraining,
    ReservedDispatches,
    ReserveDispatches,
    TickSubscription,
)
from tape.model.subscription import (
    PASSED_POSITIONS,
    SOURCE_FIELDS,
    SUBSCRIPTIONS,
    PassedPosition,
    reader_of,
)
from tape.model.subscription_spec import SourceSpec
from tests.conformance.playing import IDS, LIMITS
from tests.conformance.subscribing import MINUTE_MS, PULL, PUSH, SCHEDULED, next_minute, plain
from tests.unit.model.subscription_world import World


def reserve(
    world: World, token: int, most: int = 100, per_s: float = 10.0, **options: Any
) -> ReservedDispatches:
    name = options.pop("name", "s")
    reply = world.play(
        ReserveDispatches(name, token, next(IDS), LIMITS, most=most, per_s=per_s, **options)
    )
    assert isinstance(reply, ReservedDispatches)
    return reply


def tick(world: World, token: int, due_at_ms: int) -> int:
    move = TickSubscription(
        "s", token, due_at_ms, LIMITS, next_due=lambda after_ms: next_minute("", after_ms)
    )
    return int(world.play(move))


def end_draining(world: World) -> bool:
    return bool(world.play(EndDraining("s", next(IDS), LIMITS)))


def test_one_holds_it_until_the_lease_runs_out() -> None:
    world = World().active()
    answer = world.hold()
    assert answer.is_granted
    assert (answer.subscription.state, answer.listener.revision) == ("active", 1)
    assert answer.listener.lease_expires_at_ms == world.state.now_ms + 100 == answer.now_ms + 100
    assert not world.hold(owner="other").is_granted
    assert world.hold(fencing_token=answer.listener.fencing_token).is_granted
    world.later(100)
    other = world.hold(owner="other")
    assert other.is_granted
    assert other.listener.fencing_token == answer.listener.fencing_token + 1
    assert other.listener.lease_owner == "other"


def test_whoever_was_taken_over_is_refused_by_every_call() -> None:
    world = World().active(SCHEDULED)
    stale = world.take()
    world.later(100)
    world.take("other")
    before, words = world.listener(), world.words
    for call in (
        lambda: world.hold(fencing_token=stale),
        lambda: world.hold(fencing_token=stale, letting_go=True),
        lambda: world.accept(stale, plain("a/1")),
        lambda: reserve(world, stale),
        lambda: reserve(world, stale, per_s=0.0),
        lambda: tick(world, stale, before.due_at_ms),
    ):
        with pytest.raises(StaleLease, match=r"subscription 's' is at .* this listener has"):
            call()
    assert (world.listener(), world.words) == (before, words)


def test_nobody_holds_what_is_not_to_be_listened_to() -> None:
    world = World()
    with pytest.raises(NotFound):
        world.hold()
    world.register()
    assert not world.hold().is_granted
    world.move("activate")
    world.move("pause")
    assert not world.hold().is_granted
    world.active(PUSH)
    assert not world.hold("p").is_granted
    assert world.listener().lease_owner == world.listener("p").lease_owner == ""


def test_what_was_done_is_noted_with_each_report() -> None:
    world = World().active()
    token = world.take()
    world.hold(fencing_token=token, fetched=5, in_flight=3, backlog=9, last_error="a\0b")
    world.hold(fencing_token=token, fetched=2, in_flight=1, backlog=-1)
    row = world.listener()
    assert (row.fetched, row.in_flight, row.backlog, row.last_error) == (7, 1, -1, "")
    world.hold(fencing_token=token, fetched=1, in_flight=1, letting_go=True, last_error="a\0b")
    row = world.listener()
    assert (row.fetched, row.in_flight, row.lease_owner) == (8, 0, "")
    assert row.last_error == "a\\0b"
    with pytest.raises(StaleLease):
        world.hold(fencing_token=token)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("owner", ""),
        ("ttl_ms", 0),
        ("fetched", -1),
        ("in_flight", -1),
        ("backlog", -2),
        ("passed", tuple((str(n), n) for n in range(MOST_PASSED + 1))),
    ],
)
def test_a_report_that_cannot_be_is_refused_by_its_field(field: str, value: Any) -> None:
    from tape.model.listening import HoldListener, HoldSubscription

    request = HoldSubscription("s", "me", 100)._replace(**{field: value})
    with pytest.raises(InvalidArgument) as refused:
        HoldListener(request, next(IDS), LIMITS, next_due=next_minute)
    assert refused.value.field.removeprefix("lease_") == field


def test_a_holder_goes_on_by_its_revision_until_nothing_of_it_is_in_hand() -> None:
    world = World().active()
    token = world.take()
    world.hold(fencing_token=token, in_flight=2)
    world.register(PULL._replace(document_json='{"v":2}'))
    assert world.hold(fencing_token=token, in_flight=1).listener.revision == 1
    answer = world.hold(fencing_token=token)
    assert (answer.is_granted, answer.listener.revision) == (True, 2)


def test_whoever_takes_over_begins_with_the_newest_revision() -> None:
    world = World().active()
    token = world.take()
    world.hold(fencing_token=token, in_flight=2)
    world.register(PULL._replace(document_json='{"v":2}'))
    world.later(100)
    answer = world.hold(owner="other")
    assert (answer.listener.revision, answer.listener.in_flight) == (2, 0)


def test_what_drains_is_deactivated_when_its_holder_lets_go() -> None:
    world = World().active()
    token = world.take()
    assert world.move("drain").state == "draining"
    assert world.move("drain").state == "draining"
    assert world.hold(fencing_token=token, in_flight=1).is_granted
    assert world.outcomes(token, plain("a/1")) == ["accepted"]  # what is in hand is finished
    assert world.hold(fencing_token=token).is_granted  # it may still be fetching
    answer = world.hold(fencing_token=token, letting_go=True, fetched=1, passed=(("o", 3),))
    assert (answer.is_granted, answer.subscription.state) == (False, "deactivated")
    assert world.subscription().state == "deactivated"
    assert (world.listener().fetched, world.listener().lease_owner) == (1, "")
    assert world.state.get(PASSED_POSITIONS, ("s", "o")) is not None
    assert world.words[-1] == "deactivated"


def test_what_drains_and_lost_its_holder_is_deactivated_by_who_looks() -> None:
    for look in (lambda world: not world.hold(owner="other").is_granted, end_draining):
        world = World().active()
        world.take()
        world.move("drain")
        assert end_draining(world) is False
        world.later(100)
        assert look(world)
        assert (world.subscription().state, world.listener().lease_owner) == ("deactivated", "")
        assert world.words[-1] == "deactivated"
        assert end_draining(world) is False


def test_what_was_deactivated_is_no_more_listened_to() -> None:
    world = World().active()
    token = world.take()
    world.move("deactivate")
    answer = world.hold(fencing_token=token, in_flight=4)
    assert (answer.is_granted, answer.subscription.state) == (False, "deactivated")
    assert (world.listener().lease_owner, world.listener().in_flight) == ("", 0)
    with pytest.raises(TapeError):
        world.accept(token, plain("a/1"))


def test_a_paused_one_keeps_its_holder_and_what_it_has_in_hand() -> None:
    world = World().active()
    token = world.take()
    world.move("pause")
    assert world.hold(fencing_token=token, in_flight=1).is_granted
    assert world.outcomes(token, plain("a/1")) == ["accepted"]


def test_positions_that_were_passed_are_noted_when_they_are_new() -> None:
    world = World().active()
    token = world.take()

    def passed(origin: str = "o") -> tuple[int, int]:
        row = world.state.get(PASSED_POSITIONS, ("s", origin))
        assert row is not None
        return row.position, row.reported_at_ms

    world.hold(fencing_token=token, passed=(("o", 5), ("q", 0)))
    first_ms = world.state.now_ms
    assert (passed(), passed("q")) == ((5, first_ms), (0, first_ms))
    world.later(10)
    world.hold(fencing_token=token, passed=(("o", 5), ("q", 2)))
    assert (passed(), passed("q")) == ((5, first_ms), (2, first_ms + 10))
    world.later(SAID_AGAIN_MS - 11)
    world.hold(fencing_token=token, passed=(("o", 5),))
    assert passed() == (5, first_ms)
    world.later(1)
    world.hold(fencing_token=token, passed=(("o", 5),))
    assert passed() == (5, world.state.now_ms)


def test_a_position_goes_back_where_its_source_does() -> None:
    """A consumer that was made again under its name has passed nothing."""
    world = World().active()
    token = world.take()
    world.hold(fencing_token=token, passed=(("o", 5),))
    for position in (3, -1):
        world.later(1)
        world.hold(fencing_token=token, passed=(("o", position),))
        row = PassedPosition("s", "o", "", position, world.state.now_ms)
        assert world.state.get(PASSED_POSITIONS, ("s", "o")) == row


def test_a_position_is_that_of_who_reads() -> None:
    world = World().active()
    token = world.take()
    for reader, position in (("one", 5), ("another", 5), ("another", 3), ("one", 4)):
        world.hold(fencing_token=token, passed=(("o", position),), reader=reader)
        row = PassedPosition("s", "o", reader, position, world.state.now_ms)
        assert world.state.get(PASSED_POSITIONS, ("s", "o")) == row


def test_what_two_documents_read_differs_in_all_that_they_say_of_their_source() -> None:
    said = ("source", *SourceSpec._fields[1:])
    assert said == SOURCE_FIELDS

    def reader(**spec: str) -> str:
        return reader_of(json.dumps({"spec": {"stream": "a", "dispatch": {}} | spec}))

    assert reader() == reader(activation="continuous", cadence="x")
    assert len({reader(), *(reader(**{field: "other"}) for field in said)}) == 1 + len(said)


def test_a_rate_grants_what_it_allows_and_says_when_to_ask_again() -> None:
    world = World().active()
    token = world.take()
    assert reserve(world, token, most=100, per_s=10.0) == (2, 100)
    assert reserve(world, token, most=1, per_s=10.0) == (0, 100)
    world.later(99)
    assert reserve(world, token, most=1, per_s=10.0) == (0, 1)
    world.later(1)
    assert reserve(world, token, most=1, per_s=10.0) == (1, 0)
    assert reserve(world, token, most=0, per_s=10.0) == (0, 0)
    assert reserve(world, token, most=100, per_s=0.0) == (100, 0)


def test_what_was_not_needed_comes_back() -> None:
    world = World().active()
    token = world.take()
    assert reserve(world, token, most=5, per_s=20.0).granted == 3
    assert reserve(world, token, most=5, per_s=20.0, unused=2).granted == 2
    assert reserve(world, token, most=5, per_s=20.0).granted == 0
    world.later(60_000)
    assert reserve(world, token, most=500, per_s=20.0, unused=500).granted == 3


@pytest.mark.parametrize("unused", [0, 1])
def test_who_is_late_keeps_the_pace_of_the_rate_and_who_was_idle_does_not(unused: int) -> None:
    world = World().active()
    token = world.take()
    assert reserve(world, token, most=1, per_s=2.0) == (1, 0)
    world.later(500 + 60)
    if unused:
        assert reserve(world, token, most=1, per_s=2.0) == (1, 0)
        world.later(60)
    assert reserve(world, token, most=9, per_s=2.0, unused=unused) == (1, 500 if unused else 440)


@pytest.mark.parametrize("is_activated_anew", [False, True])
def test_a_rate_that_was_too_low_ends_with_its_revision(is_activated_anew: bool) -> None:
    world = World().active()
    token = world.take()
    assert reserve(world, token, most=2, per_s=0.001) == (1, 1_000_000)
    assert reserve(world, token, most=2, per_s=0.001) == (0, 1_000_000)
    world.later(10)
    if is_activated_anew:
        world.move("deactivate")
        world.move("activate")
        world.later(100)
        token = world.take()
    assert reserve(world, token, most=50, per_s=50.0) == (0, 20)
    world.later(20)
    assert reserve(world, token, most=50, per_s=50.0) == (1, 20)
    assert world.listener().free_at_us == (world.state.now_ms + 20) * 1000


def test_the_journal_is_told_once_that_a_rate_is_reached() -> None:
    world = World().active()
    token = world.take()

    def throttled_for(ms: int) -> None:
        """Ask more than the rate allows, every tenth of a second."""
        for _ in range(ms // 100):
            reserve(world, token, most=1, per_s=2.0)
            world.later(100)

    throttled_for(12_000)
    assert world.words.count("rate_limited") == 1
    (payload,) = world.payloads("rate_limited")
    assert payload["per_s"] == 2.0
    world.later(9_000)
    throttled_for(1_000)
    assert world.words.count("rate_limited") == 1
    world.later(10_001)
    assert reserve(world, token, most=1, per_s=2.0).granted == 1
    assert world.listener().throttled_at_ms == 0
    throttled_for(200)
    assert world.words.count("rate_limited") == 2


def test_the_journal_is_told_of_a_rate_that_grants_too_few_each_time() -> None:
    world = World().active()
    token = world.take()
    granted = [reserve(world, token, most=500, per_s=1_000.0).granted]
    for _ in range(30):
        world.later(20)
        granted.append(reserve(world, token, most=500, per_s=1_000.0, held_up=True).granted)
    assert all(0 < number < 500 for number in granted)
    assert world.words.count("rate_limited") == 1
    world.later(10_001)
    reserve(world, token, most=1, per_s=1_000.0)
    assert world.listener().throttled_at_ms == 0


def test_a_push_is_reserved_for_without_a_hold() -> None:
    world = World().active(PUSH)
    assert reserve(world, 0, most=1, name="p").granted == 1
    with pytest.raises(InvalidArgument) as refused:
        reserve(world, 5, most=1, name="p")
    assert refused.value.field == "fencing_token"
    world.active()
    world.take()
    with pytest.raises(StaleLease):
        reserve(world, 0, most=1)


@pytest.mark.parametrize("field", ["most", "unused"])
@pytest.mark.parametrize("number", [-1, 100_001])
def test_reservations_are_bounded(field: str, number: int) -> None:
    with pytest.raises(InvalidArgument) as refused:
        reserve(World().active(), 1, **{field: number})
    assert refused.value.field == field


def test_a_scheduled_fetch_is_ticked_once() -> None:
    world = World().active(SCHEDULED)
    token = world.take()
    due = world.listener().due_at_ms
    assert due == next_minute("", world.state.now_ms)
    world.later(due - world.state.now_ms + 5)
    assert tick(world, token, due) == due + MINUTE_MS
    assert tick(world, token, due) == due + MINUTE_MS  # the slower of two
    assert world.listener().due_at_ms == due + MINUTE_MS


def test_ticks_that_were_missed_are_one() -> None:
    world = World().active(SCHEDULED)
    token = world.take()
    due = world.listener().due_at_ms
    world.later(10 * MINUTE_MS)
    assert tick(world, token, due) == next_minute("", world.state.now_ms)


def test_what_is_due_is_kept_over_takeovers_and_found_anew_with_another_cadence() -> None:
    world = World().active(SCHEDULED)
    token = world.take()
    due = world.listener().due_at_ms
    world.later(3 * MINUTE_MS)
    world.take("other")
    assert world.listener().due_at_ms == due  # overdue, and fetched at once
    world.register(SCHEDULED._replace(document_json='{"v":2}', cadence="0 * * * *"))
    token = world.listener().fencing_token
    answer = world.hold(fencing_token=token)
    assert answer.listener.due_at_ms == next_minute("", world.state.now_ms)
    world.move("deactivate")
    world.move("activate")
    world.state.put_loaded(SUBSCRIPTIONS, [world.subscription()._replace(activation="continuous")])
    assert world.hold(fencing_token=token).listener.due_at_ms == 0


def test_a_source_that_refuses_leaves_a_paused_subscription_behind() -> None:
    world = World().active()
    token = world.take()
    answer = world.hold(
        fencing_token=token, letting_go=True, refused=True, fetched=2, last_error="bad login"
    )
    assert (answer.is_granted, answer.subscription.state) == (False, "paused")
    assert world.subscription().state == "paused"
    row = world.listener()
    assert (row.lease_owner, row.fetched, row.last_error) == ("", 2, "bad login")
    (payload,) = world.payloads("paused")
    assert payload == {
        "name": "s",
        "revision": 1,
        "state": "paused",
        "before": "active",
        "by": "listener",
        "because": "bad login",
    }
    assert not world.hold(owner="other").is_granted
    world.move("resume")
    assert world.hold(owner="other").is_granted


def test_what_somebody_else_has_decided_meanwhile_counts_more_than_a_refusal() -> None:
    for verb, state, word in (
        ("pause", "paused", "paused"),
        ("drain", "deactivated", "deactivated"),
        ("deactivate", "deactivated", "deactivated"),
    ):
        world = World().active()
        token = world.take()
        world.move(verb)
        world.hold(fencing_token=token, letting_go=True, refused=True, last_error="bad login")
        assert (world.subscription().state, world.words[-1]) == (state, word)
        assert world.listener().last_error == "bad login"
        assert all("by" not in payload for payload in world.payloads("paused"))


def test_a_refusal_of_an_older_revision_does_not_pause_the_newest() -> None:
    world = World().active()
    token = world.take()
    world.register(PULL._replace(document_json='{"v":2}'))
    answer = world.hold(fencing_token=token, letting_go=True, refused=True, last_error="bad login")
    assert (answer.subscription.state, world.listener().lease_owner) == ("active", "")
    assert world.hold(owner="other").listener.revision == 2


def test_a_refusal_is_of_the_revision_that_was_worked_by() -> None:
    """Not of the one that the listener's row has come to meanwhile, which nobody has tried."""
    world = World().active()
    token = world.take()
    world.register(PULL._replace(document_json='{"v":2}'))
    assert world.hold(fencing_token=token, revision=1).listener.revision == 2
    refused: dict[str, Any] = {"letting_go": True, "refused": True, "last_error": "bad login"}
    answer = world.hold(fencing_token=token, revision=1, **refused)
    assert (answer.subscription.state, world.listener().lease_owner) == ("active", "")
    answer = world.hold(fencing_token=world.take(), revision=2, **refused)
    assert answer.subscription.state == "paused"


@pytest.mark.parametrize("fields", [{"fencing_token": 7}, {"letting_go": True}, {}])
def test_whoever_does_not_let_go_cannot_be_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument) as refused:
        World().active().hold(refused=True, **fields)
    assert refused.value.field == "refused"
