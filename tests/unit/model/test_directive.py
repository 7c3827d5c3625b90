"""The rules of headers as instructions, by their numbers in section E."""

from collections.abc import Sequence
from typing import Final

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tape.model.directive import (
    LONGEST_VALUE,
    SHOWN_VALUE,
    AppliedDirective,
    DispatchPlan,
    RefusedDirective,
    directives_applied,
    plan_dispatch,
)
from tape.model.entry import NO_TRACE, Trace
from tape.model.event import check_trace
from tape.model.message import Header, SourceMessage
from tape.model.subscription_spec import Control, DirectiveSpec, DispatchSpec, HeaderSpec

DISPATCH: Final = DispatchSpec("domain/handle_event", execution_pool="shared")
ROUTE: Final = DirectiveSpec("x-route", Control.PLAYBOOK, ("billing", "fraud", "µ"))
POOL: Final = DirectiveSpec("x-pool", Control.EXECUTION_POOL, ("iot", "priority", "shared"))
RANK: Final = DirectiveSpec(
    "x-priority", Control.PRIORITY, pools=(("high", "express"), ("normal", "shared"))
)
KEY: Final = DirectiveSpec("x-idempotency-key", Control.IDEMPOTENCY_KEY)
TYPE: Final = DirectiveSpec("content-type", Control.CONTENT_TYPE)
HINT: Final = DirectiveSpec("x-schema", Control.SCHEMA_HINT, ("v1", "v2"))
ALL: Final = HeaderSpec(True, (ROUTE, POOL, RANK, KEY, TYPE, HINT), True, ("tenant", "request_id"))
TRACE_ID: Final = "0af7651916cd43dd8448eb211c80319c"
SPAN_ID: Final = "b7ad6b7169203331"
PARENT: Final = f"00-{TRACE_ID}-{SPAN_ID}-01"


def plan(*headers: tuple[str, str | bytes], rules: HeaderSpec | None = ALL) -> DispatchPlan:
    came = [(name, value.encode() if isinstance(value, str) else value) for name, value in headers]
    return plan_dispatch(DISPATCH, rules, came)


DEFAULT: Final = plan()


def test_without_headers_or_rules_the_defaults_hold() -> None:
    assert DispatchPlan("domain/handle_event", "shared") == DEFAULT
    assert plan(("x-route", "fraud"), rules=None) == DEFAULT
    assert not DEFAULT.is_audited


@pytest.mark.parametrize(
    "name",
    [
        "x-other", "x_route", "x-route ", " x-route", "xroute", "x-route\0", "app", "playbook",
        "dispatch.playbook", "x-mesh-route", "X-NOETL-ROUTE", "",
    ],
)  # fmt: skip
def test_e5_e24_only_listed_headers_act(name: str) -> None:
    assert plan((name, "fraud"), (name, "iot"), (name, "high")) == DEFAULT


def test_e5_letters_that_unicode_lowers_to_ascii_are_other_letters() -> None:
    # "\u212a" is the sign of kelvin, which str.lower makes a "k".
    assert plan(("x-idempotency-\u212aey", "k")) == DEFAULT


def test_e6_e7_a_playbook_that_is_allowed_is_taken_and_no_other() -> None:
    taken = plan(("X-ROUTE", "fraud"))
    assert (taken.app, taken.pool, taken.is_rerouted) == ("fraud", "shared", True)
    assert taken.applied == (AppliedDirective("x-route", Control.PLAYBOOK, "fraud"),)
    for value in ("Fraud", " fraud", "fraud\0", "domain/handle_event", "", "fraud,billing", "*"):
        refused = plan(("x-route", value))
        assert refused.app == DISPATCH.app
        assert refused.refused == (RefusedDirective("x-route", Control.PLAYBOOK, value),)
        assert refused.is_audited
        assert not refused.is_rerouted
        assert not refused.applied
    assert plan(("x-route", "µ".encode())).app == "µ"
    assert plan(("x-route", b"\xb5")).refused[0].value == "\ufffd"


def test_e6_a_route_without_a_list_allows_nothing() -> None:
    rules = HeaderSpec(
        directives=(ROUTE._replace(allowed=()), POOL._replace(allowed=()), RANK._replace(pools=()))
    )
    found = plan(("x-route", "fraud"), ("x-pool", "iot"), ("x-priority", "high"), rules=rules)
    assert (found.app, found.pool, len(found.refused)) == (DISPATCH.app, "shared", 3)


