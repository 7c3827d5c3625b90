"""What a listener at the other end of a connection does: held, fenced, accepted whole and once."""

from typing import Any

import grpc
import orjson
import pytest

import tape
from tape.settings import Limits, Settings
from tape.wire.errors import from_rpc_error
from tape.wire.v1 import tape_pb2 as pb
from tests.integration.grpc.conftest import QUICK
from tests.integration.grpc.listening import (
    LISTENING,
    ORIGIN,
    accept,
    activated,
    document,
    hold,
    line,
)

SCHEDULED = {"activation": "scheduled", "cadence": '"*/5 * * * *"'}


async def refusal(call: Any) -> Any:
    with pytest.raises(grpc.aio.AioRpcError) as failed:
        await call
    return from_rpc_error(failed.value)


async def state_of(rpc: Any, name: str = "inbox") -> pb.SubscriptionRecord:
    record: pb.SubscriptionRecord = await rpc.GetSubscription(pb.GetSubscriptionRequest(name=name))
    return record


async def words(rpc: Any) -> list[str]:
    """What the journal tells of subscriptions."""
    found = await rpc.ReadRecent(pb.ReadRecentRequest(prefix="/tape/subscription/"))
    return [entry.subject.split("/")[3] for entry in reversed(found.entries)]


async def registered(rpc: Any, **keys: str) -> None:
    text = document(**keys).replace(
        "  activation: continuous\n", "", 1 if "activation" in keys else 0
    )
    await rpc.RegisterSubscription(pb.RegisterSubscriptionRequest(document=text))


async def taken_over(rpc: Any) -> tuple[int, int]:
    """The token of a listener that lost a scheduled subscription, and that of the next one."""
    await registered(rpc, **SCHEDULED)
    await rpc.MoveSubscription(pb.MoveSubscriptionRequest(name="inbox", verb="activate"))
    stale = (await hold(rpc, lease_owner="other", lease_ttl_ms=1)).fencing_token
    held = await hold(rpc)
    while not held.is_granted:  # by the store's clock the millisecond may not be over
        held = await hold(rpc)
    return stale, held.fencing_token


@pytest.mark.parametrize("name", LISTENING)
async def test_a_listener_that_was_taken_over_is_refused(rpc: Any, name: str) -> None:
    stale, living = await taken_over(rpc)
    assert stale < living
    before = await state_of(rpc)
    tokens = (stale, living + 1, -1) if name == "HoldSubscription" else (stale, 0, living + 1, -1)
    for token in tokens:
        error = await refusal(getattr(rpc, name)(LISTENING[name](token)))
        assert error.reason == "STALE_LEASE"
    assert await state_of(rpc) == before
    await getattr(rpc, name)(LISTENING[name](living))


async def test_one_listener_holds_it(rpc: Any) -> None:
    await activated(rpc)
    mine = await hold(rpc)
    assert (mine.is_granted, mine.state, mine.revision) == (True, "active", 1)
    assert orjson.loads(mine.document_json)["metadata"]["name"] == "inbox"
    other = await hold(rpc, lease_owner="other")
    assert (other.is_granted, other.fencing_token) == (False, 0)
    passed = [pb.PassedOrigin(origin=ORIGIN, position=4)]
    report: dict[str, Any] = {"fetched": 5, "in_flight": 3, "last_error": "slow", "passed": passed}
    await hold(rpc, fencing_token=mine.fencing_token, **report)
    record = await state_of(rpc)
    listener = record.listener
    assert record.is_held
    assert (listener.lease_owner, listener.fetched, listener.in_flight) == ("me", 5, 3)
    assert (listener.backlog, listener.last_error) == (-1, "slow")
    await hold(rpc, fencing_token=mine.fencing_token, letting_go=True)
    assert not (await state_of(rpc)).is_held
    assert (await hold(rpc, lease_owner="other")).is_granted


async def test_a_report_without_a_backlog_does_not_know_it(rpc: Any) -> None:
    await activated(rpc)
    token = (await hold(rpc, backlog=4)).fencing_token
    plain = pb.HoldSubscriptionRequest(name="inbox", lease_ttl_ms=60_000, fencing_token=token)
    await rpc.HoldSubscription(plain)
    assert (await state_of(rpc)).listener.backlog == -1
    await hold(rpc, fencing_token=token, backlog=0)
    assert (await state_of(rpc)).listener.backlog == 0


