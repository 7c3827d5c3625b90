"""The gate: an expression becomes a `Predicate`, or a `TextExpression`, or is refused with the
position and the reason."""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from cel_expr_python import cel  # type: ignore[import-untyped]  # no py.typed in the wheel

from tape.errors import InvalidArgument, TooLarge
from tape.predicates import regex
from tape.predicates.ast import TRUE, Constant, FunctionCall, Node, UnsupportedError, read, walk
from tape.predicates.predicate import DEFAULT_LIMITS, Predicate, PredicateLimits
from tape.predicates.text_expression import TextExpression
from tape.predicates.values import EvaluationError, Type
from tape.predicates.wire import ProtoMessage

ENVELOPE: Final[dict[str, Type]] = {
    "global_seq": "int",
    "run_id": "string",
    "seq": "int",
    "kind": "string",
    "subject": "string",
    "ts_ms": "int",
    "schema_version": "int",
    "payload": "dyn",
    "trace_id": "string",
    "event_id": "string",
    "event_type": "string",
    "entity_type": "string",
    "entity_id": "string",
    "caused_by": "string",
    "source": "string",
    "idempotency_key": "string",
    "prev_value_json": "string",
}
"""The names a predicate may use. `prev_value_json` is set for entries of kind `value` only; what
an event alone has is "" for others."""

_CEL_TYPES: Final = {"int": cel.Type.INT, "string": cel.Type.STRING, "dyn": cel.Type.DYN}
_ENVIRONMENT: Final = cel.NewEnv(
    variables={name: _CEL_TYPES[kind] for name, kind in ENVELOPE.items()}
)

_TOKEN: Final = re.compile(
    r"""
      (?:[rR][bB]?|[bB][rR])(?:'''.*?'''|\"\"\".*?\"\"\"|'[^'\n]*'|"[^"\n]*")
    | [A-Za-z_][A-Za-z0-9_]*
    | '''(?:[^\\]|\\.)*?''' | \"\"\"(?:[^\\]|\\.)*?\"\"\"
    | '(?:[^'\\\n]|\\.)*' | "(?:[^"\\\n]|\\.)*"
    | //[^\n]*
    | (?P<open>[(\[{]) | (?P<close>[)\]}])
    | .
    """,
    re.VERBOSE | re.DOTALL,
)
_COMPLAINT: Final = re.compile(r"ERROR: <input>:(-?\d+):(-?\d+): (.*)")


def check(
    expression: str,
    *,
    field: str = "predicate_cel",
    limits: PredicateLimits = DEFAULT_LIMITS,
) -> Predicate:
    """The predicate of a CEL expression over the envelope; blank is always true."""
    _refuse_oversized(expression, field, limits)
    if not expression.strip():
        return Predicate.of(expression, TRUE, limits)
    checked = _compiled(expression, field, _ENVIRONMENT)
    result = checked.return_type().name()
    if result not in ("BOOL", "DYN"):
        raise InvalidArgument(
            f"a predicate must be bool, this is {result.lower()}", field=field, position=0
        )
    return Predicate.of(expression, _tree(checked, field, ENVELOPE), limits)


def check_text(
    expression: str, names: tuple[str, ...], *, field: str, limits: PredicateLimits = DEFAULT_LIMITS
) -> TextExpression:
    """The text that a CEL expression makes of those names, each of which may be any JSON."""
    _refuse_oversized(expression, field, limits)
    checked = _compiled(expression, field, _environment(names))
    result = checked.return_type().name()
    if result.partition("<")[0] in ("LIST", "MAP", "NULL", "TYPE"):
        raise InvalidArgument(
            f"must be a text, or what has one, this is {result.lower()}", field=field, position=0
        )
    return TextExpression.of(expression, _tree(checked, field, dict.fromkeys(names, "dyn")), limits)


@lru_cache(8)
def _environment(names: tuple[str, ...]) -> Any:
    return cel.NewEnv(variables=dict.fromkeys(names, cel.Type.DYN))


def _compiled(expression: str, field: str, environment: Any) -> Any:
    try:
        return environment.compile(expression)
    except RuntimeError as error:
        raise _complaint(expression, field, str(error)) from error


def _tree(checked: Any, field: str, names: Mapping[str, Type]) -> Node:
    try:
        tree = read(ProtoMessage(checked.serialize()).message(2), names)
        _refuse_bad_regex(tree)
    except UnsupportedError as error:
        raise InvalidArgument(str(error), field=field, position=error.position) from error
    return tree


def _refuse_oversized(expression: str, field: str, limits: PredicateLimits) -> None:
    try:
        length = len(expression.encode())
    except UnicodeEncodeError as error:
        raise InvalidArgument("not valid Unicode", field=field, position=error.start) from error
    if length > limits.length:
        raise TooLarge(f"{length} bytes, the limit is {limits.length}", field=field)
    if "\x00" in expression:
        raise InvalidArgument("NUL is not allowed", field=field, position=expression.index("\x00"))
    depth = 0
    for token in _TOKEN.finditer(expression):
        depth += bool(token["open"]) - bool(token["close"])
        if depth > limits.nesting:
            raise InvalidArgument(
                f"brackets nest deeper than {limits.nesting}", field=field, position=token.start()
            )


def _complaint(expression: str, field: str, report: str) -> InvalidArgument:
    """The checker's first complaint, its line and column as an offset in characters."""
    found = _COMPLAINT.search(report)
    if found is None or int(found[1]) < 1:
        reason = "nests too deeply" if "recursion" in report else report
        return InvalidArgument(reason, field=field, position=0)
    lines = expression.split("\n")[: int(found[1]) - 1]
    position = sum(len(line) + 1 for line in lines) + int(found[2]) - 1
    return InvalidArgument(_plain_complaint(found[3]), field=field, position=position)


def _plain_complaint(complaint: str) -> str:
    """Without what only the parser's author could use: token lists and the name of the end."""
    words = complaint.removesuffix(" (in container '')").partition(" expecting {")[0]
    words = words.replace("mismatched input '<EOF>'", "the expression ends too early")
    return words.replace("'<EOF>'", "the end")


def _refuse_bad_regex(tree: Node) -> None:
    for node in walk(tree):
        match node:
            case FunctionCall("matches", (_, Constant(value=str() as pattern))):
                try:
                    regex.compiled(pattern)
                except EvaluationError as error:
                    raise UnsupportedError(str(error), node.position) from error
