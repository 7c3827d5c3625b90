"""Keys of messages, for the window of repeats and for order."""

import json
from typing import Any, Final

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tape.errors import InvalidArgument, TooLarge
from tape.model.directive import DispatchPlan
from tape.model.message import LONGEST_KEY, SourceMessage
from tape.model.subscription_spec import (
    DedupSpec,
    DispatchSpec,
    PayloadFrom,
    SourceKind,
    SourceSpec,
    SubscriptionSpec,
)
from tape.subscriptions.keys import CHECKED, check_key, dedup_key, message_key

PLAN: Final = DispatchPlan("app", "pool", content_type="t")


def spec(payload_from: PayloadFrom = PayloadFrom.JSON, key: str = "") -> SubscriptionSpec:
    return SubscriptionSpec(
        "s", "subscriptions/s", "pull", SourceSpec(SourceKind.KAFKA),
        DispatchSpec("app", payload_from), dedup=DedupSpec(60, key) if key else None,
    )  # fmt: skip


def message(body: bytes | str = b"{}", **more: Any) -> SourceMessage:
    came = body if isinstance(body, bytes) else body.encode()
    return SourceMessage("kafka", "kafka/t@1/0", "7", came, key="source key", **more)


def key(
    expression: str, body: bytes | str, payload_from: PayloadFrom = PayloadFrom.JSON, **more: Any
) -> str:
    return message_key(expression, message(body, **more), spec(payload_from), PLAN)


def test_e10_the_header_wins_and_the_message_id_is_the_fallback() -> None:
    word = "idempotency_key"
    said = PLAN._replace(idempotency_key="from a header")
    assert message_key(word, message(message_id="m"), spec(), said) == "from a header"
    assert message_key(word, message(message_id="m"), spec(), PLAN) == "m"
    # Without either nothing is a repeat of it: never the key that the source orders by.
    assert message_key(word, message(), spec(), PLAN) == "kafka/t@1/0/7"


def test_f1_dedup_is_off_without_its_block() -> None:
    assert dedup_key(message(message_id="m"), spec(), PLAN) == ""
    assert dedup_key(message(message_id="m"), spec(key="idempotency_key"), PLAN) == "m"
    assert dedup_key(message('{"id": 7}'), spec(key="id"), PLAN) == "7"


@pytest.mark.parametrize("expression", ["id", "payload.id", "payload.id + 1"])
@pytest.mark.parametrize("body", ["{}", "{", '{"id": null}', '{"id": [1]}'])
def test_what_has_no_key_is_a_repeat_of_nothing(expression: str, body: str) -> None:
    """Messages of one device have its key in common, and are not one message for that."""
    assert dedup_key(message(body), spec(key=expression), PLAN) == ""
    assert message_key(expression, message(body), spec(key=expression), PLAN) == "source key"


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ('{"id": "a b"}', "a b"),
        ('{"id": 7}', "7"),
        ('{"id": -7.50}', "-7.5"),
        ('{"id": true}', "true"),
        ('{"id": 18446744073709551615}', "18446744073709551615"),
        ('{"id": 123456789012345678901234567890}', "123456789012345678901234567890"),
        ('{"id": ""}', "source key"),
        ('{"id": null}', "source key"),
        ('{"id": [1]}', "source key"),
        ('{"id": {"a": 1}}', "source key"),
        ('{"ID": 1}', "source key"),
        ('{"a": {"id": 1}}', "source key"),
        ("[1]", "source key"),
        ("{", "source key"),
        ("", "source key"),
        (b'{"id": "\xff"}', "source key"),
    ],
)
def test_r_a_17_a_word_is_a_field_at_the_top_of_the_body(body: bytes | str, found: str) -> None:
    for payload_from in PayloadFrom:
        assert key("id", body, payload_from) == found


@pytest.mark.parametrize(
    ("expression", "found"),
    [
        ("payload.order.id", "o1"),
        ("payload.order.id + '/' + string(payload.n)", "o1/3"),
        ("payload.n", "3"),
        ("payload.big", "18446744073709551615"),
        ("payload.bigs[0]", "9223372036854775808"),
        ("string(payload.big)", "18446744073709551615"),
        ("payload.big == 18446744073709551615u", "true"),
        ("payload.ratio", "1.5"),
        ("has(payload.none) ? payload.none : 'default'", "default"),
        ("message.headers.device", "d1"),
        ("message.headers['x-tags'][1]", "b"),
        ("message.attributes.Device", "d1"),
        ("message.place", "kafka/t@1/0/7"),
        ("message.subscription + message.content_type + message.key", "stsource key"),
        ("timestamp(message.timestamp_ms / 1000)", "1970-01-01T00:00:05Z"),
        ("payload.none", "source key"),
        ("payload.order", "source key"),
        ("payload.nothing", "source key"),
        ("payload.order.id.x", "source key"),
        ("int(payload.order.id)", "source key"),
        ("message.trace.traceparent", "source key"),
        ("payload.n == 4 ? payload.none : ''", "source key"),
    ],
)
def test_r_a_17_anything_else_is_cel_over_payload_and_message(expression: str, found: str) -> None:
    body = (
        '{"order": {"id": "o1"}, "n": 3, "ratio": 1.5, "nothing": null,'
        ' "big": 18446744073709551615, "bigs": [9223372036854775808]}'
    )
    headers = (("Device", b"d1"), ("X-Tags", b"a"), ("x-tags", b"b"))
    check_key(expression, field="spec.dedup.key")
    assert key(expression, body, headers=headers, timestamp_ms=5_000) == found


