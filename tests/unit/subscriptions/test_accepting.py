"""Accepting on a store: whole, once, in bounded moves, and without holding the loop up."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from tape.errors import InvalidArgument, StaleLease, StoreFailed
from tape.journal.writer import Writer
from tape.model.accept_messages import AcceptMessages
from tape.model.lease import NewRun
from tape.model.message import SourceMessage
from tape.model.run import RunName
from tape.ports.subscriptions import PlaceAges
from tape.settings import Limits
from tape.sources.files_lines import FileLine, line_message
from tape.subscriptions.company import MOST_BESIDE_OTHERS
from tests.unit.subscriptions.subscribed import (
    ORIGIN,
    QUICK,
    Subscribed,
    delivery,
    document,
    message,
    pushed,
    subscribed,
)

PLACE = f"{ORIGIN}/1"
DIRECTIVES = [
    {"header": "x-app", "controls": "dispatch.playbook", "allowed": ["vip"]},
    {"header": "x-key", "controls": "idempotency_key"},
]


@pytest.fixture
def moves(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many messages each move accepted."""
    counted: list[int] = []
    submit = Writer.submit

    async def counting(writer: Writer, move: Any) -> Any:
        if isinstance(move, AcceptMessages):
            counted.append(len(move._planned))
        return await submit(writer, move)

    monkeypatch.setattr(Writer, "submit", counting)
    return counted


async def forget_places(desk: Subscribed) -> None:
    assert await desk.store.subscriptions.prune_places("orders", "", PlaceAges(0, 0, 0), 1_000)


async def test_a_message_is_the_input_of_its_run(desk: Subscribed) -> None:
    await desk.listen(document(headers={"directives": DIRECTIVES}))
    sent = message(1, b'{"id":9007199254740993}', headers=(("X-App", b"vip"),), key="k")
    (accepted,) = await desk.accept(sent)
    (run,) = await desk.runs()
    assert (accepted.place, accepted.run_id) == (PLACE, run.run_id)
    assert run.name == RunName("vip", "subscription", "orders", PLACE)
    assert (run.pool, run.lease_owner) == ("subscription", "")
    (begun,) = await desk.store.read_run(run.run_id, 0, 1)
    assert '"payload":{"id":9007199254740993}' in begun.payload_json
    assert begun.payload["input"]["message"]["place"] == PLACE
    (audit,) = await desk.told("message_directives_applied")
    assert audit["run_id"] == run.run_id
    assert audit["route_override"] == {"playbook": "vip", "pool": None}


async def test_keys_are_those_of_the_headers_and_repeats_are_told(desk: Subscribed) -> None:
    await desk.listen(document(headers={"directives": DIRECTIVES}, dedup={"window_secs": 60}))
    same = (("X-Key", b"k"),)
    first, second, third = await desk.accept(
        message(1, headers=same), message(2, headers=same), message(3, message_id="k")
    )
    assert [second.outcome.value, third.outcome.value] == ["deduplicated", "deduplicated"]
    assert {second.run_id, third.run_id} == {first.run_id}
    assert [told["key"] for told in await desk.told("message_deduplicated")] == ["k", "k"]
    assert await desk.outcomes(message(2), message(4)) == ["redelivered", "accepted"]
    assert await desk.told("message_directives_applied") == []  # keys alone are not told of


def by_header(header: str) -> dict[str, Any]:
    return {"directives": [{"header": header, "controls": "idempotency_key"}]}


