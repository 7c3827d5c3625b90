"""A message as a line of JSON, both ways."""

from contextlib import suppress

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tape.errors import InvalidArgument
from tape.model.landed import LandedMessage, landed, read_landed
from tape.model.message import SourceMessage, nats_origin, position_of

HEADERS = (("X-Route", b"a"), ("x-route", b"b"), ("X-Route", b"c"), ("Odd", b"\xff"))
MESSAGE = SourceMessage(
    "nats", "nats/S@5", "7", b'{"a":\n1}', HEADERS, "m", "k", 5, "orders.new", 3
)


def test_a_message_is_restored_exactly() -> None:
    line = landed(MESSAGE)
    assert b"\n" not in line
    assert read_landed(line).restored() == MESSAGE
    said = orjson.loads(line)
    assert (said["position"], said["body"]) == ("nats/S@5/7", '{"a":\n1}')
    assert said["headers"] == [
        ["X-Route", "a"], ["x-route", "b"], ["X-Route", "c"], ["Odd", {"base64": "/w=="}],
    ]  # fmt: skip


def test_headers_are_an_object_where_that_is_enough() -> None:
    plain = MESSAGE._replace(headers=(("A", b"1"), ("B", b"2"), ("B", b"\xff")))
    said = orjson.loads(landed(plain))
    assert said["headers"] == {"A": "1", "B": ["2", {"base64": "/w=="}]}
    assert read_landed(landed(plain)).restored() == plain


texts = st.text(max_size=5)
parts = texts | st.sampled_from(["a/b", "é", "x" * 500])


@given(
    st.builds(
        SourceMessage,
        st.sampled_from(["nats", "kafka"]),
        st.builds(nats_origin, parts, st.integers(0, 9)),
        st.builds(position_of, parts),
        st.binary(max_size=8) | texts.map(str.encode),
        st.lists(st.tuples(st.sampled_from("aAbB") | texts, st.binary(max_size=3)), max_size=5).map(
            tuple
        ),
        texts,
        texts,
        st.integers(0, 2**53),
        texts,
        st.integers(1, 9),
        st.just(0),  # a message that is cut off is a dead letter, and never lands
        st.just(""),
    )
)
def test_every_message_is_restored_exactly(message: SourceMessage) -> None:
    line = landed(message)
    assert b"\n" not in line
    assert read_landed(line).restored() == message


HEADED = LandedMessage(b"1", (("n", b"7"), ("N", b"x")))
LATEST = LandedMessage(b"1", timestamp_ms=2**63 - 1)
NUMBERS = "message: timestamp_ms and deliveries must"
EXACT = b"[12345678901234567890123,1.0]"


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ('{"body": "text"}', LandedMessage(b"text")),
        ('{"body": {"a": 1}}', LandedMessage(b'{"a":1}')),
        ('{"body": null}', LandedMessage(b"null")),
        ('{"body": 7, "headers": null}', LandedMessage(b"7")),
        ('{"body": 1, "headers": {}}', LandedMessage(b"1")),
        ('{"body": 1, "headers": {"n": 7, "N": "x"}}', HEADED),
        ('{"body": 1, "key": 3, "position": 12}', LandedMessage(b"1", (), "12", "3")),
        ('{"body": 1, "timestamp_ms": 5}', LandedMessage(b"1", timestamp_ms=5)),
        ('{"body": 1, "timestamp_ms": 9223372036854775807}', LATEST),
        ('{"body": "AP8=", "body_encoding": "base64"}', LandedMessage(b"\0\xff")),
        ('{"body": "AP8=", "body_encoding": ""}', LandedMessage(b"AP8=")),
        ('{"body": [12345678901234567890123, 1.0]}', LandedMessage(EXACT)),
    ],
)  # fmt: skip
def test_what_others_have_landed_is_read(line: str, found: LandedMessage) -> None:
    assert read_landed(line.encode()) == found


