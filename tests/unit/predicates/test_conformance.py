"""CEL's public conformance data against both evaluators, one test per case."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest
from cel_expr_python import cel  # type: ignore[import-untyped]  # no py.typed in the wheel

from tape.predicates import DEFAULT_LIMITS
from tape.predicates.ast import Node, UnsupportedError, read
from tape.predicates.evaluate import Evaluation
from tape.predicates.to_python import compiled
from tape.predicates.values import (
    CelType,
    Duration,
    EvaluationError,
    Timestamp,
    Type,
    UInt,
    plain_key,
    stored_key,
)
from tape.predicates.wire import ProtoMessage
from tape.predicates.work import Work, new_work

DATA: Final = Path(__file__).parents[4] / "shared" / "cel-spec" / "conformance.json"
STEPS: Final = DEFAULT_LIMITS.steps

UNCHECKED_NAMES: Final = "names are resolved by the checker, which Tape never skips"
UNCHECKED_FUNCTION: Final = "an unknown function is refused when the predicate is registered"
QUALIFIED: Final = "fields/qualified_identifier_resolution"
UNSUPPORTED: Final = {
    "basic/variables/self_eval_unbound_lookup": UNCHECKED_NAMES,
    "basic/variables/unbound_is_runtime_error": UNCHECKED_NAMES,
    "basic/functions/unbound": UNCHECKED_FUNCTION,
    f"{QUALIFIED}/qualified_identifier_resolution_unchecked": UNCHECKED_NAMES,
    f"{QUALIFIED}/list_field_select_unsupported": UNCHECKED_NAMES,
    "namespace/namespace/self_eval_container_lookup_unchecked": UNCHECKED_NAMES,
    **{
        f"parse/receiver_function_names/{word}": UNCHECKED_FUNCTION
        for word in (
            "break", "const", "else", "for", "function", "if", "import", "loop", "package",
            "namespace", "var", "while",
        )
    },
}  # fmt: skip

Case = dict[str, Any]


def _cases() -> list[Any]:
    if not DATA.is_file():
        reason = f"the conformance data is not beside the repository ({DATA.name})"
        return [pytest.param({}, marks=pytest.mark.skip(reason=reason), id="no-data")]
    return [pytest.param(case, id=_id(case)) for case in json.loads(DATA.read_text())]


def _id(case: Case) -> str:
    return f"{case['file']}/{case['section']}/{case['name']}"


def _plain(tagged: list[Any]) -> object:  # noqa: C901  # one case per tag
    """A value of the data as our evaluators hold it."""
    match tagged:
        case ["null"]:
            return None
        case ["int", text]:
            return int(text)
        case ["uint", text]:
            return UInt(text)
        case ["double", text]:
            return float(text)
        case ["bytes", text]:
            return bytes.fromhex(text)
        case ["bool" | "string", value]:
            return value
        case ["list", items]:
            return [_plain(item) for item in items]
        case ["map", entries]:
            return {stored_key(_plain(key)): _plain(value) for key, value in entries}
        case ["ts", seconds, nanos]:
            return Timestamp(int(seconds) * 10**9 + int(nanos))
        case ["dur", seconds, nanos]:
            return Duration(int(seconds) * 10**9 + int(nanos))
        case ["type", name]:
            return CelType(name)
    raise AssertionError(tagged)


def _same(found: object, expected: object) -> bool:
    """Equal in type as well as in value; NaN equals itself here."""
    if type(found) is not type(expected):
        return False
    if isinstance(found, float) and isinstance(expected, float):
        return found == expected or (math.isnan(found) and math.isnan(expected))
    if isinstance(found, list) and isinstance(expected, list):
        pairs = zip(found, expected, strict=False)
        return len(found) == len(expected) and all(_same(a, b) for a, b in pairs)
    if isinstance(found, dict) and isinstance(expected, dict):
        return {(type(key), plain_key(key)) for key in found} == {
            (type(key), plain_key(key)) for key in expected
        } and all(_same(found[key], expected[key]) for key in found)
    return found == expected


def _declared(kind: Any) -> Any:
    match kind:
        case ["List", element]:
            return cel.Type.List(_declared(element))
        case ["Map", key, value]:
            return cel.Type.Map(_declared(key), _declared(value))
        case _:
            return getattr(cel.Type, kind)


def _our_type(kind: Any) -> Type:
    name: Type = kind[0].lower() if isinstance(kind, list) else kind.lower()
    return name


def _tree(case: Case) -> Node:
    declared = {name: _declared(kind) for name, kind in case["env"].items()}
    environment = cel.NewEnv(variables=declared, container=case["container"])
    compiled_expression = environment.compile(case["expr"], case["disable_check"])
    envelope = ProtoMessage(compiled_expression.serialize())
    names = {name: _our_type(kind) for name, kind in case["env"].items()}
    if envelope.text(1).endswith("ParsedExpr"):
        expr = envelope.message(2).blob(2)
        return read(ProtoMessage(_field(4, expr)), names)
    return read(envelope.message(2), names)


def _field(number: int, content: bytes) -> bytes:
    """A length-delimited protobuf field: puts a parsed expression where a checked one has its."""
    length, size = len(content), bytearray()
    while length > 0x7F:
        size.append(length & 0x7F | 0x80)
        length >>= 7
    size.append(length)
    return bytes([number << 3 | 2]) + bytes(size) + content


def _outcomes(case: Case) -> list[object]:
    """What the plain evaluator and the generated code make of a case; an error is its class."""
    tree = _tree(case)
    bound = {name: _plain(value) for name, value in case["bind"].items()}

    def slowly(envelope: Mapping[str, object], work: Work) -> object:
        try:
            return Evaluation(envelope, work).value(tree)
        except EvaluationError:
            return EvaluationError

    return [slowly(bound, new_work(STEPS)), compiled(tree, slowly, STEPS).evaluate(bound)]


def _passes(case: Case) -> bool:
    expected = case["expect"]
    try:
        outcomes = _outcomes(case)
    except (UnsupportedError, RuntimeError):
        return False
    if expected[0] == "error":
        return outcomes == [EvaluationError, EvaluationError]
    return all(_same(outcome, _plain(expected)) for outcome in outcomes)


@pytest.mark.parametrize("case", _cases())
def test_conformance(case: Case) -> None:
    if _id(case) in UNSUPPORTED:
        assert not _passes(case), "listed as unsupported, but it passes: take it off the list"
        pytest.skip(UNSUPPORTED[_id(case)])
    assert _passes(case), case
