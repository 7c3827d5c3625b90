"""Payload classes: what is refused when one is made, and reading across versions."""

from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from typing import Any, Literal
from uuid import UUID, uuid4

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, create_model
from typing_extensions import TypedDict

from tape.errors import InvalidArgument
from tape.model.payload_schema import find_breaks
from tape.payloads import Part, Payload
from tape.payloads.shape import fields_of, schema_of

SUBJECT = "market.klines.>"


class Level(Part):
    price: float = 0.0
    size: float = 0.0


class KlineV1(Payload, subject=SUBJECT):
    schema_version: int = 1
    symbol: str = ""
    close: float = 0.0
    levels: tuple[Level, ...] = ()


class DeepLevel(Level):
    venue: str = "binance"


class KlineV2(Payload, subject=SUBJECT):
    schema_version: int = 2
    symbol: str = ""
    close: float = 0.0
    levels: tuple[DeepLevel, ...] = ()
    trades: int = -1


def test_an_old_consumer_reads_a_new_payload() -> None:
    new = KlineV2(symbol="BTCUSDT", close=2.5, levels=(DeepLevel(price=1.0),), trades=7)
    read = KlineV1.read(new.to_json())
    assert read == KlineV1(
        schema_version=2, symbol="BTCUSDT", close=2.5, levels=(Level(price=1.0),)
    )


def test_a_new_consumer_reads_an_old_payload() -> None:
    read = KlineV2.read(KlineV1(symbol="BTCUSDT", levels=(Level(size=3.0),)).to_json().encode())
    assert (read.schema_version, read.trades, read.levels[0].venue) == (1, -1, "binance")


def test_a_field_that_is_none_is_refused_where_a_payload_is_made() -> None:
    with pytest.raises(
        InvalidArgument, match="symbl: is not a field of KlineV1; did you mean symbol"
    ):
        KlineV1(symbl="BTCUSDT")  # type: ignore[call-arg]  # what is tested
    with pytest.raises(InvalidArgument, match="prize: is not a field of DeepLevel; did you mean"):
        KlineV2(levels=(DeepLevel(prize=1.0),))  # type: ignore[call-arg]  # what is tested
    with pytest.raises(InvalidArgument, match=r"zzz: is not a field of KlineV1$"):
        KlineV1().model_copy(update={"zzz": 1})
    assert KlineV1().model_copy(update={"symbol": "ETH"}) == KlineV1(symbol="ETH")
    read = KlineV1.read('{"schema_version": 9, "levels": [{"price": 1, "later": 2}], "zzz": 1}')
    assert read.levels == (Level(price=1.0),)


def test_the_version_comes_first() -> None:
    assert KlineV1(symbol="ETH").to_json() == (
        '{"schema_version":1,"symbol":"ETH","close":0.0,"levels":[]}'
    )


@pytest.mark.parametrize(
    ("text", "field", "message"),
    [
        ("[", "payload", "payload: Invalid JSON"),
        ("[]", "payload", "payload: Input should be an object"),
        ('{"symbol": "X"}', "schema_version", "schema_version: is missing"),
        ('{"schema_version": "1"}', "schema_version", "schema_version: .*valid integer"),
        ('{"schema_version": true}', "schema_version", "schema_version: .*valid integer"),
        ('{"schema_version": 0}', "schema_version", r"0 is not in 1\.\.65535"),
        ('{"schema_version": 65536}', "schema_version", r"65536 is not in 1\.\.65535"),
        (
            '{"schema_version": 1, "close": "2"}',
            "close",
            "close: .*valid number.*reading a KlineV1",
        ),
        ('{"schema_version": 1, "close": null, "symbol": 1}', "symbol", "symbol: .*; close: "),
        ('{"schema_version": 1, "levels": [{}, {"size": []}]}', "levels.1.size", "levels.1.size: "),
    ],
)
def test_a_fault_names_its_field(text: str, field: str, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message) as refused:
        KlineV1.read(text)
    assert refused.value.field == field


def test_what_has_no_json_is_refused_before_it_is_written() -> None:
    with pytest.raises(ValueError, match="finite number"):
        KlineV1(close=float("nan"))
    with pytest.raises(ValueError, match="frozen"):
        KlineV1().symbol = "X"