def windowed(key: str = "idempotency_key", **spec: Any) -> str:
    return document(dedup={"window_secs": 60, "key": key}, **spec)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (windowed("order"), windowed("customer")),
        (windowed("payload.order"), windowed("payload.customer")),
        (windowed("order"), windowed(headers=by_header("x-customer"))),
        (windowed(headers=by_header("x-order")), windowed(headers=by_header("x-customer"))),
        (
            windowed("payload.order"),
            windowed("payload.order", dispatch={
                "playbook": "desk", "payload_from": "message.attributes",
            }),
        ),
    ],
)  # fmt: skip
async def test_a_key_that_is_found_in_another_way_is_another_key(
    desk: Subscribed, before: str, after: str
) -> None:
    """The number of an order and that of a customer may be equal, and say nothing of each other."""

    def sent(place: int, order: int, customer: int) -> SourceMessage:
        numbers = {"X-Order": order, "X-Customer": customer, "order": customer}
        headers = tuple((name, b"%d" % number) for name, number in numbers.items())
        body = b'{"order": %d, "customer": %d}' % (order, customer)
        return message(place, body, headers=headers)

    await desk.listen(before)
    assert await desk.outcomes(sent(1, 1001, 1)) == ["accepted"]
    await desk.subscriptions.register_subscription(after)
    assert await desk.outcomes(sent(2, 5, 1001), sent(3, 6, 1001), revision=2) == [
        "accepted", "deduplicated",
    ]  # fmt: skip
    assert [told["key"] for told in await desk.told("message_deduplicated")] == ["1001"]


async def test_a_window_outlives_other_changes_of_the_document(desk: Subscribed) -> None:
    await desk.listen(windowed("order"))
    assert await desk.outcomes(message(1, b'{"order": 7}')) == ["accepted"]
    other = {"dispatch": {"playbook": "other"}, "consumer": "other", "limits": {"max_in_flight": 9}}
    await desk.subscriptions.register_subscription(windowed("order", **other))
    assert await desk.outcomes(message(2, b'{"order": 7}'), revision=2) == ["deduplicated"]


async def test_a_replayed_letter_is_a_repeat_by_the_newest_rule(desk: Subscribed) -> None:
    await desk.listen(windowed("order"))
    assert await desk.outcomes(message(1, b"no json"), message(2, b'{"order": 7}')) == [
        "dead_lettered", "accepted",
    ]  # fmt: skip
    by_body = {"dispatch": {"playbook": "desk", "payload_from": "message.body"}}
    await desk.subscriptions.register_subscription(windowed("size(payload) > 0", **by_body))
    assert await desk.outcomes(message(3, b"text"), revision=2) == ["accepted"]
    assert await desk.subscriptions.settle_subscription_dead_letters("orders", "replay") == 1
    (told,) = await desk.told("message_deduplicated")
    assert (told["place"], told["key"]) == (f"{ORIGIN}/1", "true")


async def test_large_requests_are_cut_into_bounded_moves(
    desk: Subscribed, moves: list[int]
) -> None:
    await desk.listen()
    accepted = await desk.accept(*(message(n) for n in range(1_201)))
    assert [one.place for one in accepted] == [f"{ORIGIN}/{n}" for n in range(1_201)]
    assert moves == [500, 500, 201]
    moves.clear()
    half_a_mib = b'"' + b"x" * 2**19 + b'"'
    await desk.accept(*(message(5_000 + n, half_a_mib) for n in range(10)))
    assert moves == [7, 3]
    assert await desk.accept() == []


