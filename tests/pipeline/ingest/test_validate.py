"""Which event a message is, and why it is none: without Spark."""

from typing import Any

import pyarrow as pa
import pytest

from tape.errors import InvalidArgument
from tape.model.landed import landed
from tape.model.message import SourceMessage
from tape.pipeline.jobs.ingest.files import csv_records, landed_message
from tape.pipeline.jobs.ingest.validate import IngestRules, checking, event_of
from tape.settings import Limits

EVENT = IngestRules("event")


def message(body: str | None, headers: dict[str, str] | None = None, **more: Any) -> dict[str, Any]:
    made = {
        "origin": "nats/S", "number": 7, "key": None, "timestamp_ms": 5, "raw": body, "fault": None,
        "raw_bytes": None, "key_bytes": None,
    }  # fmt: skip
    pairs = [(name, text.encode()) for name, text in (headers or {}).items()]
    return made | {"body": body, "headers": sent(*pairs)} | more


def sent(*headers: tuple[str | None, bytes | None]) -> list[dict[str, Any]]:
    return [{"name": name, "value": value} for name, value in headers]


def test_a_body_is_a_payload_and_headers_say_the_rest() -> None:
    event = event_of(
        message('{"a": 1}', {"entity_id": "e", "schema_version": "2"}), IngestRules(event_type="t")
    )
    assert event[:5] == ("t", '{"a": 1}', "", "e", "nats/S/7")
    assert (event.schema_version, event.occurred_at_ms, event.source) == (2, 5, "nats/S")
    said = event_of(message("[1]", {"event_type": "h", "idempotency_key": "k"}), IngestRules())
    assert (said.event_type, said.idempotency_key) == ("h", "k")
    mapped = IngestRules(event_type_from="Kind", key_from="id")
    found = event_of(message('{"id": 9}', {"kind": "x"}), mapped)
    assert (found.event_type, found.idempotency_key) == ("x", "9")


@pytest.mark.parametrize("origin", ["nats/ORDERS", "kafka/orders/0", "file/in/a b.json"])
def test_keys_are_those_of_every_version_before(origin: str) -> None:
    """A journal that was filled under them would take everything twice under others."""
    event = event_of(message("1") | {"origin": origin}, IngestRules(event_type="t"))
    assert event.idempotency_key == f"{origin}/7"


def test_a_body_is_an_event() -> None:
    body = '{"event_type": "t", "payload": {"a": 1}, "occurred_at_ms": 3, "entity_id": null}'
    event = event_of(message(body), EVENT)
    assert event[:5] == ("t", '{"a":1}', "", "", "nats/S/7")
    assert event.occurred_at_ms == 3


@pytest.mark.parametrize(
    ("one", "rules", "reason"),
    [
        (message("{"), IngestRules(event_type="t"), "payload_json at position 1: not valid JSON"),
        (message("{"), EVENT, "body at position 1: not valid JSON"),
        (message(""), EVENT, "body: is empty"),
        (message(None, fault="body: is not UTF-8"), EVENT, "body: is not UTF-8"),
        (message("[1]"), EVENT, "body: is not an object with the columns of an event"),
        (message("{}"), EVENT, "event_type: neither the message nor an option gives it"),
        (
            message('{"event_type":"t","colour":1}'),
            EVENT,
            "colour: is not a column of an event; the",
        ),
        (message('{"event_type":7}'), EVENT, "event_type: 7 is not text"),
        (message('{"event_type":"t","schema_version":true}'), EVENT, "schema_version: True is not"),
        (
            message("1", {"schema_version": "x"}),
            IngestRules(event_type="t"),
            "schema_version: 'x' is no",
        ),
        (
            message("1", {"schema_version": "4"}),
            IngestRules(event_type="t", newest=3),
            "schema_version: 4 is not in 1..3",
        ),
        (
            message("1"),
            IngestRules(event_type="t", key_from="id"),
            "id: the message has no such header",
        ),
        (
            message("1"),
            IngestRules(event_type="t" * 600),
            "event_type: 600 bytes, the limit is 512",
        ),
    ],
)
def test_what_is_no_event_has_a_reason(
    one: dict[str, Any], rules: IngestRules, reason: str
) -> None:
    (checked,) = checking(rules, Limits())(iter([pa.RecordBatch.from_pylist([one])]))
    (row,) = checked.to_pylist()
    assert row["reason"].startswith(reason)
    assert (row["origin"], row["number"], row["raw"]) == ("nats/S", 7, one["raw"])


def test_csv_is_cut_into_records_by_line() -> None:
    text = 'event_type,payload_json,schema_version\nt,"{""a"": ""x\ny""}",2\nt\nt,,\n\n'
    found = list(csv_records(message(text)))
    assert [(row["number"], row["body"], row["fault"]) for row in found] == [
        (3, '{"event_type":"t","payload_json":"{\\"a\\": \\"x\\ny\\"}","schema_version":2}', None),
        (4, None, "body: has 1 fields, the first line 3"),
        (5, '{"event_type":"t"}', None),
    ]
    (torn,) = csv_records(message('a\n"x'))
    assert torn["fault"] == "body: is not CSV: unexpected end of data"


