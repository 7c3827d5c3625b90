"""CEL's public conformance data: Spark decides each case as the Python engine does.

What a case binds becomes part of one payload, each case under its own key, and so all cases are
columns over one row.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import orjson
import pytest
from pyspark.sql import SparkSession

from tape.predicates import DEFAULT_LIMITS, Predicate
from tape.predicates.ast import (
    Conditional,
    FunctionCall,
    Has,
    ListOf,
    Logic,
    Loop,
    MapOf,
    Name,
    Node,
    Select,
    UnsupportedError,
)
from tests.pipeline.predicates.deciding import by_python, by_spark, frame
from tests.pipeline.predicates.generated import an_entry
from tests.unit.predicates.test_conformance import DATA, UNSUPPORTED, _id, _tree


class NoJsonError(Exception):
    """A binding that no payload can hold."""


def as_json(tagged: list[Any]) -> object:
    match tagged:
        case ["null"]:
            return None
        case ["int", text]:
            return int(text)
        case ["double", text] if text not in ("NaN", "Infinity", "-Infinity"):
            return float(text)
        case ["bool" | "string", value]:
            return value
        case ["list", items]:
            return [as_json(item) for item in items]
        case ["map", entries] if all(key[0] == "string" for key, _ in entries):
            return {key[1]: as_json(value) for key, value in entries}
    raise NoJsonError(tagged)


def within_payload(node: Node, key: str) -> Node:
    """The tree with each name as a field of the payload's member `key`."""

    def moved(part: Node) -> Any:
        return within_payload(part, key)

    match node:
        case Name():
            return Select(Select(Name("payload", "dyn"), key), node.name)
        case Select() | Has():
            return replace(node, operand=moved(node.operand))
        case FunctionCall():
            return replace(node, arguments=tuple(map(moved, node.arguments)))
        case Logic():
            return replace(node, operands=tuple(map(moved, node.operands)))
        case Conditional():
            parts = (moved(node.condition), moved(node.then), moved(node.otherwise))
            return Conditional(*parts, node.type)
        case ListOf():
            return ListOf(tuple(map(moved, node.elements)))
        case MapOf():
            return MapOf(tuple((moved(name), moved(value)) for name, value in node.entries))
        case Loop():
            over, test, result = moved(node.over), moved(node.predicate), moved(node.result)
            return replace(node, over=over, predicate=test, result=result)
        case _:
            return node


def predicate_of(case: Mapping[str, Any], number: int) -> Predicate:
    """A case that is no bool is asked whether it equals itself: that is an error where it is."""
    tree = within_payload(_tree(dict(case)), f"case{number}")
    if case["expect"][0] != "bool" and tree.type != "bool":
        tree = FunctionCall("_==_", (ListOf((tree,)), ListOf((tree,))), "bool")
    return Predicate.of(case["expr"], tree, DEFAULT_LIMITS)


def test_corpus(spark: SparkSession) -> None:
    if not DATA.is_file():
        pytest.skip(f"the conformance data is not beside the repository ({DATA.name})")
    payload: dict[str, object] = {}
    predicates, names = [], []
    left_out = 0
    for number, case in enumerate(orjson.loads(DATA.read_bytes())):
        if _id(case) in UNSUPPORTED:
            continue
        try:
            bound = {name: as_json(value) for name, value in case["bind"].items()}
            predicates.append(predicate_of(case, number))
        except (NoJsonError, UnsupportedError, RuntimeError):
            left_out += 1
            continue
        payload[f"case{number}"] = bound
        names.append(_id(case))
    entries = [an_entry(1, orjson.dumps(payload).decode())]
    found = by_spark(frame(spark, entries), predicates, at_once=320)
    for name, predicate, verdicts in zip(names, predicates, found.verdicts, strict=True):
        assert verdicts == by_python(predicate, entries), name
    print(f"{len(names)} cases, {left_out} with bindings that no payload holds: {found.engines}")
    assert left_out < len(names) / 4
