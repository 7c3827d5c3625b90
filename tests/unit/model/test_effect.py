"""Effects as a run's driver writes them: begun before the act, completed after it."""

from typing import Any

import pytest

from tape.errors import (
    BusinessKeyTaken,
    InvalidArgument,
    NotFound,
    RunCancelled,
    StaleLease,
    TooLarge,
)
from tape.model.effect import (
    BUSINESS_KEYS,
    EFFECTS,
    BeginEffect,
    BusinessKey,
    CompleteEffect,
    DispatchMode,
    Effect,
    EffectStatus,
    Semantics,
    effect_key,
)
from tape.model.effect_claim import ClaimEffect
from tape.model.move import Need
from tape.model.obligation import OBLIGATIONS, ObligationKey, RegisterCompensation
from tape.model.run import RunName
from tape.model.run_end import CancelRun
from tests.unit.model.run_world import (
    LIMITS,
    NOW,
    RUN,
    TTL,
    World,
    driven,
    faulty,
    refused,
    unchanged,
)

PENDING, CONFIRMED, FAILED, UNKNOWN = EffectStatus
KEY = f"{RUN}/decision-2/pay/1"
PAY = BeginEffect(2, "pay", 1, '{"sum": 7}')
OUTBOX = PAY._replace(semantics=Semantics.NON_IDEMPOTENT, dispatch_mode=DispatchMode.OUTBOX)
UNDO = RegisterCompensation(KEY, "undo", '"how"')


class TestBeginning:
    def test_it_is_pending_before_anything_happens(self) -> None:
        world = driven()
        effect = world.drive(PAY)
        assert effect == world.effect(KEY) == Effect(
            RUN, KEY, 2, 2, "pay", 1, PENDING, '{"sum": 7}', "null", "null", NOW,
            Semantics.IDEMPOTENT, DispatchMode.INLINE, "", "pay", "",
        )  # fmt: skip
        assert world.entries[-1].subject == f"/tape/effect/pending/pay/{RUN}"
        assert world.payload() == {
            "idempotency_key": KEY, "tool_name": "pay", "decision_index": 2, "call_index": 1,
            "request": {"sum": 7}, "semantics": "idempotent", "dispatch_mode": "inline",
            "connector": "pay", "business_key": "",
        }  # fmt: skip

    def test_the_counterparty_is_told_the_same_key_each_time(self) -> None:
        assert effect_key("r", 0, "t", 3) == "r/decision-0/t/3"
        assert driven().drive(PAY._replace(custom_key="mine")).idempotency_key == "mine"

    def test_one_that_was_begun_is_answered_as_it_stands(self) -> None:
        world = driven()
        world.drive(PAY)
        world.begin("a")
        with unchanged(world):
            assert world.extend(2, PAY).replies == [world.effect(KEY)]
        world.drive(CompleteEffect(KEY, CONFIRMED, "8"))
        with unchanged(world):
            assert world.drive(PAY).response_json == "8"

    def test_a_key_is_one_tools(self) -> None:
        world = driven()
        world.drive(BeginEffect(0, "pay", 0, custom_key="k"))
        with refused(world, InvalidArgument, "custom_key", match="'pay'"):
            world.drive(BeginEffect(0, "ship", 0, custom_key="k"))

    def test_a_stale_driver_begins_nothing(self) -> None:
        world = driven()
        for token in (0, 2):
            with refused(world, StaleLease):
                world.extend(token, PAY)

    def test_nothing_new_once_it_is_to_be_cancelled(self) -> None:
        world = driven()
        world.drive(PAY)
        world.change(CancelRun("enough", ""))
        with refused(world, RunCancelled, match="enough"):
            world.drive(PAY._replace(call_index=2))
        with unchanged(world):
            assert world.drive(PAY) == world.effect(KEY)

    def test_what_is_named_is_what_it_looks_at(self) -> None:
        own = Need(EFFECTS, (RUN, KEY))
        assert list(PAY.needs(RUN)) == [own]
        with_key = PAY._replace(business_key="b").checked(LIMITS)
        assert list(with_key.needs(RUN)) == [own, Need(BUSINESS_KEYS, ("pay", "b"))]
        assert PAY.size == 2 * len(PAY.request_json)


