"""W3C trace context as it may come: what is valid, and what becomes of the rest."""

import pytest
from opentelemetry import baggage as otel_baggage
from opentelemetry import trace as otel_trace
from opentelemetry.baggage.propagation import W3CBaggagePropagator
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from tape.errors import InvalidArgument
from tape.model.trace_context import (
    LONGEST_BAGGAGE,
    LONGEST_TRACESTATE,
    TraceContext,
    TraceTexts,
    read_trace_context,
)

TRACE_ID = "0af7651916cd43dd8448eb211c80319c"
SPAN_ID = "b7ad6b7169203331"
PARENT = f"00-{TRACE_ID}-{SPAN_ID}-01"


def read(
    parent: str = PARENT, states: tuple[str, ...] = (), baggage: tuple[str, ...] = (),
    allowed: tuple[str, ...] = (),
) -> TraceContext:  # fmt: skip
    values = {
        "traceparent": [parent.encode()],
        "tracestate": [state.encode() for state in states],
        "baggage": [text.encode() for text in baggage],
    }
    return read_trace_context(values, allowed)


@pytest.mark.parametrize(
    "parent",
    [
        "", "00", f"00-{TRACE_ID}-{SPAN_ID}", f"00-{TRACE_ID}-{SPAN_ID}-0", f"{PARENT}-",
        f"{PARENT}x",
        f"00-{'0' * 32}-{SPAN_ID}-01", f"00-{TRACE_ID}-{'0' * 16}-01", PARENT.upper(),
        f"ff-{TRACE_ID}-{SPAN_ID}-01", f"0-{TRACE_ID}-{SPAN_ID}-01", PARENT.replace("-", "_"),
        f"01-{TRACE_ID}-{SPAN_ID}-01x", f"00-{TRACE_ID[:-1]}\u0663-{SPAN_ID}-01", PARENT + "\n",
    ],
)  # fmt: skip
def test_an_invalid_parent_is_ignored_with_all_that_belongs_to_it(parent: str) -> None:
    assert read(parent, ("a=1",), ("k=v",), ("k",)) == TraceContext()


def test_what_opentelemetry_writes_is_read() -> None:
    states = otel_trace.TraceState([("a", "1"), ("b@c", "2 x")])
    span = otel_trace.SpanContext(
        int(TRACE_ID, 16), int(SPAN_ID, 16), True, otel_trace.TraceFlags(1), states
    )
    carrier: dict[str, str] = {}
    context = otel_trace.set_span_in_context(otel_trace.NonRecordingSpan(span))
    TraceContextTextMapPropagator().inject(carrier, context)
    found = read(carrier["traceparent"], (carrier["tracestate"],))
    assert found == TraceContext(PARENT, TRACE_ID, SPAN_ID, "a=1,b@c=2 x")


def test_a_parent_of_a_version_to_come_is_read_as_far_as_it_is_known() -> None:
    assert read(f"01-{TRACE_ID}-{SPAN_ID}-ff-and more").traceparent == f"00-{TRACE_ID}-{SPAN_ID}-03"
    assert read(f" {PARENT}\t").traceparent == PARENT
    assert read_trace_context({}, ()) == TraceContext()
    assert read_trace_context({"traceparent": [b"\xff", PARENT.encode()]}, ()).trace_id == TRACE_ID


def test_states_are_one_list_and_valid_or_nothing() -> None:
    assert read(states=("a=1, b@c=2", "", " d=x y ")).tracestate == "a=1,b@c=2,d=x y"
    for states in (
        ("A=1",), ("a",), ("a=",), ("a=1", "a=2"), ("a=b=c",), ("a=\u00e9",), ("=1",),
        (",".join(f"k{n}=1" for n in range(33)),), ("a=" + "x" * 257,), ("a b=1",),
    ):  # fmt: skip
        assert read(states=states).tracestate == "", states
    assert read(states=("a=" + "x" * 256,)).tracestate == "a=" + "x" * 256