async def test_a_source_that_refuses_pauses_the_subscription(rpc: Any) -> None:
    await activated(rpc)
    token = (await hold(rpc)).fencing_token
    answer = await hold(
        rpc, fencing_token=token, letting_go=True, refused=True, last_error="no such folder"
    )
    assert (answer.is_granted, answer.state) == (False, "paused")
    record = await state_of(rpc)
    assert (record.state, record.listener.last_error) == ("paused", "no such folder")
    found = await rpc.ReadRecent(pb.ReadRecentRequest(prefix="/tape/subscription/paused/"))
    said = orjson.loads(found.entries[0].payload_json)
    assert (said["by"], said["because"]) == ("listener", "no such folder")
    error = await refusal(hold(rpc, fencing_token=token, refused=True))
    assert (error.reason, error.field) == ("INVALID_ARGUMENT", "refused")


async def test_messages_are_accepted_once_and_whole(rpc: Any) -> None:
    await activated(rpc, headers="{directives: [{header: x-id, controls: idempotency_key}]}")
    token = (await hold(rpc)).fencing_token
    headers = [
        pb.MessageHeader(name="X-A", value=b"1"),
        pb.MessageHeader(name="x-a", value=b"\xff\x00"),
        pb.MessageHeader(name="X-A", value="é".encode()),
    ]
    whole = line(
        1, b'{"n": [1.50, "\xc3\xa9"]}', headers=headers, message_id="m-1", key="k", subject="a.b",
        timestamp_ms=7, deliveries=3,
    )  # fmt: skip
    binary = line(2, b"\xff\x00\xfe", headers=headers, message_id="m-2", key="k2")
    first = await accept(rpc, token, [whole, binary])
    assert [outcome for outcome, _run_id in first] == ["accepted", "dead_lettered"]
    again = await accept(rpc, token, [whole, binary])
    assert again == [("redelivered", first[0][1]), ("redelivered", "")]
    run = await rpc.GetRun(pb.GetRunRequest(run_id=first[0][1]))
    assert (run.app_name, run.pool) == ("read_line", "lines")
    assert (run.user_id, run.session_id) == ("subscription", "inbox")
    assert run.invocation_id == f"{ORIGIN}/1"
    journal = await rpc.ReadRunEntries(pb.ReadRunEntriesRequest(run_id=run.run_id))
    given = orjson.loads(journal.entries[0].payload_json)["input"]
    assert given["payload"] == {"n": [1.5, "é"]}
    message = given["message"]
    assert message["headers"] == {"x-a": ["1", "\ufffd\0", "é"]}
    assert message["attributes"] == {"X-A": ["1", "é"], "x-a": "\ufffd\0"}
    assert (message["id"], message["key"], message["subject"]) == ("m-1", "k", "a.b")
    listing = pb.ListSubscriptionDeadLettersRequest(name="inbox")
    (letter,) = (await rpc.ListSubscriptionDeadLetters(listing)).dead_letters
    assert (letter.body, list(letter.headers)) == (binary.body, headers)
    assert (letter.place, letter.message_id, letter.key) == (f"{ORIGIN}/2", "m-2", "k2")
    assert (letter.reason, letter.attempts) == ("not_json", 1)
    counts = (await state_of(rpc)).listener
    assert (counts.accepted, counts.dead_lettered, counts.redelivered) == (1, 1, 2)


async def test_a_request_to_accept_fits_the_limit_of_a_request(
    sqlite_url: str, serving: Any, dial: Any
) -> None:
    small = Limits(request_bytes=20_000, request_events=3, message_bytes=15_000)
    settings: Settings = QUICK.__class__(sqlite=QUICK.sqlite, limits=small)
    rpc = await dial((await serving(sqlite_url, settings=settings)).address)
    await activated(rpc)
    token = (await hold(rpc)).fencing_token
    body = orjson.dumps("x" * 12_000)
    error = await refusal(accept(rpc, token, [line(1, body), line(2, body)]))
    assert (error.reason, error.field) == ("TOO_LARGE", "messages")
    error = await refusal(accept(rpc, token, [line(number) for number in range(1, 5)]))
    assert (error.reason, error.field) == ("INVALID_ARGUMENT", "messages")
    assert (await state_of(rpc)).listener.accepted == 0
    accepted = await accept(rpc, token, [line(1, body), line(2), line(3)])
    assert [outcome for outcome, _run_id in accepted] == ["accepted"] * 3


async def test_a_rate_and_a_cadence(rpc: Any) -> None:
    await registered(rpc, **SCHEDULED, limits="{max_dispatch_per_sec: 10}")
    await rpc.MoveSubscription(pb.MoveSubscriptionRequest(name="inbox", verb="activate"))
    held = await hold(rpc)
    reserve = pb.ReserveDispatchesRequest(name="inbox", fencing_token=held.fencing_token, most=50)
    granted = await rpc.ReserveDispatches(reserve)
    assert 0 < granted.granted < 50
    assert granted.again_in_ms > 0
    five_minutes_ms = 5 * 60_000
    assert held.due_at_ms % five_minutes_ms == 0
    tick = pb.TickSubscriptionRequest(
        name="inbox", fencing_token=held.fencing_token, due_at_ms=held.due_at_ms
    )
    ticked = await rpc.TickSubscription(tick)
    assert ticked.due_at_ms >= held.due_at_ms + five_minutes_ms
    assert await rpc.TickSubscription(tick) == ticked