def test_e8_e9_an_explicit_pool_wins_over_priority() -> None:
    assert plan(("x-pool", "iot")).pool == "iot"
    assert plan(("x-priority", "high")).pool == "express"
    for headers in (
        (("x-priority", "high"), ("x-pool", "iot")), (("x-pool", "iot"), ("x-priority", "high")),
    ):  # fmt: skip
        found = plan(*headers)
        assert found.pool == "iot"
        assert found.applied == (AppliedDirective("x-pool", Control.EXECUTION_POOL, "iot"),)
    # A pool that is refused is none: then priority decides.
    assert plan(("x-pool", "none"), ("x-priority", "high")).pool == "express"
    # The name of a pool is no priority.
    assert plan(("x-priority", "express")).pool == "shared"
    # One that is the default is applied, and no override.
    same = plan(("x-pool", "shared"))
    assert (len(same.applied), same.is_audited) == (1, False)


def test_e10_a_key_is_free_and_bounded() -> None:
    assert plan(("X-Idempotency-Key", "order 7 é")).idempotency_key == "order 7 é"
    assert plan(("x-idempotency-key", "")) == DEFAULT
    long = [plan(("x-idempotency-key", "k" * 100_000 + end)).idempotency_key for end in "ab"]
    assert len(set(long)) == 2
    assert all(len(key) == 71 for key in long)
    assert "\0" not in plan(("x-idempotency-key", "a\0b")).idempotency_key
    # Of bytes that are not UTF-8 no key is made: marks would make one key of many.
    refused = plan(("x-idempotency-key", b"\xff"))
    assert (refused.idempotency_key, refused.refused[0].value) == ("", "\ufffd")


def test_e11_hints_are_hints() -> None:
    found = plan(("Content-Type", "application/json"), ("x-schema", "v2"))
    assert found[:5] == (DISPATCH.app, "shared", "", "application/json", "v2")
    assert not found.is_audited
    assert plan(("x-schema", "v3")).schema_hint == ""
    assert plan(("content-type", "t" * (LONGEST_VALUE + 1))).content_type == ""


def test_e15_the_last_value_counts_over_spellings() -> None:
    assert plan(("X-Route", "billing"), ("x-route", "fraud")).app == "fraud"
    assert plan(("x-route", "fraud"), ("X-ROUTE", "billing")).app == "billing"
    # Also if it is not allowed: an earlier value is no second choice.
    last = plan(("x-route", "fraud"), ("x-route", "nobody"))
    assert (last.app, last.refused[0].value) == (DISPATCH.app, "nobody")


def test_e12_e13_a_trace_goes_on() -> None:
    found = plan(
        ("Traceparent", PARENT), ("tracestate", "a=1"), ("TraceState", "b=2"),
        ("baggage", "tenant=acme, secret=x;p=1"), ("Baggage", "request_id=7"),
    )  # fmt: skip
    assert found.trace == Trace(TRACE_ID, "", SPAN_ID)
    check_trace(*found.trace)
    assert found.traceparent == PARENT
    assert found.tracestate == "a=1,b=2"
    assert found.baggage == "tenant=acme,request_id=7"
    assert not found.is_audited


def test_e12_an_invalid_parent_is_no_trace_and_no_refusal() -> None:
    found = plan(("traceparent", PARENT.upper()), ("tracestate", "a=1"), ("baggage", "tenant=a"))
    assert found == DEFAULT
    assert found.trace == NO_TRACE


def test_e12_without_the_block_nothing_is_propagated() -> None:
    rules = ALL._replace(propagates_trace=False)
    assert plan(("traceparent", PARENT), ("baggage", "tenant=a"), rules=rules) == DEFAULT


def test_e23_mesh_metadata_travels_as_allowed_baggage_only() -> None:
    mesh = [("x-mesh-zone", "eu"), ("traceparent", PARENT), ("baggage", "x-mesh-zone=eu,a=b")]
    assert plan(*mesh).baggage == ""
    rules = ALL._replace(baggage_allowlist=("x-mesh-zone",))
    assert plan(*mesh, rules=rules).baggage == "x-mesh-zone=eu"


def test_e20_nothing_in_a_plan_names_a_credential() -> None:
    assert {field for field in DispatchPlan._fields if "auth" in field or "cred" in field} == set()
    assert len(Control) == 6


def test_e21_what_is_written_down() -> None:
    message = SourceMessage("nats", "nats/S@1", "7", b"{}", message_id="m")
    found = plan(("x-route", "fraud"), ("x-pool", "root"), ("traceparent", PARENT))
    assert found.is_audited
    assert orjson.loads(orjson.dumps(directives_applied(message, DISPATCH, found, "run"))) == {
        "message_id": "m",
        "run_id": "run",
        "applied": [
            {"header": "x-route", "controls": "dispatch.playbook", "effective_value": "fraud"}
        ],
        "refused": [{"header": "x-pool", "controls": "dispatch.execution_pool", "value": "root"}],
        "route_override": {"playbook": "fraud", "pool": None},
        "trace": {"traceparent": PARENT, "tracestate": ""},
    }
    plain = directives_applied(message._replace(message_id=""), DISPATCH, plan(("x-pool", "")), "r")
    assert (plain["message_id"], plain["trace"]) == ("nats/S@1/7", None)
    assert plain["route_override"] == {"playbook": None, "pool": None}


