"""A message: its place, its headers, and the input of its run."""

from typing import Any, Final

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tape.errors import MessageRefused, TooLarge
from tape.model.directive import DispatchPlan
from tape.model.json_text import exceeds_64_bits
from tape.model.lease import NewRun
from tape.model.message import (
    LONGEST,
    LONGEST_KEY,
    SourceMessage,
    as_they_came,
    bounded_key,
    file_origin,
    input_limits,
    invocation_of,
    kafka_origin,
    last_value,
    lower_name,
    nats_origin,
    normalised,
    position_of,
    pubsub_origin,
    push_origin,
    run_input,
)
from tape.model.run import RunName
from tape.model.subscription_spec import (
    DispatchSpec,
    HeaderSpec,
    PayloadFrom,
    SourceKind,
    SourceSpec,
    SubscriptionSpec,
)
from tape.settings import KIB, MIB, Limits

LIMITS: Final = Limits()
HEADERS: Final = (
    ("X-Route", b"a"), ("Kind", b"\xff\xc3\xa9"), ("x-route", b"b"), ("X-Route", b"c"),
)  # fmt: skip
PLAN: Final = DispatchPlan("app", "pool", content_type="text/plain", schema_hint="v1")


def spec(payload_from: PayloadFrom = PayloadFrom.JSON, **more: Any) -> SubscriptionSpec:
    return SubscriptionSpec(
        "events", "subscriptions/events", "pull", SourceSpec(SourceKind.NATS),
        DispatchSpec("app", payload_from), **more,
    )  # fmt: skip


def message(body: bytes = b"{}", **more: Any) -> SourceMessage:
    return SourceMessage("nats", "nats/S@5", "7", body, **more)


def made(
    body: bytes, payload_from: PayloadFrom = PayloadFrom.JSON, limits: Limits = LIMITS, **more: Any
) -> dict[str, Any]:
    text = run_input(message(body, **more), spec(payload_from), PLAN, limits)
    found: dict[str, Any] = orjson.loads(text)
    return found


def refused(body: bytes, limits: Limits = LIMITS, **more: Any) -> MessageRefused:
    with pytest.raises(MessageRefused) as refusal:
        made(body, limits=limits, **more)
    return refusal.value


def test_places_hold_the_incarnation() -> None:
    places = {
        "nats/ORDERS@1763500000123/7": (nats_origin("ORDERS", 1763500000123), "7"),
        "kafka/orders@zB-3q/0/12": (kafka_origin("orders", "zB-3q", 0), "12"),
        "kafka/orders@/0/12": (kafka_origin("orders", "", 0), "12"),
        "pubsub/projects/p/subscriptions/s/99": (
            pubsub_origin("projects/p/subscriptions/s"),
            position_of("99"),
        ),
        "file/var/in/a%20b.jsonl/3": (file_origin("/var/in/a b.jsonl"), "3"),
        "file/var/a%40b@1f.2/3": (file_origin("/var/a@b", "1f.2"), "3"),
        "push/stripe/evt_1%2F2%40": (push_origin("stripe"), position_of("evt_1/2@")),
    }
    for place, (origin, position) in places.items():
        assert SourceMessage("x", origin, position, b"").place == place
    assert message().shown_id == "nats/S@5/7"
    assert message(message_id="m").shown_id == "m"


@given(st.text(max_size=400), st.text(max_size=400), st.integers(0, 2**31), st.integers(0, 2**63))
def test_a_place_is_bounded_and_plain_whatever_a_sender_chose(
    one: str, other: str, partition: int, number: int
) -> None:
    places = [
        (nats_origin(one, number), str(number)),
        (kafka_origin(one, other, partition), str(number)),
        (pubsub_origin(one), position_of(other)),
        (file_origin(one), str(number)),
        (file_origin(one, other), str(number)),
        (push_origin(one), position_of(other)),
    ]
    for origin, position in places:
        place = SourceMessage("x", origin, position, b"").place
        assert len(place) <= LONGEST < LIMITS.name_bytes
        assert place.isascii()
        assert place.isprintable()
        assert not set(place) & set(" \"'\\?#")
        assert "/" not in position
    if one != other:
        assert nats_origin(one, 1) != nats_origin(other, 1)
        assert position_of(one) != position_of(other)


def test_what_is_too_long_for_a_part_is_its_digest_and_looks_like_no_other() -> None:
    long = position_of("x" * 151)
    assert (long[:7], len(long)) == ("sha256=", 71)
    assert position_of(long) == long.replace("=", "%3D")
    assert position_of("x" * 150) == "x" * 150
    assert position_of("\udcff") == "%FF"  # of a file's name that is not UTF-8
    assert file_origin("a/" + "b" * 300).startswith("file/sha256=")