def test_a_long_list_of_states_loses_what_is_long_and_then_its_end() -> None:
    long, short = "l=" + "x" * 200, [f"k{n}={'y' * 40}" for n in range(15)]
    found = read(states=(",".join([long, *short]),)).tracestate
    assert len(found) <= LONGEST_TRACESTATE
    assert found.split(",") == short[: len(found.split(","))]
    assert len(found) + 1 + len(short[-1]) > LONGEST_TRACESTATE


def test_baggage_is_filtered_and_written_anew() -> None:
    came = ("tenant = acme%20%C3%A9;p=1 , Tenant=no,other=x", "request_id=a=b/c,tenant", "a b=1,=2")
    found = read(baggage=came, allowed=("tenant", "request_id", "a b", "")).baggage
    assert found == "tenant=acme%20%C3%A9,request_id=a=b/c"
    assert read(baggage=("k=1,k=2",), allowed=("k",)).baggage == "k=2"
    assert read(baggage=('k="a b"\u00e9%',), allowed=("k",)).baggage == "k=%22a%20b%22%C3%A9%25"
    assert read(baggage=("k=v",)).baggage == ""


def test_baggage_reads_in_opentelemetry_as_it_was_meant() -> None:
    values = {"a": "1, 2; 3", "b": "é%\\", "c": "plain", "d": '"'}
    context = None
    for key, value in values.items():
        context = otel_baggage.set_baggage(key, value, context)
    carrier: dict[str, str] = {}
    W3CBaggagePropagator().inject(carrier, context)
    told = {"baggage": read(baggage=(carrier["baggage"],), allowed=tuple(values)).baggage}
    assert otel_baggage.get_all(W3CBaggagePropagator().extract(told)) == values


def test_baggage_is_bounded() -> None:
    found = read(baggage=("a=1,b=" + "x" * 9000 + ",c=1",), allowed=("a", "b", "c")).baggage
    assert found == "a=1"
    keys = tuple(f"k{n}" for n in range(200))
    many = read(baggage=(",".join(f"{key}=1" for key in keys),), allowed=keys).baggage
    assert many.count(",") == 63
    assert len(read(baggage=("a=" + "x" * 8189,), allowed=("a",)).baggage) == LONGEST_BAGGAGE - 1


STATED = TraceTexts(PARENT, "a=1, b@x=2", "tenant=acme;p=1, who=j%20d")


def test_what_a_caller_states_is_taken_as_the_recommendations_say() -> None:
    checked = STATED.checked()
    assert checked == TraceContext(PARENT, TRACE_ID, SPAN_ID, "a=1,b@x=2", "tenant=acme,who=j%20d")
    assert checked.texts.checked() == checked
    assert TraceTexts().checked() == TraceContext()


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"traceparent": ""}, "trace.tracestate"),
        ({"traceparent": "", "tracestate": ""}, "trace.baggage"),
        ({"traceparent": PARENT.upper()}, "trace.traceparent"),
        ({"traceparent": f"00-{'0' * 32}-{SPAN_ID}-01"}, "trace.traceparent"),
        ({"tracestate": "novalue"}, "trace.tracestate"),
        ({"tracestate": "a=1,a=2"}, "trace.tracestate"),
        ({"tracestate": ",".join(f"a{n}=1" for n in range(33))}, "trace.tracestate"),
        ({"tracestate": f"a={'x' * 200},b={'x' * 200},c={'x' * 200}"}, "trace.tracestate"),
        ({"baggage": "novalue"}, "trace.baggage"),
        ({"baggage": "a b=1"}, "trace.baggage"),
        ({"baggage": ",".join(f"a{n}=1" for n in range(65))}, "trace.baggage"),
        ({"baggage": f"a={'x' * LONGEST_BAGGAGE}"}, "trace.baggage"),
    ],
)
def test_what_a_caller_states_wrongly_is_refused(change: dict[str, str], field: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        STATED._replace(**change).checked()
    assert refused.value.field == field