class Side(Enum):
    BUY = "buy"
    SELL = "sell"


class WideEvent(Payload, subject="wide"):
    schema_version: int = 1
    price: Decimal = Decimal(0)
    at: datetime = datetime.fromtimestamp(0, UTC)
    id: UUID = UUID(int=0)
    side: Side = Side.BUY
    kind: Literal["limit", "market"] = "limit"
    note: str | None = None
    tags: dict[str, int] = Field(default_factory=dict)
    pair: tuple[int, str] = (0, "")


@given(st.builds(WideEvent, price=st.decimals(-9, 9, places=2), note=st.none() | st.text("aü\n")))
def test_what_is_written_is_read(event: WideEvent) -> None:
    assert WideEvent.read(event.to_json()) == event


class Required(BaseModel):
    price: float


class Closed(BaseModel):
    model_config = ConfigDict(extra="forbid")
    price: float = 0.0


@dataclass
class RequiredData:
    price: float


class RequiredKeys(TypedDict):
    price: float


def made(*fields: tuple[str, Any, Any], subject: str = "wide") -> type[Payload]:
    definitions: Any = {name: (kind, default) for name, kind, default in fields}
    return create_model(
        "Event", __base__=Payload, __cls_kwargs__={"subject": subject}, **definitions
    )


VERSION = ("schema_version", int, 1)
WRONG: list[tuple[list[tuple[str, Any, Any]], str]] = [
    ([("symbol", str, "")], r"Event\.symbol: comes first; the first field must be"),
    ([("symbol", str, ""), VERSION], r"Event\.symbol: comes first"),
    ([], "the first field must be"),
    ([("schema_version", str, "1")], r"Event\.schema_version: must be an integer, not text"),
    ([("schema_version", bool, True)], "must be an integer, not text"),
    ([("schema_version", int | None, 1)], "must be an integer, not text"),
    ([("schema_version", int, ...)], "must have the version of the class as its default"),
    ([("schema_version", int, "1")], "must have the version of the class as its default"),
    ([("schema_version", int, 0)], r"Event\.schema_version: 0 is not in 1\.\.65535"),
    ([("schema_version", int, 65_536)], r"65536 is not in 1\.\.65535"),
    ([VERSION, ("symbol", str, ...)], r"Event\.symbol: has no default, so a payload of a version"),
    ([VERSION, ("symbol", str, 5)], r"Event\.symbol: has a default that is not valid"),
    ([VERSION, ("symbol", str, Field("", alias="s"))], r"Event\.symbol: has an alias"),
    (
        [VERSION, ("id", UUID, Field(default_factory=uuid4))],
        r"Event\.id: has a default that varies",
    ),
    (
        [VERSION, ("a", str, Field(default_factory=lambda told: f"{told}"))],
        "depends on other fields",
    ),
    ([VERSION, ("level", Required | None, None)], r"Event\.level\.price: has no default"),
    ([VERSION, ("levels", list[Required], [])], r"Event\.levels\[\]\.price: has no default"),
    ([VERSION, ("levels", dict[str, list[RequiredData]], {})], r"Event\.levels\[\]\[\]\.price"),
    ([VERSION, ("level", RequiredKeys | None, None)], r"Event\.level\.price: has no default"),
    (
        [VERSION, ("level", Closed | None, None)],
        r"Event\.level: must not refuse unknown fields",
    ),
]


@pytest.mark.parametrize(("fields", "message"), WRONG)
def test_a_class_that_could_not_evolve_is_refused(
    fields: list[tuple[str, Any, Any]], message: str
) -> None:
    with pytest.raises(InvalidArgument, match=message):
        made(*fields)


def test_a_class_needs_a_subject() -> None:
    with pytest.raises(
        InvalidArgument, match=r"subject: is missing: class Event\(Payload, subject"
    ):
        made(VERSION, subject="")
    with pytest.raises(InvalidArgument, match="subject at position 0: 'M' is not allowed"):
        made(VERSION, subject="Market.>")


