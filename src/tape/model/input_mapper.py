"""What an event becomes as the input of an app: a recipe for each name, checked when registered.

| recipe | gives |
|---|---|
| `$.payload`, `$.payload.price.amount`, `$.payload.lines[0]["unit price"]` | all or part of it |
| `$.entity_id`, `$.event_type`, `$.occurred_at_ms`, … | a field of the event |
| `literal:foo` | the text `foo` |

Without recipes the input is the whole event: its fields, and its payload as `payload`. Numbers are
handed on as they were written, however long they are. A path that an event does not have is a
fault, and not null.
"""

import json
import re
from typing import Any, NamedTuple

import orjson

from tape.errors import InvalidArgument, TooLarge
from tape.model.entry import Entry
from tape.model.json_text import check_json
from tape.settings import Limits

FIELD = "input_mapper"
LITERAL = "literal:"
FIELDS = (
    "event_id", "event_type", "entity_type", "entity_id", "caused_by", "source", "occurred_at_ms",
    "ts_ms", "global_seq", "subject", "schema_version", "run_id", "seq", "trace_id", "span_id",
    "parent_span_id", "idempotency_key",
)  # fmt: skip
MOST_RECIPES = 256

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_INDEX = re.compile(r"\[(0|[1-9][0-9]{0,8})\]")
_QUOTED = re.compile(r'\["((?:[^"\\]|\\.)*)"\]')

Step = str | int


class Recipe(NamedTuple):
    """Where one name of the input comes from: a literal, a field, or steps into the payload."""

    key: str
    text: str
    literal: str | None = None
    field: str = ""
    steps: tuple[Step, ...] = ()


class Mapper(NamedTuple):
    recipes: tuple[Recipe, ...]

    def apply(self, entry: Entry) -> str:
        """The input as JSON text; InvalidArgument if the event lacks what a recipe asks for."""
        if not self.recipes:
            return _dumped(whole_event(entry))
        payload: Any = None
        if any(recipe.steps for recipe in self.recipes):
            payload = _parsed(entry)
        return _dumped({recipe.key: _given(recipe, entry, payload) for recipe in self.recipes})


def whole_event(entry: Entry) -> dict[str, object]:
    """Every field of an event by its name, and its payload."""
    whole: dict[str, object] = {name: getattr(entry, name) for name in FIELDS}
    whole["payload"] = orjson.Fragment(entry.payload_json)
    return whole


def parse_mapper(text: str, limits: Limits) -> Mapper:
    """Refuse what no event could be mapped by, with the key and the position of the fault."""
    if not text:
        return Mapper(())
    check_json(text, limits, field=FIELD)
    recipes = orjson.loads(text)
    if not isinstance(recipes, dict):
        raise InvalidArgument(
            'must be a JSON object of names and recipes, like {"price": "$.payload.price"}',
            field=FIELD,
        )
    if len(recipes) > MOST_RECIPES:
        raise TooLarge(f"{len(recipes)} recipes, the limit is {MOST_RECIPES}", field=FIELD)
    return Mapper(tuple(_recipe(key, recipe) for key, recipe in recipes.items()))


def _recipe(key: str, text: object) -> Recipe:
    field = f"{FIELD}.{key}"
    if not isinstance(text, str):
        raise InvalidArgument(
            f"a recipe is a text, like $.payload.price or literal:EUR, not {text!r}", field=field
        )
    if text.startswith(LITERAL):
        return Recipe(key, text, literal=text.removeprefix(LITERAL))
    if not text.startswith("$."):
        raise InvalidArgument(
            f"{text!r} begins neither with $. nor with {LITERAL}", field=field, position=0
        )
    root = _NAME.match(text, 2)
    if root is None:
        raise InvalidArgument("a name is missing after $.", field=field, position=2)
    name, at = root.group(), root.end()
    if name == "payload":
        return Recipe(key, text, steps=("payload", *_steps(text, at, field)))
    if name not in FIELDS:
        known = ", ".join(("payload", *FIELDS))
        raise InvalidArgument(f"an event has no {name!r}, but {known}", field=field, position=2)
    if at != len(text):
        raise InvalidArgument(f"{name} has no parts", field=field, position=at)
    return Recipe(key, text, field=name)


def _steps(text: str, at: int, field: str) -> list[Step]:
    steps: list[Step] = []
    while at < len(text):
        found: re.Match[str] | None
        if text[at] == "." and (found := _NAME.match(text, at + 1)):
            steps.append(found.group())
        elif found := _INDEX.match(text, at):
            steps.append(int(found.group(1)))
        elif (found := _QUOTED.match(text, at)) and (name := _unquoted(found.group(1))) is not None:
            steps.append(name)
        else:
            raise InvalidArgument(
                'a path goes on with .name, [0] or ["name"]', field=field, position=at
            )
        at = found.end()
    return steps


def _unquoted(text: str) -> str | None:
    try:
        return str(orjson.loads(f'"{text}"'))
    except orjson.JSONDecodeError:
        return None


def _given(recipe: Recipe, entry: Entry, payload: Any) -> object:
    if recipe.literal is not None:
        return recipe.literal
    if recipe.field:
        return getattr(entry, recipe.field)
    found = payload
    for step in recipe.steps[1:]:
        if isinstance(step, str):
            there = isinstance(found, dict) and step in found
        else:
            there = isinstance(found, list) and step < len(found)
        if not there:
            raise InvalidArgument(
                f"event {entry.event_id!r} has nothing at {recipe.text}: there is no {step!r}",
                field=f"{FIELD}.{recipe.key}",
            )
        found = found[step]
    return found


def _parsed(entry: Entry) -> Any:
    """The payload with its numbers as they are written."""
    try:
        return json.loads(
            entry.payload_json, parse_int=orjson.Fragment, parse_float=orjson.Fragment
        )
    except (ValueError, RecursionError) as error:
        raise InvalidArgument(
            f"the payload of event {entry.event_id!r} cannot be read: {error}", field=FIELD
        ) from None


def _dumped(value: object) -> str:
    return orjson.dumps(value).decode()
