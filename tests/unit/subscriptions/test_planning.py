"""Messages made ready: their routes, their parts, and their dead letters."""

from typing import Any

import pytest

from tape.errors import InvalidArgument, MessageRefused
from tape.model.entry import Entry
from tape.model.message import SourceMessage
from tape.model.subscription_spec import (
    Control,
    DedupSpec,
    DirectiveSpec,
    DispatchSpec,
    HeaderSpec,
    SourceKind,
    SourceSpec,
    SubscriptionSpec,
)
from tape.settings import Limits
from tape.subscriptions.letters import letter_of, message_of
from tape.subscriptions.planning import Planner, chunks, is_run_of

SMALL = Limits(name_bytes=20)
SPEC = SubscriptionSpec(
    "s", "subscriptions/s", "pull", SourceSpec(SourceKind.NATS), DispatchSpec("app")
)
LONG = "a" * 21


def sent(size: int = 1, position: str = "1", **fields: Any) -> SourceMessage:
    return SourceMessage("nats", "nats/S@1", position, b"1" * size, **fields)


def with_directive(controls: Control, **fields: Any) -> SubscriptionSpec:
    first = DirectiveSpec("x", Control.IDEMPOTENCY_KEY)
    directive = DirectiveSpec("y", controls, **fields)
    return SPEC._replace(headers=HeaderSpec(directives=(first, directive)))


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        (SPEC._replace(dispatch=DispatchSpec(LONG)), "spec.dispatch.playbook"),
        (
            SPEC._replace(dispatch=DispatchSpec("app", execution_pool=LONG)),
            "spec.dispatch.execution_pool",
        ),
        (
            with_directive(Control.PLAYBOOK, allowed=("ok", LONG)),
            "spec.headers.directives[1].allowed",
        ),
        (
            with_directive(Control.EXECUTION_POOL, allowed=(LONG,)),
            "spec.headers.directives[1].allowed",
        ),
        (
            with_directive(Control.PRIORITY, pools=(("high", "fast"), ("low", LONG))),
            "spec.headers.directives[1].map",
        ),
    ],
)
def test_a_route_that_no_run_can_take_is_refused_before_there_is_a_message(
    spec: SubscriptionSpec, field: str
) -> None:
    with pytest.raises(InvalidArgument, match="no run can be begun by it") as refused:
        Planner(spec, SMALL).check_routes()
    assert refused.value.field == field
    Planner(SPEC, SMALL).check_routes()


def test_a_plan_has_a_key_only_where_there_is_a_window() -> None:
    planned = Planner(SPEC, Limits()).plan(sent(message_id="m"))
    assert (planned.key, planned.number, planned.message_id) == ("", 1, "m")
    spec = SPEC._replace(dedup=DedupSpec(60))
    planner = Planner(spec, Limits())
    assert (planner.plan(sent(message_id="m")).key, planner.window_ms) == ("m", 60_000)


def test_a_run_is_named_after_its_place_however_short_names_are() -> None:
    planned = Planner(SPEC, Limits(name_bytes=100)).plan(sent(position="9" * 90))
    other = Planner(SPEC, Limits(name_bytes=100)).plan(sent(position="9" * 92))
    assert planned.run
    assert other.run
    assert planned.run.name.invocation_id == planned.place
    assert other.place != other.run.name.invocation_id != planned.run.name.invocation_id
    assert len(other.run.name.invocation_id) <= 100


def test_another_name_is_another_run_and_the_same_message() -> None:
    planner = Planner(SPEC, Limits())
    planned = planner.plan(sent())
    renamed = planner.renamed(planned, 2)
    assert planned.run
    assert renamed.run
    assert renamed.run.name.invocation_id == "nats/S@1/1~2"
    assert renamed.run.input_json == planned.run.input_json
    assert renamed.place == planned.place
    letter = planner.plan(sent()._replace(body=b"{"))
    assert planner.renamed(letter, 2) is letter


@pytest.mark.parametrize(
    ("sizes", "parts"),
    [
        ([], []),
        ([1, 1, 1], [2, 1]),
        ([10, 10, 10], [1, 1, 1]),
        ([50], [1]),
        ([50, 1, 50], [1, 1, 1]),
        ([3, 3, 3, 3, 3], [2, 2, 1]),
    ],
)
def test_parts_are_bounded_and_none_is_empty(sizes: list[int], parts: list[int]) -> None:
    messages = [sent(size) for size in sizes]
    found = list(chunks(messages, 2, 10))
    assert [len(part) for part in found] == parts
    assert [message for part in found for message in part] == messages


def test_headers_count_as_bodies_do() -> None:
    messages = [sent(1, headers=(("name", b"value"),)) for _ in range(3)]
    assert [len(part) for part in chunks(messages, 9, 20)] == [2, 1]


def test_a_dead_letter_is_its_message_again() -> None:
    message = sent(
        headers=(("X", b"\xff\x00"), ("x", b"")), key="k€", timestamp_ms=5, subject="a.b",
        message_id="m",
    )._replace(body=bytes(range(256)))  # fmt: skip
    refused = MessageRefused("no\0pe", because="not_json")
    letter = letter_of("s", message, refused)
    assert (letter.reason, letter.detail, letter.attempts) == ("not_json", "no\\0pe", 1)
    assert message_of(letter) == message
    nameless = message._replace(message_id="")
    letter = letter_of("s", nameless, refused)
    assert letter.message_id == letter.place == nameless.place
    assert message_of(letter) == nameless


def test_no_text_of_a_letter_is_one_that_a_database_refuses() -> None:
    message = sent(message_id="a\0b", key="\0", subject="\0", headers=(("\0", b"\0"),))
    letter = letter_of("s", message, MessageRefused("", because="not_json"))
    assert "\0" not in "".join(map(str, letter))
    assert message_of(letter).key == "\\0"
    assert message_of(letter).headers == (("\0", b"\0"),)


@pytest.mark.parametrize(
    ("payload", "is_own"),
    [
        ('{"input":{"message":{"subscription":"s","place":"p/1"}}}', True),
        ('{"input":{"message":{"subscription":"t","place":"p/1"}}}', False),
        ('{"input":{"message":{"subscription":"s","place":"p/2"}}}', False),
        ('{"input":{"message":"p/1"}}', False),
        ('{"input":[1]}', False),
        ("{}", False),
    ],
)
def test_a_runs_first_entry_says_whose_it_is(payload: str, is_own: bool) -> None:
    entry = Entry(
        1, "r", 1, "run", "/tape/run", payload, 1, "", "", "", 1, "e", "", "", "", "", "", 1, ""
    )
    assert is_run_of(entry, "s", "p/1") is is_own