def test_a_type_that_comes_later_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="has a field of a type that is not defined yet"):
        made(VERSION, ("level", "NotYetDefined | None", None))


def test_a_type_may_hold_itself() -> None:
    class Node(Part):
        name: str = ""
        below: "tuple[Node, ...]" = ()

    tree = made(VERSION, ("root", Node | None, None))
    read = tree.read('{"schema_version":1,"root":{"below":[{"name":"leaf"}]}}')
    assert '"leaf"' in read.to_json()
    assert find_breaks([schema_of(tree, "wide", 1)], schema_of(tree, "wide", 1)) == []


KINDS: dict[str, tuple[Any, Any, st.SearchStrategy[Any]]] = {
    "number": (int, 0, st.integers(-9, 9)),
    "other number": (int, 1, st.integers(-9, 9)),
    "fraction": (float, 0.0, st.floats(-9, 9)),
    "text": (str, "", st.text("aü", max_size=3)),
    "text or nothing": (str | None, None, st.none() | st.text("a", max_size=3)),
    "flag": (bool, False, st.booleans()),
    "numbers": (tuple[int, ...], (), st.lists(st.integers(0, 9), max_size=3).map(tuple)),
    "level": (Level, Level(), st.builds(Level, price=st.floats(0, 9))),
    "deep level": (DeepLevel, DeepLevel(), st.builds(DeepLevel, price=st.floats(0, 9))),
}
SHAPES = st.dictionaries(st.sampled_from("ab"), st.sampled_from(sorted(KINDS)), max_size=2)


@settings(max_examples=300)
@given(SHAPES, SHAPES, st.booleans(), st.data())
def test_what_passes_the_check_is_read_by_both(
    old: dict[str, str], new: dict[str, str], adding: bool, data: st.DataObject
) -> None:
    """Two versions at random: where no break is found each reads what the other writes."""
    shapes = (old, {**new, **old} if adding else {**old, **new})
    first, second = (
        made(("schema_version", int, version), *((n, *KINDS[k][:2]) for n, k in shape.items()))
        for version, shape in enumerate(shapes, 1)
    )
    found = find_breaks([schema_of(first, "wide", 1)], schema_of(second, "wide", 2))
    assert found == [] or not adding
    for writer, reader, shape in ((first, second, shapes[0]), (second, first, shapes[1])):
        written = writer(**{name: data.draw(KINDS[kind][2]) for name, kind in shape.items()})
        if not found:
            read = reader.read(written.to_json()).model_dump()
            told = written.model_dump()
            assert all(_agree(told[name], read[name]) for name in old)


def _agree(told: Any, read: Any) -> bool:
    """Equal, but for fields that only one of them has."""
    if isinstance(told, dict):
        return all(_agree(told[name], read[name]) for name in told.keys() & read.keys())
    return bool(told == read)


class Tree(Payload, subject="trees"):
    schema_version: int = 1
    title: str = Field("", description="what people call it", examples=["oak"])
    below: "tuple[Tree, ...]" = ()


def test_a_payload_may_hold_payloads_of_its_own_type() -> None:
    tree = Tree(title="oak", below=(Tree(title="branch"),))
    assert Tree.read(tree.to_json()) == tree
    assert list(fields_of(Tree)) == ["schema_version", "title", "below"]


def test_words_for_people_may_change() -> None:
    said = made(VERSION, ("title", str, Field("", title="Name", description="anything")))
    silent = made(VERSION, ("title", str, ""))
    assert fields_of(said) == fields_of(silent)
    assert fields_of(said)["title"] == {"type": "string", "default": ""}


def test_a_default_that_a_function_makes_is_a_default() -> None:
    class Tagged(Part):
        tags: list[str] = Field(default_factory=lambda: ["a"])

    class Retagged(Part):
        tags: list[str] = Field(default_factory=lambda: ["b"])

    old, new = (
        schema_of(made(VERSION, ("of", kind, {})), "wide", 1)
        for kind in (dict[str, Tagged], dict[str, Retagged])
    )
    (finding,) = find_breaks([old], new)
    assert (finding.field, finding.what) == ("of[].tags", "default")
