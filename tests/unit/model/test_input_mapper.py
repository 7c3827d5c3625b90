"""Recipes: what they give, and what is refused when they are registered or applied."""

import re
from typing import Any

import orjson
import pytest

from tape.errors import InvalidArgument, TooLarge
from tape.model.entry import Entry
from tape.model.input_mapper import FIELDS, MOST_RECIPES, parse_mapper
from tape.settings import Limits

LIMITS = Limits()
PAYLOAD = '{"price":{"amount":1.10},"lines":[{"sku":"a"},{"sku":"b"}],"a b":{"\\"":1},"n":null}'


def event(payload_json: str = PAYLOAD) -> Entry:
    return Entry(
        7, "", 0, "event", "/tape/event/recorded/price.changed/sku/1", payload_json, 3, "t", "s",
        "p", 5, "01M", "price.changed", "sku", "1", "before", "shop", 4, "key",
    )  # fmt: skip


def mapped(entry: Entry, **recipes: Any) -> str:
    return parse_mapper(orjson.dumps(recipes).decode(), LIMITS).apply(entry)


@pytest.mark.parametrize(
    ("recipe", "expected"),
    [
        ("$.payload.price.amount", "1.10"),
        ("$.payload.price", '{"amount":1.10}'),
        ("$.payload.lines[1].sku", '"b"'),
        ("$.payload.lines[0]", '{"sku":"a"}'),
        ('$.payload["a b"]["\\""]', "1"),
        ("$.payload.n", "null"),
        ("$.entity_id", '"1"'),
        ("$.event_type", '"price.changed"'),
        ("$.occurred_at_ms", "4"),
        ("$.caused_by", '"before"'),
        ("literal:foo", '"foo"'),
        ("literal:", '""'),
        ("literal:$.payload", '"$.payload"'),
    ],
)
def test_a_recipe_gives(recipe: str, expected: str) -> None:
    assert mapped(event(), x=recipe) == f'{{"x":{expected}}}'


def test_numbers_are_handed_on_as_they_were_written() -> None:
    long = "123456789012345678901234567890"
    assert mapped(event(f'{{"n":{long}}}'), n="$.payload.n") == f'{{"n":{long}}}'
    assert mapped(event(f"[{long},1.50]"), all="$.payload") == f'{{"all":[{long},1.50]}}'


def test_without_recipes_it_is_the_whole_event() -> None:
    for text in ("", "{}"):
        whole = orjson.loads(parse_mapper(text, LIMITS).apply(event()))
        assert set(whole) == {*FIELDS, "payload"}
        assert whole["payload"]["lines"][1] == {"sku": "b"}
        assert (whole["event_id"], whole["source"], whole["global_seq"]) == ("01M", "shop", 7)


@pytest.mark.parametrize(
    "recipe",
    ["$.payload.cost", "$.payload.price.amount.x", "$.payload.lines[2]", "$.payload.lines.sku",
     "$.payload.price[0]", "$.payload.n.x", '$.payload["lines"]["0"]'],
)  # fmt: skip
def test_a_path_that_leads_nowhere_is_a_fault(recipe: str) -> None:
    with pytest.raises(InvalidArgument, match=re.escape(f"nothing at {recipe}")) as fault:
        mapped(event(), amount=recipe)
    assert fault.value.field == "input_mapper.amount"


@pytest.mark.parametrize(
    ("recipe", "position", "reason"),
    [
        ("payload.x", 0, "neither with $. nor with literal:"),
        ("$", 0, "neither with $."),
        ("", 0, "neither with $."),
        ("$.", 2, "a name is missing"),
        ("$.[0]", 2, "a name is missing"),
        ("$.colour", 2, "an event has no 'colour'"),
        ("$.entity_id.x", 11, "entity_id has no parts"),
        ("$.payload.", 9, "a path goes on with"),
        ("$.payload..x", 9, "a path goes on with"),
        ("$.payload.a b", 11, "a path goes on with"),
        ("$.payload[x]", 9, "a path goes on with"),
        ("$.payload[-1]", 9, "a path goes on with"),
        ("$.payload[*]", 9, "a path goes on with"),
        ('$.payload["a]', 9, "a path goes on with"),
        ("$.payload.a[0]b", 14, "a path goes on with"),
    ],
)
def test_what_is_no_recipe_is_refused_with_key_and_position(
    recipe: str, position: int, reason: str
) -> None:
    with pytest.raises(InvalidArgument, match=re.escape(reason)) as fault:
        mapped(event(), amount=recipe)
    assert (fault.value.field, fault.value.position) == ("input_mapper.amount", position)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "not valid JSON"),
        ("[]", "must be a JSON object"),
        ('"$.payload"', "must be a JSON object"),
        ("null", "must be a JSON object"),
        ('{"a": 1}', "a recipe is a text"),
        ('{"a": {"b": "$.payload"}}', "a recipe is a text"),
    ],
)
def test_what_is_no_object_of_recipes_is_refused(text: str, reason: str) -> None:
    with pytest.raises(InvalidArgument, match=reason):
        parse_mapper(text, LIMITS)


def test_there_are_only_so_many_recipes() -> None:
    with pytest.raises(TooLarge):
        mapped(event(), **{f"k{n}": "literal:x" for n in range(MOST_RECIPES + 1)})