def test_what_others_have_landed_is_a_message_of_the_file_that_has_it() -> None:
    found = read_landed(b'{"body": 1, "position": "p/1"}').found_at("file", "file/a", "3")
    assert found == SourceMessage("file", "file/a", "3", b"1", message_id="p/1")
    ours = read_landed(landed(MESSAGE)).found_at("file", "file/a", "3")
    assert ours == MESSAGE._replace(source="file", origin="file/a", position="3", deliveries=1)
    for line in (
        {"body": "1"}, {"body": "1", "origin": "a", "source": "s", "position": "b/1"},
        {"body": "1", "origin": "a", "position": "a/1"},
    ):  # fmt: skip
        with pytest.raises(InvalidArgument, match="origin: the line does not say where"):
            read_landed(orjson.dumps(line)).restored()


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("{", "message: not valid JSON"),
        ("1", "message: is not an object"),
        ('{"boddy": 1}', "boddy: is not a field of it; there are headers, key"),
        ("{}", "body: is missing"),
        ('{"body": 1, "headers": 7}', "headers: must be an object, or a list of pairs"),
        ('{"body": 1, "headers": "ab"}', "headers: must be an object, or a list of pairs"),
        ('{"body": 1, "headers": ["ab"]}', "headers: must be pairs of a name and a value"),
        ('{"body": 1, "headers": [["a"]]}', "headers: must be pairs"),
        ('{"body": 1, "headers": [[1, "a"]]}', "headers: must be pairs"),
        ('{"body": 1, "headers": {"a": {"b": 1}}}', "header a: is neither a text nor"),
        ('{"body": 1, "headers": {"a": {"base64": "?"}}}', "header a: is not base64"),
        ('{"body": 1, "body_encoding": "base64"}', "body: is not base64"),
        ('{"body": "1", "body_encoding": "gzip"}', "body_encoding: 'gzip' is not 'base64'"),
        ('{"body": 1, "timestamp_ms": "x"}', "message: timestamp_ms and deliveries must be"),
        ('{"body": 1, "timestamp_ms": 9223372036854775808}', f"{NUMBERS} have 64 bits"),
        ('{"body": 1, "timestamp_ms": -9223372036854775809}', f"{NUMBERS} be"),
        ('{"body": 1, "deliveries": 9223372036854775808}', f"{NUMBERS} have 64 bits"),
        ('{"body": 1, "subject": 1}', "subject: is not text"),
    ],
)  # fmt: skip
def test_what_is_no_landed_message_is_refused(line: str, complaint: str) -> None:
    with pytest.raises(InvalidArgument) as refusal:
        read_landed(line.encode())
    assert str(refusal.value).startswith(complaint)


@given(st.binary(max_size=40) | st.builds(orjson.dumps, st.dictionaries(
    st.sampled_from(["headers", "body", "key", "position", "timestamp_ms", "body_encoding"]),
    st.none() | st.integers(-3, 3) | texts | st.lists(texts) | st.dictionaries(texts, texts),
)))  # fmt: skip
def test_whatever_a_line_is_it_is_read_or_refused(line: bytes) -> None:
    _read_or_refused(line)


def nested(depth: int, inner: str = "1") -> str:
    return "[" * depth + inner + "]" * depth


@pytest.mark.parametrize("depth", [254, 255, 400])
def test_a_body_that_nests_deeply_is_read(depth: int) -> None:
    assert read_landed(f'{{"body": {nested(depth)}}}'.encode()).body == nested(depth).encode()


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        (f'{{"body": {nested(1010)}}}', "body: nests too deeply"),
        (f'{{"body": {nested(1010, "9" * 30)}}}', "body: nests too deeply"),
        (f'{{"body": {nested(5000)}}}', "message: not valid JSON"),
        (f'{{"body": 1, "key": {nested(1010)}}}', "key: nests too deeply"),
        (f'{{"body": 1, "position": {nested(1010)}}}', "position: nests too deeply"),
        (f'{{"body": 1, "body_encoding": {nested(1010)}}}', "body_encoding: nests too deeply"),
        (f'{{"body": 1, "headers": {nested(1010)}}}', "headers: must be pairs"),
    ],
)
def test_what_nests_too_deeply_is_refused(line: str, complaint: str) -> None:
    with pytest.raises(InvalidArgument) as refusal:
        read_landed(line.encode())
    assert str(refusal.value).startswith(complaint)


def _read_or_refused(line: bytes) -> None:
    with suppress(InvalidArgument):
        assert isinstance(read_landed(line), LandedMessage)