class TestBusinessKeys:
    def test_one_effect_has_it_for_each_connector(self) -> None:
        world = driven()
        world.drive(PAY._replace(business_key="invoice-1"))
        assert world.get(BUSINESS_KEYS, ("pay", "invoice-1")) == BusinessKey(
            "pay", "invoice-1", RUN, KEY
        )
        other = PAY._replace(call_index=2, business_key="invoice-1")
        with refused(world, BusinessKeyTaken, match=KEY):
            world.drive(other)
        world.drive(other._replace(connector="elsewhere"))
        world.drive(PAY._replace(call_index=3, business_key="invoice-2"))

    def test_not_even_another_run_gets_it(self) -> None:
        world = driven()
        world.drive(PAY._replace(business_key="b"))
        name = RunName("app", "", "", "2")
        world.begin("a", name)
        with refused(world, BusinessKeyTaken):
            world.drive(PAY._replace(business_key="b"), run_id=name.run_id)

    def test_it_is_its_own_when_it_is_begun_again(self) -> None:
        world = driven()
        keyed = PAY._replace(business_key="b")
        effect = world.drive(keyed)
        with unchanged(world):
            assert world.drive(keyed) == effect

    def test_two_in_one_move_do_not_share_it(self) -> None:
        world = driven()
        keyed = PAY._replace(business_key="b")
        with refused(world, BusinessKeyTaken):
            world.drive(keyed, keyed._replace(call_index=5))


class TestCompleting:
    @pytest.mark.parametrize("status", [CONFIRMED, FAILED, UNKNOWN])
    def test_what_came_of_it(self, status: EffectStatus) -> None:
        world = driven()
        pending = world.drive(PAY)
        effect = world.drive(CompleteEffect(KEY, status, "8", '"e"'))
        assert effect == world.effect(KEY)
        assert effect == pending._replace(status=status, response_json="8", error_json='"e"')
        assert world.entries[-1].subject == f"/tape/effect/{status.name.lower()}/pay/{RUN}"
        assert world.payload() == {
            "idempotency_key": KEY, "tool_name": "pay", "decision_index": 2,
            "status": status.name.lower(), "response": 8, "error": "e", "external_ref": "",
        }  # fmt: skip

    @pytest.mark.parametrize("first", [CONFIRMED, FAILED, UNKNOWN])
    @pytest.mark.parametrize("then", [CONFIRMED, FAILED, UNKNOWN])
    def test_the_first_word_of_the_driver_counts(
        self, first: EffectStatus, then: EffectStatus
    ) -> None:
        world = driven()
        world.drive(PAY, CompleteEffect(KEY, first, "8"))
        with unchanged(world):
            again = world.drive(CompleteEffect(KEY, then, "9", compensation=UNDO))
        assert (again.status, again.response_json) == (first, "8")

    def test_a_stale_driver_completes_nothing(self) -> None:
        world = driven()
        world.drive(PAY)
        world.begin("a")
        with refused(world, StaleLease):
            world.extend(1, CompleteEffect(KEY, CONFIRMED))

    def test_one_that_was_never_begun(self) -> None:
        world = driven()
        with refused(world, NotFound, match="no effect 'none'"):
            world.drive(CompleteEffect("none", CONFIRMED))

    def test_the_outbox_is_settled_by_whoever_has_claimed_it(self) -> None:
        world = driven()
        world.drive(OUTBOX)
        with refused(world, InvalidArgument, "idempotency_key"):
            world.drive(CompleteEffect(KEY, CONFIRMED))
        world.change(ClaimEffect(KEY, "d", TTL))
        with refused(world, InvalidArgument, "idempotency_key"):
            world.drive(CompleteEffect(KEY, CONFIRMED))

    def test_one_that_is_to_be_cancelled_may_say_what_came_of_its_acts(self) -> None:
        world = driven()
        world.drive(PAY)
        world.change(CancelRun("enough", ""))
        assert world.drive(CompleteEffect(KEY, CONFIRMED)).status == CONFIRMED


class TestWithCompensation:
    def complete(self, world: World, status: EffectStatus = CONFIRMED) -> Effect:
        effect: Effect = world.drive(CompleteEffect(KEY, status, "8", compensation=UNDO))
        return effect

    def test_it_is_registered_with_the_confirmation(self) -> None:
        world = driven()
        world.drive(PAY)
        self.complete(world)
        obligation = world.obligation(ObligationKey(KEY, "undo"))
        assert (obligation.seq, obligation.payload_json) == (4, '"how"')
        assert world.run().top_obligation == 4
        assert world.verbs()[-2:] == ["effect confirmed", "obligation registered"]
        assert world.payload()["obligation_seq"] == world.entries[-1].seq == 4

    @pytest.mark.parametrize("status", [FAILED, UNKNOWN])
    def test_what_did_not_happen_for_sure_leaves_none(self, status: EffectStatus) -> None:
        world = driven()
        world.drive(PAY)
        self.complete(world, status)
        assert world.all(OBLIGATIONS) == []
        assert world.run().top_obligation == 0

    def test_a_repeat_leaves_one(self) -> None:
        world = driven()
        world.drive(PAY)
        self.complete(world)
        with unchanged(world):
            self.complete(world)

    def test_one_that_was_registered_before_is_not_registered_again(self) -> None:
        world = driven()
        world.drive(PAY, UNDO)
        self.complete(world)
        assert world.verbs()[-2:] == ["obligation registered", "effect confirmed"]
        assert world.run().top_obligation == 3

    def test_it_is_among_what_is_looked_at(self) -> None:
        complete = CompleteEffect(KEY, CONFIRMED, "8", "12", UNDO)
        assert list(complete.needs(RUN)) == [
            Need(EFFECTS, (RUN, KEY)), Need(OBLIGATIONS, (RUN, KEY, "undo")),
        ]  # fmt: skip
        assert complete.size == 3


