"""Subscriptions on a store: documents, activation, holds, dead letters and what they leave."""

from dataclasses import replace
from hashlib import sha256
from typing import Any

import orjson
import pytest
import yaml

from tape.errors import (
    InvalidArgument,
    NoCredential,
    NotFound,
    SourceRefused,
    SourceUnavailable,
    StaleLease,
    TapeError,
    WrongState,
)
from tape.model.message import cut
from tape.model.subscription_spec import SubscriptionSpec
from tape.subscriptions.operations import (
    HoldSubscription,
    SubscriptionOperations,
    Subscriptions,
)
from tape.subscriptions.shown import subscription_json
from tests.unit.subscriptions.subscribed import (
    ORIGIN,
    Subscribed,
    delivery,
    document,
    message,
    pushed,
)

SPOOL = {
    "mode": "buffer_and_ack",
    "backend": "gcs",
    "bucket": "gs://bucket/prefix",
    "auth": "spool_login",
}


def checking(desk: Subscribed, **checks: Any) -> Subscriptions:
    """The same operations, with what activation looks at."""
    bus = desk.bus
    return Subscriptions(bus._store, bus._writer, bus._ids, bus.limits, **checks)


async def state(desk: Subscribed, name: str = "orders") -> str:
    return (await desk.subscriptions.get_subscription(name)).subscription.state


async def test_a_document_is_registered_once_and_changed_when_it_says_something_else(
    desk: Subscribed,
) -> None:
    first = await desk.subscriptions.register_subscription(document())
    assert (first.is_new, first.is_changed, first.view.is_held) == (True, True, False)
    row = first.view.subscription
    assert (row.name, row.source, row.mode, row.activation) == (
        "orders", "nats", "pull", "continuous",
    )  # fmt: skip
    assert (row.target, row.revision) == ("dedicated-pool", 1)
    again = await desk.subscriptions.register_subscription("# a comment\n" + document())
    assert again == (first.view, False, False)
    changed = await desk.subscriptions.register_subscription(
        document(runtime={"pool": "iot", "target": "local"})
    )
    assert (changed.is_new, changed.is_changed) == (False, True)
    row = changed.view.subscription
    assert (row.revision, row.target, row.listener_pool) == (2, "local", "iot")
    assert '"pool":"iot"' in changed.view.document_json
    assert await desk.subscriptions.list_subscriptions() == [changed.view]


async def test_a_document_that_is_wrong_is_refused_by_field_and_line(desk: Subscribed) -> None:
    with pytest.raises(InvalidArgument) as refused:
        await desk.subscriptions.register_subscription(document(stream=None))
    assert refused.value.field == "spec.stream"
    assert refused.value.line
    assert await desk.subscriptions.list_subscriptions() == []


def lines_with(text: str, words: str) -> list[int]:
    return [number for number, line in enumerate(text.splitlines(), 1) if words in line]


async def test_what_is_found_out_after_a_document_was_read_is_told_with_its_line(
    desk: Subscribed,
) -> None:
    """Another subscription has the path; some app or pool has a name that is too long by the limits
    of this journal."""
    small = Subscriptions(
        desk.store, desk.bus._writer, desk.bus._ids, replace(desk.bus.limits, name_bytes=20)
    )
    rule = {"header": "x-a", "controls": "dispatch.playbook", "allowed": ["a", "b" * 30]}
    taken = pushed("other").replace("/ingress/other", "/ingress/hooks")
    cases = [
        (desk.subscriptions, taken, "spec.ingress.gateway_path", "/ingress/hooks"),
        (small, document(dispatch={"playbook": "p" * 30}), "spec.dispatch.playbook", "pppp"),
        (small, document(headers={"directives": [{**rule, "header": "x-b"}]}),
         "spec.headers.directives[0].allowed", "allowed:"),
        (small, document("n" * 30), "metadata.name", "name: nnn"),
    ]  # fmt: skip
    await desk.subscriptions.register_subscription(pushed())
    for operations, text, field, words in cases:
        with pytest.raises(InvalidArgument) as refused:
            await operations.register_subscription(text)
        (at,) = lines_with(text, words)
        assert (refused.value.field, refused.value.line) == (field, at), str(refused.value)
        assert str(refused.value).endswith(f"(line {at})")
        as_json = orjson.dumps(yaml.safe_load(text)).decode()
        with pytest.raises(InvalidArgument) as refused:
            await operations.register_subscription(as_json)
        assert (refused.value.field, refused.value.line) == (field, 1)