def test_e21_a_sender_cannot_fill_the_journal_with_refusals() -> None:
    for value in ("x" * 1_000_000, "é" * 1_000_000, b"\xff" * 1_000_000):
        (refused,) = plan(("x-route", value)).refused
        assert len(refused.value) == SHOWN_VALUE + 1
    assert len(plan(("x-route", "x" * SHOWN_VALUE)).refused[0].value) == SHOWN_VALUE
    message = SourceMessage("nats", "nats/S@1", "7", b"{}", message_id="m" * 1_000_000)
    most = "é" * LONGEST_VALUE
    found = plan(("x-route", most), ("content-type", "t" * LONGEST_VALUE), ("baggage", most))
    assert len(orjson.dumps(directives_applied(message, DISPATCH, found, "run"))) < 4_000


# What hypothesis looks for: headers that decide though they may not, and values that come through.

CASES: Final = 1_300
CHUNKS: Final = 8
NAMES: Final = [
    "x-route", "X-Route", "x-pool", "X-POOL", "x-priority", "x-idempotency-key", "content-type",
    "x-schema", "traceparent", "Traceparent", "tracestate", "baggage",
]  # fmt: skip
OTHERS: Final = [
    "x_route", "x-route ", "xroute", "x-rout", "x-route-2", "x-\u212aey", "x-idempotency-\u212aey",
    "x-pool\0", "cookie", "authorization", "app", "pool", "priority", "x-mesh-a", "trace", "\u0130",
    "x-\uff52oute", "",
]  # fmt: skip
VALUES: Final = [
    b"billing", b"fraud", b"iot", b"priority", b"shared", b"high", b"normal", b"express", b"v1",
    b"", b"v3", b"root", b"HIGH", b"fraud ", b"\xff", b"k" * 600, PARENT.encode(), b"a=1,b=2",
    b"tenant=1,other=2", b"application/json", "µ".encode(), b"a\0b", b"00-0-0-00",
]  # fmt: skip
listed_headers = st.tuples(st.sampled_from(NAMES), st.sampled_from(VALUES) | st.binary(max_size=8))
other_headers = st.tuples(
    st.sampled_from(OTHERS) | st.text(max_size=6), st.sampled_from(VALUES)
).filter(lambda header: header[0].encode().lower().decode() not in {n.lower() for n in NAMES})
rules_of_some = st.builds(
    HeaderSpec,
    st.booleans(),
    st.lists(st.sampled_from(ALL.directives), unique=True).map(tuple),
    st.booleans(),
    st.sampled_from([(), ("tenant",), ("tenant", "b")]),
)


def expected_route(rules: HeaderSpec, headers: Sequence[Header]) -> tuple[str, str]:
    """App and pool, decided another way: header by header, without a plan."""
    last = {name.lower(): value for name, value in headers if name.isascii()}
    said: dict[Control, str] = {}
    for each in rules.directives:
        value = last.get(each.header, b"")
        allowed = dict(each.pools) or {one: one for one in each.allowed}
        for text, effect in allowed.items():
            if value == text.encode():
                said[each.controls] = effect
    pool = said.get(Control.EXECUTION_POOL) or said.get(Control.PRIORITY) or "shared"
    return said.get(Control.PLAYBOOK, DISPATCH.app), pool


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_e5_e6_no_other_header_and_no_other_value_changes_a_plan(chunk: int) -> None:
    seen = 0

    @settings(
        max_examples=CASES,
        deadline=None,
        database=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
    @given(
        rules_of_some,
        st.lists(listed_headers, max_size=6),
        st.lists(st.tuples(st.integers(0, 6), other_headers), max_size=4),
    )
    def check(rules: HeaderSpec, headers: list[Header], others: list[tuple[int, Header]]) -> None:
        nonlocal seen
        seen += 1
        found = plan_dispatch(DISPATCH, rules, headers)
        assert (found.app, found.pool) == expected_route(rules, headers)
        mixed = list(headers)
        for place, other in others:
            mixed.insert(place, other)
        assert plan_dispatch(DISPATCH, rules, mixed) == found
        listed = {each.header for each in rules.directives}
        acting = [each for each in headers if each[0].lower() in listed or rules.propagates_trace]
        assert plan_dispatch(DISPATCH, rules, acting) == found
        assert {each.header for each in found.applied} <= listed
        assert {each.header for each in found.refused} <= listed
        if ALL.directives[5] in rules.directives:
            assert found.schema_hint in ("", "v1", "v2")
        else:
            assert found.schema_hint == ""
        check_trace(*found.trace)
        assert rules.propagates_trace or not (found.traceparent or found.baggage)
        keys = {member.partition("=")[0] for member in found.baggage.split(",") if member}
        assert keys <= set(rules.baggage_allowlist)

    check()
    assert seen >= CASES, f"chunk {chunk} has seen {seen}"