async def test_a_whole_life(rpc: Any) -> None:
    text = document("one.two-3")
    name: dict[str, Any] = {"name": "one.two-3"}
    made = await rpc.RegisterSubscription(pb.RegisterSubscriptionRequest(document=text))
    assert (made.is_new, made.is_changed, made.subscription.state) == (True, True, "registered")
    again = await rpc.RegisterSubscription(pb.RegisterSubscriptionRequest(document=text))
    assert (again.is_new, again.is_changed) == (False, False)
    await rpc.MoveSubscription(pb.MoveSubscriptionRequest(**name, verb="activate"))
    token = (await hold(rpc, "one.two-3")).fencing_token
    messages = [line(1), line(2, b"no"), line(3, b"not")]
    outcomes = await accept(rpc, token, messages, "one.two-3")
    assert [outcome for outcome, _run_id in outcomes] == ["accepted", *["dead_lettered"] * 2]
    listing = pb.ListSubscriptionDeadLettersRequest(**name)
    letters = (await rpc.ListSubscriptionDeadLetters(listing)).dead_letters
    changed = text.replace("{playbook:", "{payload_from: message.body, playbook:")
    revised = await rpc.RegisterSubscription(pb.RegisterSubscriptionRequest(document=changed))
    assert (revised.is_new, revised.is_changed, revised.subscription.revision) == (False, True, 2)
    assert (await hold(rpc, "one.two-3", fencing_token=token)).revision == 2
    settle = pb.SettleSubscriptionDeadLettersRequest
    replayed = await rpc.SettleSubscriptionDeadLetters(
        settle(**name, verb="replay", ids=[letters[0].letter_id, "none"])
    )
    dropped = await rpc.SettleSubscriptionDeadLetters(settle(**name, verb="drop"))
    assert (replayed.count, dropped.count) == (1, 1)
    assert not (await rpc.ListSubscriptionDeadLetters(listing)).dead_letters
    drain = pb.MoveSubscriptionRequest(**name, verb="drain")
    assert (await rpc.MoveSubscription(drain)).state == "draining"
    error = await refusal(rpc.DeleteSubscription(pb.DeleteSubscriptionRequest(**name)))
    assert (error.reason, error.state) == ("WRONG_STATE", "draining")
    assert (await hold(rpc, "one.two-3", fencing_token=token, letting_go=True)).state == (
        "deactivated"
    )
    assert (await rpc.MoveSubscription(drain)).state == "deactivated"
    assert (await rpc.DeleteSubscription(pb.DeleteSubscriptionRequest(**name))).deleted
    assert not (await rpc.DeleteSubscription(pb.DeleteSubscriptionRequest(**name))).deleted
    assert not (await rpc.ListSubscriptions(pb.ListSubscriptionsRequest())).subscriptions
    assert await words(rpc) == [
        "registered", "activated", "message_dead_lettered", "message_dead_lettered", "registered",
        "message_replayed", "message_dropped", "draining", "deactivated", "deleted",
    ]  # fmt: skip


async def test_a_document_that_is_refused_names_field_and_line(rpc: Any) -> None:
    text = document().replace("mode: pull", "mode: push")
    error = await refusal(rpc.RegisterSubscription(pb.RegisterSubscriptionRequest(document=text)))
    assert (error.reason, error.field, error.line) == ("INVALID_ARGUMENT", "spec.mode", 6)
    assert not (await rpc.ListSubscriptions(pb.ListSubscriptionsRequest())).subscriptions


async def test_more_subscriptions_than_an_answer_holds(
    sqlite_url: str, serving: Any, dial: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tape.calls.fitting.ANSWER_BYTES", 2_000)
    server = await serving(sqlite_url)
    rpc = await dial(server.address)
    names = [f"s{number}" for number in range(7)]
    for name in names:
        register = pb.RegisterSubscriptionRequest(document=document(name))
        await rpc.RegisterSubscription(register)
    pages: list[list[str]] = []
    more = True
    while more:
        after = pages[-1][-1] if pages else ""
        page = await rpc.ListSubscriptions(pb.ListSubscriptionsRequest(after_name=after))
        pages.append([record.name for record in page.subscriptions])
        more = page.more
    assert len(pages) > 1
    assert [name for page in pages for name in page] == names
    async with tape.connect_async(server.url) as client:
        views = await client.subscriptions()
    assert [view.subscription.name for view in views] == names
