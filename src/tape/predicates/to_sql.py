"""The expression as a SQL condition, where SQL decides it exactly as CEL does.

CEL's true, false and error are SQL's TRUE, FALSE and NULL, for which AND, OR and NOT have the very
truth tables that CEL demands. What cannot be said exactly is not said: `exact` gives None.

A prefilter only has to be safe, so it is made of bounds: where `upper` is FALSE the expression is
false, where `lower` is TRUE it is true. `&&` then may drop operands from its upper bound, and a
number in a payload may be compared with a margin for how engines round.
"""

from dataclasses import dataclass
from typing import Final, Literal

from tape.predicates.ast import (
    Conditional,
    Constant,
    FunctionCall,
    Has,
    ListOf,
    Logic,
    Name,
    Node,
    Select,
    children,
)
from tape.predicates.sql import (
    FALSE,
    TRUE,
    UNKNOWN,
    Dialect,
    Key,
    Ordering,
    Path,
    Sql,
    SqlCondition,
    joined,
    sql,
)
from tape.predicates.sql_json import DOCUMENT, comparable
from tape.predicates.sql_postgres import Postgres
from tape.predicates.sql_sqlite import Sqlite

DialectName = Literal["sqlite", "postgres"]
_DIALECTS: Final[dict[DialectName, Dialect]] = {"sqlite": Sqlite(), "postgres": Postgres()}

_COLUMNS: Final = {
    "global_seq": "global_seq",
    "run_id": "COALESCE(run_id, '')",
    "seq": "COALESCE(seq, 0)",
    "kind": "kind",
    "subject": "subject",
    "ts_ms": "ts_ms",
    "schema_version": "schema_version",
    "trace_id": "trace_id",
    "event_id": "event_id",
    "event_type": "event_type",
    "entity_type": "entity_type",
    "entity_id": "entity_id",
    "caused_by": "caused_by",
    "source": "source",
    "idempotency_key": "COALESCE(idempotency_key, '')",
}
_ORDERINGS: Final[dict[str, Ordering]] = {"_<_": "<", "_<=_": "<=", "_>_": ">", "_>=_": ">="}
_MIRRORED: Final[dict[Ordering, Ordering]] = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_LARGEST_INDEX: Final = 2**31 - 1
MOST_READINGS: Final = 8
"""How often a prefilter may have the payload of an entry read: the store does it anew each time."""

Side = Literal["upper", "lower"]


def exact(tree: Node, dialect: DialectName) -> SqlCondition | None:
    """TRUE, FALSE or NULL exactly where CEL has true, false or an error."""
    translator = _SqlTranslator(_DIALECTS[dialect])
    return translator.finished(tree, translator.exact(tree))


def prefilter(tree: Node, dialect: DialectName) -> SqlCondition | None:
    """FALSE only where CEL has false; None where the store would take longer for it than Python."""
    translator = _SqlTranslator(_DIALECTS[dialect])
    condition = translator.finished(tree, translator.bound(tree, "upper"))
    if condition is None or condition.text.count(DOCUMENT) > MOST_READINGS:
        return None
    return condition


