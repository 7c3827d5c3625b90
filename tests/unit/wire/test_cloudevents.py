"""CloudEvents: the shape the specification asks for, and the payload as it was."""

import json
import re
from datetime import UTC, datetime
from typing import Any
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tape.model.entry import Entry
from tape.model.subjects import event_recorded
from tape.ports.broker import Outgoing
from tape.wire.cloudevents import (
    CloudEvent,
    cloud_event,
    kafka_headers,
    pubsub_attributes,
    structured,
    text_headers,
)

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
PLAIN = Entry(
    global_seq=7, run_id="", seq=0, kind="event",
    subject="/tape/event/recorded/order.placed/order/7", payload_json='{"total": 12.50}',
    schema_version=2, trace_id="", span_id="", parent_span_id="", ts_ms=1_700_000_000_123,
    event_id="01HF", event_type="order.placed", entity_type="order", entity_id="7",
    caused_by="", source="", occurred_at_ms=1_700_000_000_123, idempotency_key="",
)  # fmt: skip

text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=40)
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | text
payloads = st.recursive(scalars, lambda inner: st.lists(inner) | st.dictionaries(text, inner))


@st.composite
def outgoing(draw: st.DrawFn) -> Outgoing:
    event_type = draw(text)
    payload = json.dumps(draw(payloads), indent=draw(st.sampled_from([None, 2])))
    entry = PLAIN._replace(
        global_seq=draw(st.integers(1, 2**63 - 1)),
        run_id=draw(text),
        subject=event_recorded(event_type or "none", draw(text), draw(text)),
        payload_json=payload,
        schema_version=draw(st.integers(1, 32767)),
        trace_id=draw(st.sampled_from(["", TRACE, "0" * 32])),
        span_id=draw(st.sampled_from(["", SPAN])),
        event_type=event_type,
        source=draw(text | st.sampled_from(["https://shop.example/eu", "/shop", "urn:shop"])),
        occurred_at_ms=draw(st.integers(0, 2**63 - 1)),
    )
    return Outgoing(entry, "id", draw(text), draw(st.integers(1, 9)))


def attributes(entry: Entry = PLAIN, key: str = "k", attempt: int = 1) -> dict[str, Any]:
    event = cloud_event(Outgoing(entry, "id", key, attempt))
    parsed: dict[str, Any] = json.loads(structured(event))
    return parsed


def test_the_shape() -> None:
    assert attributes() == {
        "specversion": "1.0",
        "id": "01HF",
        "source": "/tape",
        "type": "order.placed",
        "subject": "/tape/event/recorded/order.placed/order/7",
        "time": "2023-11-14T22:13:20.123Z",
        "datacontenttype": "application/json",
        "tapeseq": "7",
        "tapeschemaversion": 2,
        "partitionkey": "k",
        "data": {"total": 12.5},
    }


def test_what_an_entry_has_besides() -> None:
    entry = PLAIN._replace(run_id="r1", trace_id=TRACE, span_id=SPAN)
    found = attributes(entry, attempt=3)
    assert found["taperunid"] == "r1"
    assert found["traceparent"] == f"00-{TRACE}-{SPAN}-01"
    assert found["tapeattempt"] == 3
    assert "partitionkey" not in attributes(key="")


def test_an_entry_without_a_type_is_named_after_its_kind_and_verb() -> None:
    entry = PLAIN._replace(kind="value", subject="/tape/value/changed/desk/x", event_type="")
    assert attributes(entry)["type"] == "tape.value.changed"


def test_a_time_that_no_calendar_has_gives_way_to_that_of_recording() -> None:
    assert attributes(PLAIN._replace(occurred_at_ms=2**63 - 1))["time"].startswith("2023-11-14T")
    last = 253_402_300_799_999
    assert attributes(PLAIN._replace(occurred_at_ms=last))["time"] == "9999-12-31T23:59:59.999Z"


@pytest.mark.parametrize(
    "source",
    [
        "https://shop.example/eu?x=1#top", "/shop/eu", "urn:uuid:6e8bc430-9c3a-11d9-9669", "shop",
        "//shop.example:80/x", "mailto:a@b.example", "https://[::1]:8080/", "a%20b", "?q", "x/y:z",
    ],
)  # fmt: skip
def test_a_source_that_is_a_uri_reference_is_kept(source: str) -> None:
    assert attributes(PLAIN._replace(source=source))["source"] == source


@pytest.mark.parametrize(
    "source", ["", "the shop", "a%2", "1:2", "ünicode", "a\nb", "https://[x]/", "a#b#c", "[x]"]
)
def test_another_source_gives_way(source: str) -> None:
    assert attributes(PLAIN._replace(source=source))["source"] == "/tape"


@given(outgoing())
def test_the_payload_is_carried_byte_for_byte(message: Outgoing) -> None:
    event = cloud_event(message)
    assert event.data == message.entry.payload_json
    body = structured(event)
    assert body.endswith(b',"data":' + message.entry.payload_json.encode() + b"}")
    assert json.loads(body)["data"] == json.loads(message.entry.payload_json)


@given(outgoing())
def test_attributes_are_what_the_specification_allows(message: Outgoing) -> None:
    event = cloud_event(message)
    for name, value in event.attributes.items():
        assert re.fullmatch(r"[a-z0-9]{1,20}", name)
        if isinstance(value, int):
            assert -(2**31) <= value < 2**31
            continue
        assert value
        assert not any(ord(c) < 0x20 or 0x7F <= ord(c) <= 0x9F for c in value)
        assert not any(ord(c) & 0xFFFE == 0xFFFE or 0xFDD0 <= ord(c) <= 0xFDEF for c in value)
    assert {"specversion", "id", "source", "type"} <= event.attributes.keys()
    moment = datetime.fromisoformat(str(event.attributes["time"]))
    assert moment.tzinfo == UTC
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", str(event.attributes["time"]))
    assert ("tapeattempt" in event.attributes) == (message.attempt > 1)


@given(outgoing())
def test_headers_say_the_same_as_the_object(message: Outgoing) -> None:
    event = cloud_event(message)
    wanted = {name: str(value) for name, value in event.attributes.items()}
    headers = text_headers(event)
    for value in headers.values():
        assert re.fullmatch(r"[\x21\x23-\x7e]+", value)
    assert _named("ce-", {name: unquote(value) for name, value in headers.items()}) == wanted
    assert _named("ce-", pubsub_attributes(event)) == wanted
    assert _named("ce_", {name: v.decode() for name, v in kafka_headers(event)}) == wanted


def test_what_would_end_a_header_line_cannot() -> None:
    headers = text_headers(CloudEvent({"type": 'a\r\nb: "c" 100%'}, "null"))
    assert headers == {"ce-type": "a%0D%0Ab:%20%22c%22%20100%25"}


def _named(prefix: str, headers: dict[str, str]) -> dict[str, str]:
    return {
        "datacontenttype" if name == "content-type" else name.removeprefix(prefix): value
        for name, value in headers.items()
    }