def test_csv_that_is_not_utf8_keeps_the_bytes_of_the_records_that_are_not() -> None:
    came = b'event_type,payload_json\nt,"[""\xff\n""]"\r\nt,"""\xc3\xa9"""\n'
    found = list(csv_records(message(None, raw_bytes=came, fault="body: is not UTF-8")))
    assert [(row["number"], row["fault"], row["raw_bytes"], row["body"]) for row in found] == [
        (3, "body: is not UTF-8", b't,"[""\xff\n""]"', None),
        (4, None, None, '{"event_type":"t","payload_json":"\\"é\\""}'),
    ]
    assert found[0]["raw"] == 't,"[""\ufffd\n""]"'
    whole = message(None, raw_bytes=b"event_\xff\nt\n", fault="body: is not UTF-8")
    assert list(csv_records(whole)) == [whole]
    (torn,) = csv_records(message(None, raw_bytes=b'a\n"\xff', fault="body: is not UTF-8"))
    assert (torn["raw_bytes"], torn["fault"][:16]) == (b'a\n"\xff', "body: is not CSV")


def test_a_header_that_is_not_utf8_counts_only_where_it_is_looked_at() -> None:
    odd = message("1") | {"headers": sent(("Entity-Id", b"\xff"), ("Trace", b"\xff"))}
    with pytest.raises(InvalidArgument, match="header entity_id: is not UTF-8"):
        event_of(odd, IngestRules(event_type="t"))
    headers = sent(("Trace", b"\xff"))
    odd |= {"headers": headers}
    assert event_of(odd, IngestRules(event_type="t")).event_type == "t"
    with pytest.raises(InvalidArgument, match="header trace: is not UTF-8"):
        event_of(odd, IngestRules(event_type="t", key_from="Trace"))
    bad = odd | {"key_bytes": b"\xfe", "body": None}
    bad |= {"raw_bytes": b"\xfd", "fault": "body: is not UTF-8"}
    (kept,) = _checked(bad, IngestRules(event_type="t"))
    assert (kept["raw_bytes"], kept["key_bytes"], kept["sent"]) == (b"\xfd", b"\xfe", headers)
    (good,) = _checked(odd, IngestRules(event_type="t"))
    assert (good["reason"], good["raw"], good["sent"]) == (None, None, None)


def _checked(message: dict[str, Any], rules: IngestRules) -> list[dict[str, Any]]:
    batch = pa.RecordBatch.from_pylist([message])
    return [
        row for checked in checking(rules, Limits())(iter([batch])) for row in checked.to_pylist()
    ]


@pytest.mark.parametrize(
    "headers",
    [
        sent((" Event-Type ", b" t ")),
        sent(("EVENT_TYPE", b"u"), ("event-type", b"t")),
        sent(("event-type", b"t"), ("Event_type", b"u"), ("eVENT-tYPE", b"t")),
        sent(("event_type", b"t"), ("event_type", None), (None, b"u")),
        sent(("event_type", b"\xff"), ("event_type", b"t")),
    ],
)
def test_a_header_is_found_by_any_form_of_its_name_and_the_last_counts(headers: Any) -> None:
    assert event_of(message("1") | {"headers": headers}, IngestRules()).event_type == "t"
    for option in ("event_type", "Event-Type", "EVENT_TYPE"):
        rules = IngestRules(event_type="other", event_type_from=option)
        assert event_of(message("1") | {"headers": headers}, rules).event_type == "t"


def test_only_ascii_letters_have_two_cases() -> None:
    # "\u212a" is the sign of kelvin, which Unicode's rules lower to a "k".
    headers = sent(("idempotency_\u212aey", b"x"))
    event = event_of(message("1") | {"headers": headers}, IngestRules(event_type="t"))
    assert event.idempotency_key == "nats/S/7"


def test_landed_messages_bring_headers_and_position() -> None:
    line = '{"headers": {"Event-Type": "t"}, "position": "p/1", "body": {"a": 1}, "key": 3}'
    (found,) = landed_message(message(line))
    assert (found["body"], found["key"]) == ('{"a":1}', "3")
    assert found["headers"] == [
        {"name": "Event-Type", "value": b"t"}, {"name": "idempotency_key", "value": b"p/1"},
    ]  # fmt: skip
    for text, fault in (
        ("{", "message: not valid JSON"),
        ("1", "message: is not an object"),
        ('{"boddy": 1}', "boddy: is not a field of it; there are headers, key"),
        ("{}", "body: is missing"),
    ):
        (bad,) = landed_message(message(text))
        assert bad["fault"].startswith(fault)
        assert bad["raw"] == text


def test_landed_messages_of_tape_keep_their_place_and_every_header() -> None:
    came = SourceMessage(
        "nats", "nats/S@5", "7", b"1", (("A", b"1"), ("a", b"2"), ("A", b"\xff")), timestamp_ms=9
    )
    (found,) = landed_message(message(landed(came).decode()))
    assert found["headers"] == sent(*came.headers, ("idempotency_key", b"nats/S@5/7"))
    assert (found["timestamp_ms"], found["body"]) == (9, "1")
    line = landed(came._replace(body=b"\xff")).decode()
    (odd,) = landed_message(message(line))
    assert (odd["fault"], odd["raw"]) == ("body: is not UTF-8", line)


def test_a_refusal_is_an_invalid_argument() -> None:
    with pytest.raises(InvalidArgument):
        event_of(message(None), IngestRules())
