"""What may change between two versions of a payload type, and what may not."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tape.model.payload_schema import PayloadSchema, find_breaks

VERSION: dict[str, Any] = {"type": "integer", "default": 1}
LEVEL: dict[str, Any] = {
    "type": "object",
    "properties": {"price": {"type": "number", "default": 0.0}},
}
FIELDS: dict[str, Any] = {
    "schema_version": VERSION,
    "symbol": {"type": "string", "default": ""},
    "levels": {"type": "array", "items": LEVEL, "default": []},
    "best": {**LEVEL, "default": {"price": 0.0}},
    "note": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
}


def schema(version: int, subject: str = "klines.>", /, **changes: Any) -> PayloadSchema:
    """FIELDS with some changed, and those that are None gone."""
    fields = {**FIELDS, "schema_version": {**VERSION, "default": version}, **changes}
    return PayloadSchema("Kline", subject, version, {k: v for k, v in fields.items() if v})


def level(**changes: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {**LEVEL["properties"], **changes}}


NOTHING: dict[str, Any] = {"type": "object", "properties": {}}
TEXT = {"type": "string", "default": ""}
WIDER = level(venue={"type": "string", "default": ""})
ALLOWED = [
    (schema(1), schema(1)),
    (schema(1), schema(2)),
    (schema(1), schema(2, volume={"type": "number", "default": 0.0})),
    (schema(1), schema(9, levels={"type": "array", "items": WIDER, "default": []})),
    (schema(1), schema(2, best={**WIDER, "default": {"price": 0.0, "venue": ""}})),
]


@pytest.mark.parametrize(("old", "new"), ALLOWED)
def test_what_may_change(old: PayloadSchema, new: PayloadSchema) -> None:
    assert find_breaks([old], new) == []


REFUSED = [
    (schema(2, symbol=None), "symbol", "removed"),
    (schema(2, symbol=None, ticker=TEXT), "symbol", "renamed"),
    (schema(2, symbol=None, ticker={**TEXT, "default": "?"}), "symbol", "renamed"),
    (schema(2, symbol=None, ticker={"type": "integer", "default": 0}), "symbol", "removed"),
    (schema(2, symbol={"type": "integer", "default": ""}), "symbol", "type"),
    (schema(2, symbol={"anyOf": [TEXT, {"type": "null"}], "default": ""}), "symbol", "type"),
    (schema(2, symbol={"type": "string", "maxLength": 9, "default": ""}), "symbol", "type"),
    (schema(2, note={"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None}), "note",
     "type"),
    (schema(2, symbol={"type": "string", "default": "BTC"}), "symbol", "default"),
    (schema(1, volume={"type": "number", "default": 0.0}), "volume", "added"),
    (schema(1, levels={"type": "array", "items": WIDER, "default": []}), "levels[].venue", "added"),
    (schema(2, levels={"type": "array", "items": NOTHING, "default": []}), "levels[].price",
     "removed"),
    (schema(2, levels={"type": "array", "items": {"type": "number"}, "default": []}), "levels[]",
     "type"),
    (schema(2, best={**level(price={"type": "string", "default": 0.0}), "default": {"price": 0.0}}),
     "best.price", "type"),
    (schema(2, best={**LEVEL, "default": {"price": 1.0}}), "best", "default"),
    (schema(2, "klines.spot.>"), "", "subject"),
]  # fmt: skip


@pytest.mark.parametrize(("new", "field", "what"), REFUSED)
def test_what_may_not_change(new: PayloadSchema, field: str, what: str) -> None:
    ((_name, found, kind, message),) = find_breaks([schema(1)], new)
    assert (found, kind) == (field, what)
    assert message


def test_a_lower_version_is_refused() -> None:
    (finding,) = find_breaks([schema(1), schema(3)], schema(2))
    assert (finding.field, finding.what) == ("schema_version", "version")
    assert "2 is lower than the recorded 3" in finding.message


def test_every_version_counts() -> None:
    """What was taken away between two of them is missed, and each fault is told of once."""
    volume = {"type": "number", "default": 0.0}
    history = [schema(1, volume=volume), schema(2, volume=volume), schema(3)]
    (finding,) = find_breaks(history, schema(4))
    assert (finding.field, finding.what) == ("volume", "removed")


def test_every_finding_is_told() -> None:
    findings = find_breaks([schema(5)], schema(1, symbol=None, note=None))
    assert [(f.field, f.what) for f in findings] == [
        ("schema_version", "version"), ("symbol", "removed"), ("note", "removed"),
    ]  # fmt: skip


def test_a_rename_is_called_one() -> None:
    (finding,) = find_breaks([schema(1)], schema(2, symbol=None, ticker=TEXT))
    advice = "keep symbol and add ticker beside it"
    assert str(finding) == f"Kline.symbol: seems to be renamed to ticker; {advice}"


TYPES: st.SearchStrategy[dict[str, Any]] = st.recursive(
    st.sampled_from([{"type": "string"}, {"type": "integer"}, {"enum": ["a", "b"]}]),
    lambda inner: (
        st.builds(lambda items: {"type": "array", "items": items}, inner)
        | st.dictionaries(st.sampled_from("abc"), inner).map(
            lambda fields: {"type": "object", "properties": fields}
        )
    ),
    max_leaves=6,
)


@given(st.dictionaries(st.sampled_from("uvwxyz"), TYPES), st.data())
def test_only_additions_pass(fields: dict[str, Any], data: st.DataObject) -> None:
    """Fields at random: none found means that every old field is in the new ones as it was."""
    new = data.draw(st.dictionaries(st.sampled_from("uvwxyz"), TYPES | st.sampled_from(
        list(fields.values()) or [{"type": "string"}])))  # fmt: skip
    old_schema = PayloadSchema("E", "e", 1, fields)
    found = find_breaks([old_schema], PayloadSchema("E", "e", 2, new))
    assert (found == []) == _extends(
        {"type": "object", "properties": fields}, {"type": "object", "properties": new}
    )


def _extends(old: Any, new: Any) -> bool:
    if isinstance(old, dict) and isinstance(new, dict):
        if old.get("type") == "object" == new.get("type"):
            theirs = new["properties"]
            return all(n in theirs and _extends(t, theirs[n]) for n, t in old["properties"].items())
        if old.get("type") == "array" == new.get("type"):
            return _extends(old["items"], new["items"])
    return bool(old == new)
