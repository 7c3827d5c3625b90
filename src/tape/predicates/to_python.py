"""The expression as one Python expression, compiled once.

The generated code is right whenever it returns. It raises, whatever it likes, where CEL has an
error: its caller then evaluates the tree plainly. That is sound because CEL has no side effects,
and it lets `&&` be Python's `and`.

What can take long is left to functions that charge the work `m` for it. Written out in place is
only what takes no longer than a short text: a constant, or a column other than the payload. The
exception is the equality of two long texts, which is so quick that the first few are free.

Only `repr()` of constants, numbered variables and the names in `_HELPERS` are ever written into
source. Where Python would mix up types that CEL keeps apart, and the types are not known before,
the code asks for the exact type and leaves the uncommon case to a function.
"""

from collections.abc import Callable, Mapping
from itertools import count
from typing import Final, Generic, NamedTuple, TypeVar, assert_never

from tape.predicates import regex
from tape.predicates.ast import (
    Conditional,
    Constant,
    FunctionCall,
    Has,
    ListOf,
    Local,
    Logic,
    Loop,
    MapOf,
    Name,
    Node,
    Select,
    children,
)
from tape.predicates.conversions import int64, quick_double
from tape.predicates.evaluate import add_entry
from tape.predicates.functions import (
    EXACT,
    FUNCTIONS,
    METERED,
    at,
    boolean,
    has_field,
    searched,
    select,
)
from tape.predicates.values import CelType, Type, UInt, items, settled
from tape.predicates.work import CALL, NODE, SHORT, Work, new_work

Result = TypeVar("Result")

_FREE_COMPARISONS: Final = 8
_BOUNDED: Final = f"{new_work(10)!r}"
"""For the uncommon case of a call that a constant bounds: to make the real one takes time."""
_ORDERINGS: Final = {"_<_": "<", "_<=_": "<=", "_>_": ">", "_>=_": ">="}


def _map_of(*entries: tuple[object, object]) -> dict[object, object]:
    built: dict[object, object] = {}
    for key, value in entries:
        add_entry(built, key, value)
    return built


_NUMBERED: Final = {name: f"f{number}" for number, name in enumerate(FUNCTIONS)}
_HELPERS: Final[dict[str, object]] = {
    "at": at,
    "boolean": boolean,
    "has_field": has_field,
    "int64": int64,
    "items": items,
    "map_of": _map_of,
    "quick_double": quick_double,
    "searched": searched,
    "select": select,
    "settled": settled,
    "UInt": UInt,
    "CelType": CelType,
    "nan": float("nan"),
    "inf": float("inf"),
    **{code: FUNCTIONS[name] for name, code in _NUMBERED.items()},
}


class Generated(NamedTuple, Generic[Result]):
    """`charges` tells whether there is anything in it that can take long."""

    evaluate: Callable[[Mapping[str, object]], Result]
    charges: bool


def compiled(
    node: Node, slowly: Callable[[Mapping[str, object], Work], Result], steps: int
) -> Generated[Result]:
    """A function from envelope to value that calls `slowly` where the fast code gives up, with the
    work that is left."""
    generator = _Generator()
    expression = generator.code(node)
    budget = f"[{new_work(steps)[0]!r}]"
    first, left = (f"m = {budget}", "m") if generator.charges else ("pass", budget)
    source = (
        "def evaluate(e):\n"
        f" {first}\n"
        " try:\n"
        f"  return {expression}\n"
        " except Exception:\n"
        f"  return slowly(e, {left})\n"
    )
    scope = {**_HELPERS, **generator.constants, "slowly": slowly}
    exec(compile(source, "<predicate>", "exec"), scope)  # noqa: S102  # see the module's rule
    evaluate: Callable[[Mapping[str, object]], Result] = scope["evaluate"]  # type: ignore[assignment]  # defined by the source
    return Generated(evaluate, generator.charges)


def cost(node: Node) -> int:
    """One turn through a part of an expression, without what its functions charge themselves and
    without the turns of the macros in it."""
    own = CALL if isinstance(node, FunctionCall | MapOf | Loop | Has) else NODE
    inner = (node.over,) if isinstance(node, Loop) else children(node)
    return own + sum(map(cost, inner))


def is_short(node: Node) -> bool:
    """Whether a text is short whatever the entry: made of constants and columns alone."""
    match node:
        case Constant():
            return True
        case Name():
            return node.type != "dyn" and node.name != "prev_value_json"
        case FunctionCall(function="_+_") | Conditional():
            return all(map(is_short, children(node)))
        case _:
            return False