async def test_what_is_not_there_is_not_found(desk: Subscribed) -> None:
    ask = desk.subscriptions
    for asking in (
        ask.get_subscription("x"),
        ask.move_subscription("x", "activate"),
        ask.move_subscription("x", "pause"),
        ask.list_subscription_dead_letters("x"),
        ask.settle_subscription_dead_letters("x", "drop"),
        ask.hold_subscription(HoldSubscription("x", "me", 100)),
        ask.reserve_dispatches("x", 0, 1),
        ask.tick_subscription("x", 0, 1),
        desk.accept(message(1), name="x"),
    ):
        with pytest.raises(NotFound, match="no subscription 'x'"):
            await asking
    assert await ask.delete_subscription("x") is False


@pytest.mark.parametrize(
    ("text", "missing", "field"),
    [
        (document(), "nats_main", "spec.auth"),
        (pushed(), "hook_secret", "spec.ingress.verify.secret"),
        (document(spool=SPOOL), "spool_login", "spec.spool.auth"),
    ],
)
async def test_a_credential_that_is_not_there_is_refused_at_activation(
    desk: Subscribed, text: str, missing: str, field: str
) -> None:
    there = {"nats_main", "hook_secret", "spool_login"} - {missing}

    async def has_credential(alias: str) -> bool:
        return alias in there

    operations = checking(desk, has_credential=has_credential)
    name = (await operations.register_subscription(text)).view.subscription.name
    with pytest.raises(NoCredential, match=f"`tape wallet put {missing}`") as refused:
        await operations.move_subscription(name, "activate")
    assert refused.value.field == field
    assert await state(desk, name) == "registered"
    there.add(missing)
    view = await operations.move_subscription(name, "activate")
    assert view.subscription.state == "active"
    there.clear()
    await operations.move_subscription(name, "activate")  # it is active: nothing is looked at
    await operations.move_subscription(name, "deactivate")
    with pytest.raises(NoCredential):
        await operations.move_subscription(name, "activate")
    assert await state(desk, name) == "deactivated"


@pytest.mark.parametrize("error", [SourceRefused, SourceUnavailable])
async def test_a_source_that_cannot_be_listened_to_leaves_the_state(
    desk: Subscribed, error: type[TapeError]
) -> None:
    looked: list[str] = []
    broken = True

    async def check_source(spec: SubscriptionSpec) -> None:
        looked.append(spec.name)
        if broken:
            raise error

    operations = checking(desk, check_source=check_source)
    await operations.register_subscription(document())
    await operations.register_subscription(pushed())
    with pytest.raises(error):
        await operations.move_subscription("orders", "activate")
    assert await state(desk) == "registered"
    broken = False
    await operations.move_subscription("orders", "activate")
    await operations.move_subscription("hooks", "activate")  # nobody fetches from it
    assert looked == ["orders", "orders"]


async def test_a_verb_that_is_none_is_refused(desk: Subscribed) -> None:
    await desk.listen()
    with pytest.raises(InvalidArgument, match="activate, pause, resume, drain, deactivate") as no:
        await desk.subscriptions.move_subscription("orders", "stop")
    assert no.value.field == "verb"
    await desk.subscriptions.move_subscription("orders", "deactivate")
    with pytest.raises(WrongState) as wrong:
        await desk.subscriptions.move_subscription("orders", "pause")
    assert wrong.value.state == "deactivated"