def test_a_run_is_named_after_the_place_if_names_may_be_so_long() -> None:
    assert invocation_of("nats/S@5/7", LIMITS) == "nats/S@5/7"
    short = invocation_of("nats/S@5/" + "7" * 300, Limits(name_bytes=100))
    assert (short[:7], len(short)) == ("sha256=", 71)


def test_e1_e3_headers_are_in_lower_case_and_several_values_a_list() -> None:
    assert normalised(HEADERS) == {"x-route": ["a", "b", "c"], "kind": "\ufffdé"}
    assert normalised(()) == {}
    assert normalised([("a_b", b"1"), ("a-b", b"2")]) == {"a_b": "1", "a-b": "2"}


def test_e2_attributes_are_as_they_came() -> None:
    assert as_they_came(HEADERS) == {"X-Route": ["a", "c"], "Kind": "\ufffdé", "x-route": "b"}


def test_e15_the_last_value_over_spellings() -> None:
    assert last_value(HEADERS, "x-route") == "c"
    assert last_value(HEADERS[:3], "x-route") == "b"
    assert last_value(HEADERS, "X-Route") is None
    assert last_value(HEADERS, "none") is None


def test_only_ascii_has_two_cases() -> None:
    assert lower_name("X-ÀB-\u212a\u0130") == "x-Àb-\u212a\u0130"


@given(st.text())
def test_names_keep_their_length_and_lower_once(name: str) -> None:
    lowered = lower_name(name)
    assert len(lowered) == len(name)
    assert lower_name(lowered) == lowered
    assert not any("A" <= letter <= "Z" for letter in lowered)


def test_keys_are_bounded() -> None:
    assert bounded_key("k" * LONGEST_KEY) == "k" * LONGEST_KEY
    keys = ["k" * (LONGEST_KEY + 1), "é" * LONGEST_KEY, "\0", "\0\0", "\udc80"]
    assert len({bounded_key(key) for key in keys}) == 5
    assert all(len(bounded_key(key)) == 71 for key in keys[:4])


def test_e4_the_message_is_always_beside_the_payload() -> None:
    came = message(
        b' {"a": [1, 2.50]}\n', headers=HEADERS, message_id="m", key="k", timestamp_ms=5,
        subject="orders.new",
    )  # fmt: skip
    text = run_input(came, spec(), PLAN, LIMITS)
    assert text.startswith('{"payload": {"a": [1, 2.50]}\n,"message":{')
    assert orjson.loads(text) == {
        "payload": {"a": [1, 2.5]},
        "message": {
            "id": "m",
            "place": "nats/S@5/7",
            "source": "nats",
            "subscription": "events",
            "subject": "orders.new",
            "headers": {"x-route": ["a", "b", "c"], "kind": "\ufffdé"},
            "attributes": {"X-Route": ["a", "c"], "Kind": "\ufffdé", "x-route": "b"},
            "key": "k",
            "timestamp_ms": 5,
            "content_type": "text/plain",
            "schema_hint": "v1",
            "body_encoding": "",
            "trace": None,
        },
    }
    for payload_from in PayloadFrom:
        assert made(b"{}", payload_from, headers=HEADERS)["message"]["headers"]["kind"] == "\ufffdé"


def test_a_block_of_headers_may_leave_them_as_they_came_and_add_the_trace() -> None:
    rules = HeaderSpec(normalize=False, propagates_trace=True)
    plan = PLAN._replace(traceparent="p", tracestate="s", baggage="b")
    found = orjson.loads(run_input(message(headers=HEADERS), spec(headers=rules), plan, LIMITS))
    assert found["message"]["headers"] == found["message"]["attributes"]
    assert found["message"]["trace"] == {"traceparent": "p", "tracestate": "s", "baggage": "b"}


def test_a_body_as_it_is() -> None:
    text = made("{ é".encode(), PayloadFrom.BODY)
    assert (text["payload"], text["message"]["body_encoding"]) == ("{ é", "")
    odd = made(b"\xff\0", PayloadFrom.BODY)
    assert (odd["payload"], odd["message"]["body_encoding"]) == ("/wA=", "base64")
    assert made(b"", PayloadFrom.BODY)["payload"] == ""
    long = b"[123456789012345678901234567890]"
    assert made(long, PayloadFrom.BODY)["payload"] == long.decode()