async def test_beside_another_subscription_moves_are_short(
    desk: Subscribed, moves: list[int]
) -> None:
    """Else whoever comes beside a firehose waits for its turns."""
    await desk.listen()
    await desk.push()
    await desk.accept(delivery(1), name="hooks")
    moves.clear()
    accepted = await desk.accept(*(message(n) for n in range(60)))
    assert [one.place for one in accepted] == [f"{ORIGIN}/{n}" for n in range(60)]
    assert moves == [MOST_BESIDE_OTHERS] * (60 // MOST_BESIDE_OTHERS)


async def test_many_small_requests_are_accepted_together(
    desk: Subscribed, moves: list[int]
) -> None:
    await desk.push()
    await asyncio.gather(*(desk.accept(delivery(n), name="hooks") for n in range(300)))
    assert sum(moves) == 300
    assert len(moves) < 30
    assert len(await desk.runs()) == 300


async def test_a_refusal_is_told_to_all_that_went_along(desk: Subscribed) -> None:
    await desk.listen()
    desk.token += 1
    found = await asyncio.gather(
        *(desk.accept(message(n)) for n in range(20)), return_exceptions=True
    )
    assert {type(error) for error in found} == {StaleLease}


async def test_planning_lets_others_have_their_turn(
    desk: Subscribed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tape.subscriptions.planning.SLICE_S", 0.0)
    await desk.listen()
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count_turns())
    await desk.accept(*(message(n) for n in range(400)))
    counting.cancel()
    assert turns >= 400


async def test_whoever_gives_up_waiting_costs_nobody_else_anything(desk: Subscribed) -> None:
    await desk.push()
    asked = [asyncio.create_task(desk.accept(delivery(n), name="hooks")) for n in range(50)]
    await asyncio.sleep(0)
    for task in asked[::2]:
        task.cancel()
    found = await asyncio.gather(*asked, return_exceptions=True)
    assert all(len(one) == 1 for one in found[1::2] if isinstance(one, list))
    assert all(isinstance(one, list) for one in found[1::2])
    # What was given up may have been accepted or not; it is delivered again either way.
    again = await asyncio.gather(*(desk.accept(delivery(n), name="hooks") for n in range(50)))
    assert {one.outcome.value for (one,) in again} <= {"accepted", "redelivered"}
    assert len(await desk.runs()) == 50


async def test_a_message_whose_place_is_forgotten_finds_its_run(desk: Subscribed) -> None:
    await desk.listen()
    (first,) = await desk.accept(message(1))
    await forget_places(desk)
    again = await desk.accept(message(0), message(1), message(2))
    assert [one.outcome.value for one in again] == ["accepted", "redelivered", "accepted"]
    assert again[1].run_id == first.run_id
    assert len(await desk.runs()) == 3


async def test_a_run_that_somebody_else_began_is_not_mistaken(desk: Subscribed) -> None:
    await desk.listen(document(headers={"directives": DIRECTIVES}))
    taken = [
        RunName("vip", "subscription", "orders", invocation) for invocation in (PLACE, f"{PLACE}~2")
    ]
    looks_alike = '{"message":{"place":"another","subscription":"orders"}}'
    for name, given in zip(taken, ('"theirs"', looks_alike), strict=True):
        await desk.bus.runs.begin_run(NewRun(name, given))
    (accepted,) = await desk.accept(message(1, headers=(("x-app", b"vip"),)))
    assert accepted.outcome.value == "accepted"
    run = await desk.store.runs.get_run(accepted.run_id)
    assert run is not None
    assert run.invocation_id == f"{PLACE}~3"
    (audit,) = await desk.told("message_directives_applied")
    assert audit["run_id"] == accepted.run_id
    (again,) = await desk.accept(message(1))
    assert (again.outcome.value, again.run_id) == ("redelivered", accepted.run_id)


async def test_a_letter_is_not_mistaken_either(desk: Subscribed) -> None:
    await desk.listen()
    await desk.accept(message(1, b"1e999"))
    name = RunName("desk", "subscription", "orders", PLACE)
    await desk.bus.runs.begin_run(NewRun(name, '"theirs"'))
    takes_all = {"playbook": "desk", "payload_from": "message.body"}
    await desk.subscriptions.register_subscription(document(dispatch=takes_all))
    settle = desk.subscriptions.settle_subscription_dead_letters
    assert await settle("orders", "replay") == 1
    assert [run.invocation_id for run in await desk.runs()] == [PLACE, f"{PLACE}~2"]


async def test_names_that_are_all_taken_are_said_to_be(
    desk: Subscribed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tape.subscriptions.acceptor.MOST_NAMES", 2)
    await desk.listen()
    for behind in ("", "~2", "~3"):
        name = RunName("desk", "subscription", "orders", PLACE + behind)
        await desk.bus.runs.begin_run(NewRun(name, "1"))
    with pytest.raises(StoreFailed, match="begun by somebody else"):
        await desk.accept(message(1))


async def test_the_rules_of_a_deleted_namesake_are_not_gone_by(
    desk: Subscribed, sqlite_url: str
) -> None:
    await desk.push(pushed(dispatch={"playbook": "old"}))
    await desk.accept(delivery(1), name="hooks")
    async with subscribed(sqlite_url) as elsewhere:
        await elsewhere.subscriptions.move_subscription("hooks", "deactivate")
        await elsewhere.subscriptions.delete_subscription("hooks")
        await elsewhere.push(pushed(dispatch={"playbook": "new"}))
    await desk.accept(delivery(2), name="hooks")
    assert [run.app_name for run in await desk.runs()] == ["old", "new"]


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"origin": ""}, "messages[1]"),
        ({"position": ""}, "messages[1]"),
        ({"position": "x" * 500}, "messages[1].position"),
        ({"position": "ä"}, "messages[1].position"),
        ({"position": "a\0b"}, "messages[1].position"),
        ({"timestamp_ms": 2**63}, "messages[1].timestamp_ms"),
        ({"timestamp_ms": -(2**63) - 1}, "messages[1].timestamp_ms"),
    ],
)
async def test_a_place_or_a_time_that_cannot_be_kept_is_refused(
    desk: Subscribed, fields: dict[str, Any], field: str
) -> None:
    await desk.listen()
    with pytest.raises(InvalidArgument) as refused:
        await desk.accept(message(1), message(2)._replace(**fields))
    assert refused.value.field == field
    assert await desk.runs() == []