class _Generator:
    def __init__(self) -> None:
        self.constants: dict[str, object] = {}
        self._temporaries = count()
        self._in_loop = False
        self._compared = 0
        self.charges = False

    def code(self, node: Node) -> str:  # noqa: C901, PLR0911  # one case per kind
        match node:
            case Constant():
                return _literal(node.value)
            case Name():
                return f"e[{node.name!r}]"
            case Local():
                return f"v{node.number}"
            case Select():
                return self._select(node.operand, node.field)
            case Has():
                return self._has(node)
            case FunctionCall():
                return self._call(node)
            case Logic():
                return "(" + f" {node.operator} ".join(map(self._bool, node.operands)) + ")"
            case Conditional():
                condition = self._bool(node.condition)
                return f"({self.code(node.then)} if {condition} else {self.code(node.otherwise)})"
            case ListOf():
                return "[" + ", ".join(map(self._value, node.elements)) + "]"
            case MapOf():
                entries = (f"({self._value(key)}, {self._value(to)})" for key, to in node.entries)
                return f"map_of({', '.join(entries)})"
            case Loop():
                return self._loop(node)
            case _:
                assert_never(node)

    def _value(self, node: Node) -> str:
        """As `code`, with the integers of JSON that are doubles to CEL made so."""
        return f"settled({self.code(node)})" if node.type == "dyn" else self.code(node)

    def _bool(self, node: Node) -> str:
        return self.code(node) if node.type == "bool" else f"boolean({self.code(node)})"

    def _select(self, operand: Node, field: str) -> str:
        """Of JSON, a subscript: it raises for all that is not an object with that key."""
        if operand.type == "dyn":
            return f"{self.code(operand)}[{field!r}]"
        return f"select({self.code(operand)}, {field!r})"

    def _has(self, node: Has) -> str:
        operand, field = self.code(node.operand), repr(node.field)
        if self._in_loop:
            return f"has_field({operand}, {field})"
        held = self._temporary()
        test = f"type({held} := {operand}) is dict"
        return f"({field} in {held} if {test} else has_field({held}, {field}))"

    def _temporary(self) -> str:
        """A name for `:=`, which Python forbids in what a comprehension iterates over: so none is
        asked for anywhere inside a loop."""
        return f"t{next(self._temporaries)}"

    def _call(self, node: FunctionCall) -> str:
        if not self._in_loop:
            inlined = self._inlined(node)
            if inlined is not None:
                return inlined
        match node:
            case FunctionCall("matches", (text, Constant(value=str() as pattern))):
                found = f"c{len(self.constants)}"
                self.constants[found] = regex.compiled(pattern)
                return f"searched({found}, {self.code(text)}, {self._work()})"
            case FunctionCall("_[_]", (container, Constant() as key)):
                return f"at({self._value(container)}, {self.code(key)})"
            case FunctionCall("_==_" | "_!=_" | "contains" | "startsWith" | "endsWith" | "double"):
                arguments = [self.code(argument) for argument in node.arguments]
            case _:
                arguments = [self._value(argument) for argument in node.arguments]
        if node.function in METERED:
            arguments.append(self._work())
        return f"{_NUMBERED[node.function]}({', '.join(arguments)})"

    def _work(self) -> str:
        self.charges = True
        return "m"

    def _inlined(self, node: FunctionCall) -> str | None:  # noqa: PLR0911  # one return per form
        match node.function, node.arguments:
            case "_==_" | "_!=_", (left, right):
                same = self._equality(left, right)
                return same and (f"(not {same})" if node.function == "_!=_" else same)
            case "_<_" | "_<=_" | "_>_" | "_>=_", (left, right):
                return self._ordering(node.function, left, right)
            case "!_", (operand,):
                return f"(not {self._bool(operand)})"
            case "_[_]", (container, Constant(value=str() as key)):
                return self._select(container, key) if container.type == "dyn" else None
            case "@in", (value, ListOf(elements=elements)):
                return self._membership(value, elements)
            case "_+_" | "_-_" | "_*_", (left, right):
                return self._arithmetic(node.function[1], left, right)
            case "size", (operand,) if operand.type in ("string", "bytes", "list", "map"):
                return f"len({self.code(operand)})"
            case "double", (operand,):
                return f"quick_double({self.code(operand)})"
        return self._text_test(node)

    def _text_test(self, node: FunctionCall) -> str | None:
        match node.function, node.arguments:
            case "contains", (text, part) if _two_texts(text, part) and is_short(text):
                return f"({self.code(part)} in {self.code(text)})"
            case "startsWith", (text, part) if _two_texts(text, part) and _one_short(text, part):
                return f"{self.code(text)}.startswith({self.code(part)})"
            case "endsWith", (text, part) if _two_texts(text, part) and _one_short(text, part):
                return f"{self.code(text)}.endswith({self.code(part)})"
            case "contains" | "startsWith" | "endsWith", (text, Constant(value=str()) as part):
                return self._dynamic_text_test(node.function, text, part)
        return None

    def _dynamic_text_test(self, function: str, text: Node, part: Constant) -> str:
        held, given = self._temporary(), self.code(part)
        test, work = f"type({held} := {self.code(text)}) is str", _BOUNDED
        if function == "contains":
            quick, work = f"{given} in {held}", self._work()
            test = f"{test} and len({held}) <= {SHORT!r}"
        else:
            quick = f"{held}.{function.lower()}({given})"
        return f"({quick} if {test} else {_NUMBERED[function]}({held}, {given}, {work}))"

    def _equality(self, left: Node, right: Node) -> str | None:
        """No part is written before it is clear that it stays: to write each part twice, at every
        level, would take for ever."""
        if isinstance(left, Constant):
            left, right = right, left
        if isinstance(left, Constant):
            return None
        types: set[Type] = {left.type, right.type}
        if types & {"string", "bytes"}:
            same = "==" if _one_short(left, right) or self._is_free() else ""
        elif types in ({"int"}, {"uint"}, {"double"}):
            same = "=="
        elif "bool" in types or (isinstance(right, Constant) and right.value is None):
            same = "is"
        elif isinstance(right, Constant) and _plain_number(right) and right.value not in (0, 1):
            same = "=="
        elif types == {"dyn"} and self._is_free():
            one, other = self._temporary(), self._temporary()
            texts = (
                f"type({one} := {self.code(left)}) is type({other} := {self.code(right)}) is str"
            )
            otherwise = f"{_NUMBERED['_==_']}({one}, {other}, {self._work()})"
            return f"({one} == {other} if {texts} else {otherwise})"
        else:
            same = ""
        return f"({self.code(left)} {same} {self.code(right)})" if same else None

    def _is_free(self) -> bool:
        """Whether another two long texts may be compared without a charge."""
        self._compared += 1
        return self._compared <= _FREE_COMPARISONS

    def _ordering(self, function: str, left: Node, right: Node) -> str | None:
        symbol, helper = _ORDERINGS[function], _NUMBERED[function]
        if left.type == right.type and (
            left.type in ("int", "uint", "double")
            or (left.type in ("string", "bytes") and _one_short(left, right))
        ):
            return f"({self.code(left)} {symbol} {self.code(right)})"
        if left.type == "dyn" and isinstance(right, Constant):
            held, constant = self._temporary(), self.code(right)
            quick = f"{held} {symbol} {constant}"
            if right.type == "string":
                test = f"type({held} := {self.code(left)}) is str"
            elif _plain_number(right):
                test = f"type({held} := {self.code(left)}) is float or type({held}) is int"
            else:
                return None
            return f"({quick} if {test} else {helper}({held}, {constant}, {_BOUNDED}))"
        return None

    def _membership(self, value: Node, elements: tuple[Node, ...]) -> str | None:
        """Of constants of one type that Python confuses with no other, a set."""
        types = {element.type for element in elements}
        if not all(isinstance(element, Constant) for element in elements) or len(types) != 1:
            return None
        if types == {"string"} or (types == {"int"} and value.type == "int"):
            return f"({self.code(value)} in {{{', '.join(map(self.code, elements))}}})"
        return None

    def _arithmetic(self, symbol: str, left: Node, right: Node) -> str | None:
        match left.type, right.type, symbol:
            case "int", "int", _:
                return f"int64({self.code(left)} {symbol} {self.code(right)})"
            case "double", "double", _:
                return f"({self.code(left)} {symbol} {self.code(right)})"
            case "string", "string", "+" if is_short(left) and is_short(right):
                return f"({self.code(left)} + {self.code(right)})"
        return None

    def _loop(self, node: Loop) -> str:
        outside, self._in_loop = self._in_loop, True
        turn = cost(node.predicate) + cost(node.result)
        over = f"items({self.code(node.over)}, {turn!r}, {self._work()})"
        each = f"for v{node.variable.number} in {over}"
        test = self._bool(node.predicate)
        result = self._value(node.result)
        self._in_loop = outside
        match node.macro:
            case "all":
                return f"all({test} {each})"
            case "exists":
                return f"any({test} {each})"
            case "exists_one":
                return f"([{test} {each}].count(True) == 1)"
            case "collect":
                return f"[{result} {each} if {test}]"


def _two_texts(left: Node, right: Node) -> bool:
    return left.type == right.type == "string"


def _one_short(left: Node, right: Node) -> bool:
    """Comparing takes no longer than the shorter of the two."""
    return is_short(left) or is_short(right)


def _plain_number(constant: Constant) -> bool:
    """A number that Python compares with any int or float just as CEL does."""
    value = constant.value
    return type(value) in (int, UInt, float) and abs(value) < EXACT  # type: ignore[arg-type]  # a number


def _literal(value: object) -> str:
    match value:
        case UInt():
            return f"UInt({int(value)!r})"
        case CelType():
            return f"CelType({value.name!r})"
        case int() | float() if value is not True and value is not False:
            return f"({value!r})"
        case _:
            return repr(value)