@dataclass(frozen=True, slots=True)
class _SqlTranslator:
    dialect: Dialect

    def finished(self, tree: Node, found: Sql | None) -> SqlCondition | None:
        if found is None or _nesting(tree) > self.dialect.deepest:
            return None
        return found.condition(self.dialect.numbered)

    def exact(self, node: Node) -> Sql | None:  # noqa: PLR0911  # one return per kind
        match node:
            case Constant(value=bool() as value):
                return TRUE if value else FALSE
            case Logic():
                return _all_or_none(node, [self.exact(operand) for operand in node.operands])
            case Conditional():
                return self._conditional(node, self.exact(node.then), self.exact(node.otherwise))
            case Has():
                path = _path(node.operand)
                if path is None or not comparable(node.field):
                    return None
                return self.dialect.has(path, node.field)
            case Select() | FunctionCall(function="_[_]"):
                path = _path(node)
                return self.dialect.is_true(path) if path else None
            case FunctionCall():
                return self._call(node)
            case _:
                return None

    def bound(self, node: Node, side: Side) -> Sql | None:  # noqa: PLR0911  # one return per kind
        found = self.exact(node)
        if found is not None:
            return found
        match node:
            case Logic():
                return self._logic_bound(node, side)
            case Conditional():
                then, otherwise = self.bound(node.then, side), self.bound(node.otherwise, side)
                if then is None and otherwise is None:
                    return None
                return self._conditional(node, then or UNKNOWN, otherwise or UNKNOWN)
            case FunctionCall("!_", (operand,)):
                found = self.bound(operand, "lower" if side == "upper" else "upper")
                return found and sql("NOT ({})", found)
            case FunctionCall("_==_", (left, right)):
                return self._near(left, right) if side == "upper" else None
            case FunctionCall("_!=_", (left, right)):
                found = self._near(left, right) if side == "lower" else None
                return found and sql("NOT ({})", found)
            case FunctionCall("_<_" | "_<=_" | "_>_" | "_>=_", (left, right)):
                return self._beyond(_ORDERINGS[node.function], left, right, side)
            case _:
                return None

    def _logic_bound(self, node: Logic, side: Side) -> Sql | None:
        bounds = [self.bound(operand, side) for operand in node.operands]
        if (node.operator == "and") == (side == "upper"):
            known = [found for found in bounds if found is not None]
            return _logic(node, known) if known else None
        return _all_or_none(node, bounds)

    def _conditional(
        self, node: Conditional, then: Sql | None, otherwise: Sql | None
    ) -> Sql | None:
        condition = self.exact(node.condition)
        if condition is None or then is None or otherwise is None:
            return None
        case = "CASE {} WHEN TRUE THEN {} WHEN FALSE THEN {} END"
        return sql(case, sql("({})", condition), sql("({})", then), sql("({})", otherwise))

    def _call(self, node: FunctionCall) -> Sql | None:
        match node.function, node.arguments:
            case "!_", (operand,):
                found = self.exact(operand)
                return found and sql("NOT ({})", found)
            case "_==_", (left, right):
                return self._equal(left, right)
            case "_!=_", (left, right):
                found = self._equal(left, right)
                return found and sql("NOT ({})", found)
            case "_<_" | "_<=_" | "_>_" | "_>=_", (left, right):
                return self._ordered(_ORDERINGS[node.function], left, right)
            case "@in", (value, ListOf(elements=elements)):
                return self._one_of(value, elements)
            case _:
                return self._text_test(node)

    def _equal(self, left: Node, right: Node) -> Sql | None:
        for one, other in ((left, right), (right, left)):
            path = _path(one)
            if path and isinstance(other, Constant):
                return self._payload_equal(path, other.value)
        if left.type == right.type == "bool":
            pair = self.exact(left), self.exact(right)
        elif left.type == right.type:
            pair = self._scalar(left), self._scalar(right)
        else:
            return None
        return _pair("({}) = ({})", *pair)

    def _payload_equal(self, path: Path, value: object) -> Sql | None:
        match value:
            case None:
                return self.dialect.is_null(path)
            case bool():
                return self.dialect.is_bool(path, value)
            case str() if comparable(value):
                return self.dialect.is_string(path, (value,))
            case _:
                return None

    def _ordered(self, ordering: Ordering, left: Node, right: Node) -> Sql | None:
        if left.type != right.type:
            return None
        a, b = self._scalar(left), self._scalar(right)
        if a is None or b is None:
            return None
        if left.type == "string":
            a, b = self.dialect.by_code_point(a), self.dialect.by_code_point(b)
        return sql(f"{{}} {ordering} {{}}", a, b)

    def _one_of(self, value: Node, elements: tuple[Node, ...]) -> Sql | None:
        if not elements or {element.type for element in elements} - {"string", "int"}:
            return None
        path = _path(value)
        if path:
            texts = [e.value for e in elements if isinstance(e, Constant)]
            strings = tuple(t for t in texts if isinstance(t, str) and comparable(t))
            return self.dialect.is_string(path, strings) if len(strings) == len(elements) else None
        if any(element.type != value.type for element in elements):
            return None
        scalar, listed = self._scalar(value), [self._scalar(element) for element in elements]
        known = [found for found in listed if found is not None]
        if scalar is None or len(known) < len(listed):
            return None
        return sql("{} IN ({})", scalar, joined(", ", known))

    def _text_test(self, node: FunctionCall) -> Sql | None:
        match node.arguments:
            case (text, Constant(value=str() as part)) if (
                text.type == "string" and "\0" not in part
            ):
                scalar = self._scalar(text)
            case _:
                return None
        if scalar is None:
            return None
        match node.function:
            case "startsWith":
                return self.dialect.starts_with(scalar, part)
            case "endsWith":
                return self.dialect.ends_with(scalar, part)
            case "contains":
                return self.dialect.contains(scalar, part)
            case _:
                return None

    def _scalar(self, node: Node) -> Sql | None:
        """A number or a text that is never an error."""
        match node:
            case Constant(value=str() as text) if "\0" not in text:
                return self.dialect.text(text)
            case Constant(value=int() as number, type="int"):
                return self.dialect.integer(number)
            case Name(name=name) if name in _COLUMNS:
                return Sql(_COLUMNS[name])
            case FunctionCall("size", (operand,)) if operand.type == "string":
                measured = self._scalar(operand)
                return measured and self.dialect.length(measured)
            case _:
                return None

    def _near(self, left: Node, right: Node) -> Sql | None:
        """FALSE where a payload number is certainly not the constant it is compared with."""
        for one, other in ((left, right), (right, left)):
            path, number = _path(one), _number(other)
            if path and number is not None:
                margin = _margin(number)
                return self.dialect.is_near(path, number - margin, number + margin)
        return None

    def _beyond(self, ordering: Ordering, left: Node, right: Node, side: Side) -> Sql | None:
        path, number = _path(left), _number(right)
        if path is None:
            path, number, ordering = _path(right), _number(left), _MIRRORED[ordering]
        if not path or number is None:
            return None
        generous = (ordering in (">", ">=")) == (side == "upper")
        bound = number - _margin(number) if generous else number + _margin(number)
        return self.dialect.is_beyond(path, ordering, bound)