async def test_a_holder_is_told_what_to_work_by(desk: Subscribed) -> None:
    await desk.listen()
    view = await desk.subscriptions.get_subscription("orders")
    assert view.is_held
    await desk.subscriptions.register_subscription(document(dispatch={"playbook": "other"}))
    report = HoldSubscription("orders", "me", 60_000, desk.token, in_flight=1)
    held = await desk.subscriptions.hold_subscription(report)
    assert (held.is_granted, held.revision, held.state) == (True, 1, "active")
    assert held.document_json == view.document_json
    held = await desk.subscriptions.hold_subscription(report._replace(in_flight=0))
    assert (held.revision, '"other"' in held.document_json) == (2, True)
    refused = await desk.subscriptions.hold_subscription(HoldSubscription("orders", "you", 60_000))
    assert (refused.is_granted, refused.fencing_token, refused.revision) == (False, 0, 2)
    left = await desk.subscriptions.hold_subscription(report._replace(letting_go=True))
    assert left.is_granted is False
    assert not (await desk.subscriptions.get_subscription("orders")).is_held


async def test_what_a_dead_listener_had_in_hand_is_in_nobodys(desk: Subscribed) -> None:
    await desk.listen()
    report = HoldSubscription("orders", "me", 60_000, desk.token, in_flight=7)
    await desk.subscriptions.hold_subscription(report)
    view = await desk.subscriptions.get_subscription("orders")
    assert (view.is_held, subscription_json(view)["in_flight"]) == (True, 7)
    await desk.subscriptions.hold_subscription(report._replace(ttl_ms=1))
    while view.is_held:
        (view,) = await desk.subscriptions.list_subscriptions()
    assert (view.listener.in_flight, subscription_json(view)["in_flight"]) == (0, 0)


async def test_messages_are_accepted_by_the_revision_that_they_were_fetched_by(
    desk: Subscribed,
) -> None:
    await desk.listen()
    await desk.subscriptions.register_subscription(document(dispatch={"playbook": "other"}))
    (old,) = await desk.accept(message(1), revision=1)
    (new,) = await desk.accept(message(2), revision=2)
    assert [run.app_name for run in await desk.runs()] == ["desk", "other"]
    # Whatever revision it is delivered by again: it has its run.
    again = await desk.accept(message(1), message(2), revision=2)
    assert [one.run_id for one in again] == [old.run_id, new.run_id]
    assert {one.outcome.value for one in again} == {"redelivered"}
    with pytest.raises(InvalidArgument, match="has no revision 3") as refused:
        await desk.accept(message(3), revision=3)
    assert refused.value.field == "revision"


async def test_a_stale_holder_is_refused_by_every_call(desk: Subscribed) -> None:
    await desk.listen(document(activation="scheduled", cadence="* * * * *"))
    ask, stale = desk.subscriptions, desk.token
    await ask.hold_subscription(HoldSubscription("orders", "me", 60_000, stale, letting_go=True))
    held = await ask.hold_subscription(HoldSubscription("orders", "other", 60_000))
    assert held.fencing_token > stale
    for call in (
        ask.hold_subscription(HoldSubscription("orders", "me", 60_000, stale)),
        ask.reserve_dispatches("orders", stale, 1),
        ask.tick_subscription("orders", stale, held.due_at_ms),
        desk.accept(message(1), message(2, b"{")),
    ):
        with pytest.raises(StaleLease):
            await call
    assert await desk.runs() == []