async def test_a_line_with_a_time_beyond_64_bits_holds_nobody_up(desk: Subscribed) -> None:
    nothing = dict.fromkeys(("auth", "stream", "consumer"))
    await desk.listen(document("orders", source="file", folder="in", **nothing))
    lines = [b'{"timestamp_ms": 9223372036854775808, "body": "x"}', b"{", b'{"body": {"n": 1}}']
    came = [
        line_message(-1, FileLine(number, 0, len(text), text), "file/in/a", 9)
        for number, text in enumerate(lines, 1)
    ]
    assert await desk.outcomes(*came) == ["accepted", "dead_lettered", "accepted"]


async def test_a_request_is_bounded(sqlite_url: str) -> None:
    settings = replace(QUICK, limits=Limits(request_events=3))
    async with subscribed(sqlite_url, settings) as desk:
        await desk.listen()
        with pytest.raises(InvalidArgument) as refused:
            await desk.accept(*(message(n) for n in range(4)))
        assert refused.value.field == "messages"


async def test_longer_bodies_than_a_slice_are_planned_in_a_thread(desk: Subscribed) -> None:
    await desk.listen()
    long = b'{"text":"' + b"y" * 200_000 + b'"}'
    sent: list[SourceMessage] = [message(1, long), message(2), message(3, long)]
    assert await desk.outcomes(*sent) == ["accepted"] * 3
    assert [run.invocation_id for run in await desk.runs()] == [f"{ORIGIN}/{n}" for n in (1, 2, 3)]


async def test_what_is_on_its_way_is_written_when_the_bus_closes(sqlite_url: str) -> None:
    async with subscribed(sqlite_url) as desk:
        await desk.push()
        asked = [asyncio.create_task(desk.accept(delivery(n), name="hooks")) for n in range(20)]
        await asyncio.gather(*asked[:1])
    found = await asyncio.gather(*asked, return_exceptions=True)
    async with subscribed(sqlite_url) as desk:
        runs = {run.run_id for run in await desk.runs()}
    accepted = [one for one in found if isinstance(one, list)]
    assert {message.run_id for (message,) in accepted} <= runs


async def test_a_replayed_message_is_routed_by_its_headers(desk: Subscribed) -> None:
    await desk.listen(document(headers={"directives": DIRECTIVES}, dedup={"window_secs": 60}))
    refused = message(1, b"{", headers=(("x-app", b"vip"), ("x-app", b"no")))
    await desk.accept(refused)
    settle = desk.subscriptions.settle_subscription_dead_letters
    assert await settle("orders", "replay") == 0
    takes_all = {"playbook": "desk", "payload_from": "message.body"}
    text = document(
        dispatch=takes_all, headers={"directives": DIRECTIVES}, dedup={"window_secs": 60}
    )
    await desk.subscriptions.register_subscription(text)
    assert await settle("orders", "replay") == 1
    assert len(await desk.told("message_directives_applied")) == 1