def _path(node: Node) -> Path | None:
    """The keys that lead from the payload to a value, () for the payload itself."""
    match node:
        case Name("payload"):
            return ()
        case Select(operand, field):
            return _extended(_path(operand), field)
        case FunctionCall(
            "_[_]", (operand, Constant(value=str() | int() as key, type="string" | "int"))
        ):
            return _extended(_path(operand), key)
        case _:
            return None


def _extended(path: Path | None, key: Key) -> Path | None:
    usable = comparable(key) if isinstance(key, str) else 0 <= key <= _LARGEST_INDEX
    return None if path is None or not usable else (*path, key)


def _nesting(node: Node) -> int:
    """Symbols that a parser of SQL stacks up before it reaches the innermost comparison."""
    match node:
        case Logic():
            own = 3
        case Conditional():
            own = 7
        case FunctionCall("!_" | "_==_" | "_!=_"):
            own = 3
        case _:
            return 0
    return own + max(map(_nesting, children(node)))


def _number(node: Node) -> float | None:
    match node:
        case Constant(value=int() | float() as value) if not isinstance(value, bool):
            return float(value) if abs(value) < 1e300 else None
        case _:
            return None


def _margin(number: float) -> float:
    """Wider than any engine's rounding of a decimal text, and of CEL's int to double."""
    return abs(number) * 1e-12 + 1e-300


def _pair(template: str, left: Sql | None, right: Sql | None) -> Sql | None:
    return None if left is None or right is None else sql(template, left, right)


def _all_or_none(node: Logic, parts: list[Sql | None]) -> Sql | None:
    known = [part for part in parts if part is not None]
    return _logic(node, known) if len(known) == len(parts) else None


def _logic(node: Logic, parts: list[Sql]) -> Sql:
    return joined(f" {node.operator.upper()} ", [sql("({})", part) for part in parts])