async def test_a_scheduled_one_is_due_by_its_cadence(desk: Subscribed) -> None:
    await desk.listen(document(activation="scheduled", cadence="0 0 * * *"))
    held = await desk.subscriptions.hold_subscription(
        HoldSubscription("orders", "me", 60_000, desk.token)
    )
    day_ms = 86_400_000
    assert held.due_at_ms == (held.now_ms // day_ms + 1) * day_ms
    assert await desk.subscriptions.tick_subscription(
        "orders", desk.token, held.due_at_ms
    ) == held.due_at_ms + day_ms  # fmt: skip
    await desk.push()
    with pytest.raises(InvalidArgument, match="not scheduled"):
        await desk.subscriptions.tick_subscription("hooks", 0, 5)


async def test_a_rate_is_the_one_of_the_document(desk: Subscribed) -> None:
    await desk.listen(document(limits={"max_dispatch_per_sec": 2}))
    reserve = desk.subscriptions.reserve_dispatches
    assert await reserve("orders", desk.token, 5) == (1, 500)
    refused = await reserve("orders", desk.token, 5)
    assert (refused.granted, refused.again_in_ms > 0) == (0, True)
    assert (await reserve("orders", desk.token, 5, unused=1)).granted == 1
    assert len(await desk.told("rate_limited")) == 1
    await desk.push()
    assert await reserve("hooks", 0, 50) == (50, 0)


async def test_a_push_takes_nothing_while_it_is_paused(desk: Subscribed) -> None:
    await desk.push()
    assert await desk.outcomes(delivery(1), name="hooks") == ["accepted"]
    await desk.subscriptions.move_subscription("hooks", "pause")
    with pytest.raises(WrongState) as refused:
        await desk.accept(delivery(2), name="hooks")
    assert refused.value.state == "paused"
    view = await desk.subscriptions.move_subscription("hooks", "drain")
    assert view.subscription.state == "deactivated"  # nobody has anything in hand


async def test_dead_letters_are_listed_replayed_and_dropped(desk: Subscribed) -> None:
    await desk.listen()
    too_long = b'"' + b"x" * desk.bus.limits.message_bytes + b'"'
    headers = (("X-A", b"1"), ("x-a", b"\xff"))
    bad = message(1, b"\xff{", headers=headers, message_id="m\x00", key="k", subject="orders.new")
    assert await desk.outcomes(bad, message(2, too_long), message(3, b"1e999")) == (
        ["dead_lettered"] * 3
    )
    ask = desk.subscriptions
    letters = await ask.list_subscription_dead_letters("orders")
    assert [one.reason for one in letters] == ["not_json", "too_large", "number_too_large"]
    assert (letters[0].message_id, letters[0].place) == ("m\\0", f"{ORIGIN}/1")
    assert await ask.list_subscription_dead_letters("orders", limit=1) == letters[:1]
    after = letters[0].letter_id
    assert await ask.list_subscription_dead_letters("orders", after=after) == letters[1:]
    assert [one["reason"] for one in await desk.told("message_dead_lettered")] == [
        "not_json", "too_large", "number_too_large",
    ]  # fmt: skip

    assert await ask.settle_subscription_dead_letters("orders", "replay") == 0
    kept = await ask.list_subscription_dead_letters("orders")
    assert [one.attempts for one in kept] == [2, 2, 2]
    assert await desk.told("message_replayed") == []
    takes_all = {"playbook": "desk", "payload_from": "message.body"}
    await ask.register_subscription(document(dispatch=takes_all))
    assert await ask.settle_subscription_dead_letters("orders", "replay") == 2
    (left,) = await ask.list_subscription_dead_letters("orders")
    assert (left.reason, left.attempts) == ("too_large", 3)
    one, three = await desk.runs()
    assert [one.invocation_id, three.invocation_id] == [f"{ORIGIN}/1", f"{ORIGIN}/3"]
    (begun,) = await desk.store.read_run(one.run_id, 0, 1)
    block = begun.payload["input"]["message"]
    assert (block["id"], block["key"], block["subject"]) == ("m\\0", "k", "orders.new")
    assert block["headers"] == {"x-a": ["1", "\ufffd"]}
    assert [told["run_id"] for told in await desk.told("message_replayed")] == [
        one.run_id, three.run_id,
    ]  # fmt: skip
    assert await desk.outcomes(message(1), message(2)) == ["redelivered", "redelivered"]

    assert await ask.settle_subscription_dead_letters("orders", "drop", ["nothing"]) == 0
    assert await ask.settle_subscription_dead_letters("orders", "drop", [left.letter_id] * 2) == 1
    assert await ask.list_subscription_dead_letters("orders") == []
    assert await ask.settle_subscription_dead_letters("orders", "drop") == 0
    row = (await ask.get_subscription("orders")).listener
    assert (row.dead_lettered, row.replayed, row.accepted, row.redelivered) == (3, 2, 0, 2)


async def test_the_beginning_of_a_message_becomes_no_run(desk: Subscribed) -> None:
    """Not by a replay either, though it is small and any body would do."""
    await desk.listen(document(dispatch={"playbook": "desk", "payload_from": "message.body"}))
    whole = message(1, b"0123456789", headers=(("X-A", b"1" * 9),), key="k" * 500)
    part = cut(cut(whole, 6), 4)
    assert (part.body, part.headers, part.whole_bytes) == (b"0123", (), 10)
    assert await desk.outcomes(part) == ["dead_lettered"]
    ask = desk.subscriptions
    assert await ask.settle_subscription_dead_letters("orders", "replay") == 0
    (letter,) = await ask.list_subscription_dead_letters("orders")
    assert (letter.reason, letter.attempts, letter.body) == ("too_large", 2, "MDEyMw==")
    assert letter.detail == (
        "the body has 10 bytes, which is too many to pass on: only its beginning is kept here; the "
        f"SHA-256 of all of it is {sha256(b'0123456789').hexdigest()}"
    )


async def test_many_dead_letters_are_settled_in_parts(desk: Subscribed) -> None:
    await desk.listen()
    await desk.accept(*(message(n, b"{") for n in range(70)))
    ids = [
        one.letter_id for one in await desk.subscriptions.list_subscription_dead_letters("orders")
    ]
    settle = desk.subscriptions.settle_subscription_dead_letters
    assert await settle("orders", "drop", ids[:45]) == 45
    assert await settle("orders", "drop") == 25
    assert len(await desk.told("message_dropped")) == 70


@pytest.mark.parametrize(("verb", "ids", "field"), [("forget", (), "verb"), ("drop", ("",), "ids")])
async def test_letters_are_settled_in_two_ways(
    desk: Subscribed, verb: str, ids: tuple[str, ...], field: str
) -> None:
    await desk.listen()
    with pytest.raises(InvalidArgument) as refused:
        await desk.subscriptions.settle_subscription_dead_letters("orders", verb, ids)
    assert refused.value.field == field


@pytest.mark.parametrize("limit", [0, 10_001])
async def test_pages_of_letters_are_bounded(desk: Subscribed, limit: int) -> None:
    await desk.listen()
    with pytest.raises(InvalidArgument) as refused:
        await desk.subscriptions.list_subscription_dead_letters("orders", limit=limit)
    assert refused.value.field == "limit"


async def test_a_namesake_of_a_deleted_one_begins_anew(desk: Subscribed) -> None:
    await desk.listen()
    await desk.accept(message(1), message(2, b"{"))
    ask = desk.subscriptions
    with pytest.raises(WrongState):
        await ask.delete_subscription("orders")
    await ask.move_subscription("orders", "deactivate")
    assert await ask.delete_subscription("orders") is True
    assert await desk.store.subscriptions.list_deleted() == []
    assert (await desk.told("deleted"))[0]["before"] == "deactivated"
    # By another app, and under the same number of revision as before.
    await desk.listen(document(dispatch={"playbook": "other"}))
    view = await ask.get_subscription("orders")
    assert (view.subscription.revision, view.listener.accepted) == (1, 0)
    assert await ask.list_subscription_dead_letters("orders") == []
    assert await desk.outcomes(message(1), message(2)) == ["accepted", "accepted"]
    assert [run.app_name for run in await desk.runs()] == ["desk", "other", "other"]


async def test_what_is_left_of_a_deleted_one_holds_its_name(
    desk: Subscribed, monkeypatch: pytest.MonkeyPatch
) -> None:
    await desk.listen()
    await desk.accept(*(message(n) for n in range(5)))
    await desk.subscriptions.move_subscription("orders", "deactivate")
    monkeypatch.setattr("tape.subscriptions.upkeep.STEP_ROWS", 2)
    monkeypatch.setattr(type(desk.subscriptions.upkeep), "purge", _purge_nothing)
    await desk.subscriptions.delete_subscription("orders")
    with pytest.raises(WrongState, match="try again in a moment") as refused:
        await desk.subscriptions.register_subscription(document())
    assert refused.value.state == "deleted"
    monkeypatch.undo()
    assert (await desk.subscriptions.register_subscription(document())).is_new


async def _purge_nothing(*_args: object, **_options: object) -> int:
    return 0


def as_operations(subscriptions: Subscriptions) -> SubscriptionOperations:
    """What others do at a server is what this does here: said to whoever checks types."""
    return subscriptions


def test_they_are_the_operations_of_the_protocol(desk: Subscribed) -> None:
    assert as_operations(desk.subscriptions) is desk.subscriptions