def test_the_payload_is_that_of_the_run() -> None:
    headers = (("Device", b"d1"),)
    assert key("string(payload)", "a text", PayloadFrom.BODY) == "a text"
    assert key("payload + message.body_encoding", b"\xff", PayloadFrom.BODY) == "/w==base64"
    assert key("payload.Device", b"\xff", PayloadFrom.ATTRIBUTES, headers=headers) == "d1"
    assert key("payload.a", '{"a": 1}', PayloadFrom.BODY) == "source key"
    # A message with such a number becomes no run; no key is made of what would be another number.
    assert key("payload.a", '{"a": 18446744073709551616}') == "source key"
    assert key("payload.a", '{"a": -9223372036854775809}') == "source key"


def test_without_an_expression_the_key_is_that_of_the_source() -> None:
    assert key("", '{"a": 1}') == "source key"
    assert message_key("id", message()._replace(key=""), spec(), PLAN) == ""


def test_keys_are_bounded_and_distinct() -> None:
    for expression in ("id", "payload.id"):
        found = [key(expression, orjson.dumps({"id": "k" * 9_000 + end})) for end in "ab"]
        assert len(set(found)) == 2
        assert all(len(each) <= LONGEST_KEY for each in found)
        assert "\0" not in key(expression, '{"id": "a\\u0000b"}')
    many = message()._replace(key="k" * 9_000)
    assert len(message_key("id", many, spec(), PLAN)) <= LONGEST_KEY


def test_what_is_too_much_work_has_the_key_of_the_source() -> None:
    much = orjson.dumps({"a": list(range(3_000)), "n": 7})
    assert key("payload.a.filter(x, payload.a.exists(y, y == x))[0]", much) == "source key"
    assert key("payload.n", much) == "7"
    deep = b'{"a": ' + b"[" * 900 + b"12345678901234567890" + b"]" * 900 + b"}"
    assert key("payload.a[0][0]", deep) == "source key"


@pytest.mark.parametrize(
    ("expression", "complaint"),
    [
        ("", "f: must not be empty"),
        ("  ", "f: must not be empty"),
        ("device-id", "f at position 0: undeclared reference to 'device'"),
        ("payload.", "f at position 8: "),
        ("[payload.a]", "f at position 0: must be a text, or what has one, this is list<dyn>"),
        ("{'a': payload}", "f at position 0: must be a text, or what has one, this is map<"),
        ("'same'", "f: is the same for every message: it reads neither payload nor message"),
        ("1 + 1", "f: is the same for every message"),
        ("subject + payload.a", "f at position 0: undeclared reference to 'subject'"),
        ("payload.a.matches('(')", "f at position"),
        ("payload.a\0", "f at position 9: NUL is not allowed"),
    ],
)
def test_what_can_be_no_key_is_refused_at_registration(expression: str, complaint: str) -> None:
    with pytest.raises(InvalidArgument) as refusal:
        check_key(expression, field="f")
    assert str(refusal.value).startswith(complaint)


def test_an_expression_is_bounded_and_checked_once() -> None:
    with pytest.raises(TooLarge, match="f: 4105 bytes, the limit is 4096"):
        check_key("payload." + "a" * 4097, field="f")
    assert check_key("payload.once", field="f") is check_key("payload.once", field="f")
    for number in range(CHECKED + 10):
        check_key(f"payload.n{number}")
    assert check_key.cache_info().currsize == CHECKED


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**65), 2**65) | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
bodies = json_values.map(lambda value: json.dumps({"id": value}, ensure_ascii=False).encode())


@settings(deadline=None)
@given(
    st.binary() | bodies,
    st.sampled_from(["id", "payload.id", "payload", "message.headers.a", "idempotency_key", ""]),
    st.sampled_from(list(PayloadFrom)),
    st.lists(st.tuples(st.text(), st.binary())).map(tuple),
    st.text(),
)
def test_there_is_a_key_for_every_message(
    body: bytes, expression: str, payload_from: PayloadFrom, headers: Any, source_key: str
) -> None:
    came = message(body, headers=headers)._replace(key=source_key)
    found = message_key(expression, came, spec(payload_from), PLAN)
    assert len(found.encode()) <= LONGEST_KEY
    assert "\0" not in found