def test_attributes_as_the_payload_ask_nothing_of_the_body() -> None:
    found = made(b"\xff{", PayloadFrom.ATTRIBUTES, headers=HEADERS)
    assert found["payload"] == {"X-Route": ["a", "c"], "Kind": "\ufffdé", "x-route": "b"}
    assert found["message"]["body_encoding"] == ""


@pytest.mark.parametrize(
    ("body", "because", "words"),
    [
        (b"", "not_json", "the body is empty"),
        (b"{", "not_json", "body at position 1: not valid JSON"),
        (b"NaN", "not_json", "not valid JSON"),
        (b"1 2", "not_json", "not valid JSON"),
        (b'"\\ud800"', "not_json", "not valid JSON"),
        (b'{"a": "\xff"}', "not_json", "not UTF-8 at byte 7; payload_from: message.body takes it"),
        (b"\xef\xbb\xbf1", "not_json", "byte order mark"),
        (b"[" * 65 + b"]" * 65, "too_deep", "nested deeper than 64 levels"),
        (b"[" * 5000 + b"]" * 5000, "too_deep", "depth limit"),
        (b"[" * 5000, "too_deep", "depth limit"),
        (b"[1, 18446744073709551616]", "number_too_large", "send it as a text"),
        (b'{"id":-9223372036854775809}', "number_too_large", "beyond 64 bits"),
        (b"1e999", "number_too_large", "infinity"),
    ],
)
def test_what_is_no_json_that_can_be_read_exactly_is_refused(
    body: bytes, because: str, words: str
) -> None:
    fault = refused(body)
    assert fault.because == because
    assert words in str(fault)


def test_r_b_9_whole_numbers_of_64_bits_are_exact() -> None:
    for text in (
        "18446744073709551615", "-9223372036854775808", "1e30", "123456789012345678901.5",
        '"99999999999999999999999"', '{"99999999999999999999999":"\\"88888888888888888888888"}',
        "0.12345678901234567890123", "1.5e-10", "12345678901234567890E+1",
    ):  # fmt: skip
        assert not exceeds_64_bits(text), text
        made(text.encode())
    for text in (
        "[0,99999999999999999999]",
        '{"a":"\\\\","b":18446744073709551616}',
        "-" + "9" * 400,
    ):
        assert exceeds_64_bits(text), text


@given(
    st.recursive(
        st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
        max_leaves=6,
    ),
    st.booleans(),
)
def test_a_number_is_found_wherever_it_stands(value: Any, ascii_only: bool) -> None:
    import json

    def has_one(node: Any) -> bool:
        if isinstance(node, int):
            return not -(2**63) <= node < 2**64
        return (
            any(map(has_one, node.values() if isinstance(node, dict) else node))
            if isinstance(node, dict | list)
            else False
        )

    assert exceeds_64_bits(json.dumps(value, ensure_ascii=ascii_only)) is has_one(value)


def test_r_a_11_the_limit_counts_the_body_and_the_input_may_be_twice_as_long() -> None:
    whole = b'"' + b"x" * (MIB - 2) + b'"'
    assert len(made(whole)["payload"]) == MIB - 2
    assert refused(whole + b" ").because == "too_large"
    assert "limit is 1048576 (tape.limits.message_bytes)" in str(refused(b" " + whole))
    # One mebibyte that is not UTF-8 fits as base64; one that grows sixfold does not.
    assert len(made(b"\xff" * MIB, PayloadFrom.BODY)["payload"]) > MIB
    with pytest.raises(MessageRefused, match="makes an input of") as fault:
        made(b"\0" * MIB, PayloadFrom.BODY)
    assert fault.value.because == "too_large"
    much = (("a", b"x" * MIB), ("b", b"x"))
    assert refused(b"1", headers=much).because == "too_large"
    assert refused(b"12345", Limits(message_bytes=4)).because == "too_large"


def test_a_run_can_be_begun_with_what_the_limits_let_through() -> None:
    deepest = b"[" * 64 + b"]" * 64
    largest = b'"' + b"x" * (MIB - 2) + b'"'
    for body in (deepest, largest):
        text = run_input(message(body), spec(), PLAN, LIMITS)
        run = NewRun(RunName("app", "subscription", "events", message().place), text)
        assert run.checked(input_limits(LIMITS)).input_json == text
        with pytest.raises(TooLarge):
            run.checked(LIMITS)


def test_a_limit_that_is_set_is_the_limit() -> None:
    fault = refused(b"[[[1]]]", Limits(json_depth=2))
    assert (fault.because, "2 levels" in str(fault)) == ("too_deep", True)
    assert Limits(message_bytes=64 * KIB).message_input_bytes == 128 * KIB