class TestBadInput:
    @pytest.mark.parametrize(
        ("fields", "error", "field"),
        [
            ({"decision_index": -1}, InvalidArgument, "decision_index"),
            ({"decision_index": 2**31}, InvalidArgument, "decision_index"),
            ({"call_index": -1}, InvalidArgument, "call_index"),
            ({"call_index": 2**31}, InvalidArgument, "call_index"),
            ({"tool_name": ""}, InvalidArgument, "tool_name"),
            ({"tool_name": "\0"}, InvalidArgument, "tool_name"),
            ({"tool_name": "x" * 513}, TooLarge, "tool_name"),
            ({"custom_key": "\0"}, InvalidArgument, "custom_key"),
            ({"custom_key": "x" * 513}, TooLarge, "custom_key"),
            ({"business_key": "\0"}, InvalidArgument, "business_key"),
            ({"connector": "\ud800"}, InvalidArgument, "connector"),
            ({"scope": "\0"}, InvalidArgument, "scope"),
            ({"semantics": 4}, InvalidArgument, "semantics"),
            ({"semantics": -1}, InvalidArgument, "semantics"),
            ({"dispatch_mode": 3}, InvalidArgument, "dispatch_mode"),
            ({"request_json": "{"}, InvalidArgument, "request_json"),
            ({"semantics": Semantics.NON_IDEMPOTENT}, InvalidArgument, "dispatch_mode"),
        ],
    )
    def test_of_what_is_begun(
        self, fields: dict[str, Any], error: type[InvalidArgument], field: str
    ) -> None:
        faulty(PAY._replace(**fields), error, field)

    def test_a_tool_whose_key_could_not_be_named_again(self) -> None:
        room = 512 - len(effect_key(RUN, 2, "", 1))
        fits = PAY._replace(tool_name="x" * room)
        world = driven()
        effect = world.drive(fits)
        world.drive(CompleteEffect(effect.idempotency_key, CONFIRMED))
        faulty(PAY._replace(tool_name="x" * (room + 1)), TooLarge, "tool_name")
        PAY._replace(tool_name="x" * 512, custom_key="k").checked(LIMITS)

    @pytest.mark.parametrize("mode", [DispatchMode.INLINE, 0])
    def test_what_is_not_idempotent_is_refused_inline(self, mode: int) -> None:
        with pytest.raises(InvalidArgument, match="must go through the outbox"):
            OUTBOX._replace(dispatch_mode=mode).checked(LIMITS)
        OUTBOX.checked(LIMITS)

    def test_what_is_left_out(self) -> None:
        checked = BeginEffect(0, "pay", 0, "", semantics=0, dispatch_mode=0).checked(LIMITS)
        assert checked.request_json == "null"
        assert (checked.semantics, checked.dispatch_mode, checked.connector) == (1, 1, "pay")
        assert PAY._replace(connector="bank").checked(LIMITS).connector == "bank"

    @pytest.mark.parametrize(
        ("write", "error", "field"),
        [
            (CompleteEffect("", CONFIRMED), InvalidArgument, "idempotency_key"),
            (CompleteEffect("\0", CONFIRMED), InvalidArgument, "idempotency_key"),
            (CompleteEffect("k", PENDING), InvalidArgument, "status"),
            (CompleteEffect("k", 0), InvalidArgument, "status"),
            (CompleteEffect("k", 5), InvalidArgument, "status"),
            (CompleteEffect("k", CONFIRMED, "{"), InvalidArgument, "response_json"),
            (CompleteEffect("k", FAILED, "1", "{"), InvalidArgument, "error_json"),
            (
                CompleteEffect("k", CONFIRMED, compensation=UNDO._replace(kind="")),
                InvalidArgument,
                "kind",
            ),
        ],
    )
    def test_of_what_came_of_it(
        self, write: CompleteEffect, error: type[InvalidArgument], field: str
    ) -> None:
        faulty(write, error, field)

    def test_json_that_is_left_out_is_null(self) -> None:
        checked = CompleteEffect("k", CONFIRMED, "", "").checked(LIMITS)
        assert (checked.response_json, checked.error_json) == ("null", "null")
