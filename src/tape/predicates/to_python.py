"""The expression as one Python expression, compiled once.

The generated code is right whenever it returns. It raises, whatever it likes, where CEL has an
error: its caller then evaluates the tree plainly. That is sound because CEL has no side effects,
and it lets `&&` be Python's `and`.

Only `repr()` of constants, numbered variables and the names in `_HELPERS` are ever written into
source. Where Python would mix up types that CEL keeps apart, and the types are not known before,
the code asks for the exact type and leaves the uncommon case to a function.
"""

from collections.abc import Callable, Mapping
from itertools import count
from typing import Final, TypeVar, assert_never

from tape.predicates.ast import (
    Call,
    Conditional,
    Constant,
    Has,
    ListOf,
    Local,
    Logic,
    Loop,
    MapOf,
    Name,
    Node,
    Select,
    walk,
)
from tape.predicates.evaluate import add_entry
from tape.predicates.functions import FUNCTIONS, METERED, boolean, has_field, int64, regex, select
from tape.predicates.values import CelType, Meter, UInt, settled

Result = TypeVar("Result")

EXACT: Final = 2**53
"""Up to here Python's exact comparison of int and float and CEL's rounded one agree."""

_ORDERINGS: Final = {"_<_": "<", "_<=_": "<=", "_>_": ">", "_>=_": ">="}


def _map_of(*entries: tuple[object, object]) -> dict[object, object]:
    built: dict[object, object] = {}
    for key, value in entries:
        add_entry(built, key, value)
    return built


_NUMBERED: Final = {name: f"f{number}" for number, name in enumerate(FUNCTIONS)}
_HELPERS: Final[dict[str, object]] = {
    "boolean": boolean,
    "has_field": has_field,
    "int64": int64,
    "map_of": _map_of,
    "select": select,
    "settled": settled,
    "Meter": Meter,
    "UInt": UInt,
    "CelType": CelType,
    "nan": float("nan"),
    "inf": float("inf"),
    **{code: FUNCTIONS[name] for name, code in _NUMBERED.items()},
}


def compiled(
    node: Node, slowly: Callable[[Mapping[str, object]], Result], steps: int
) -> Callable[[Mapping[str, object]], Result]:
    """A function from envelope to value that calls `slowly` where the fast code gives up."""
    generator = _Generator()
    expression = generator.code(node)
    meter = (
        f"m = Meter({steps!r})" if any(isinstance(part, Loop) for part in walk(node)) else "pass"
    )
    source = (
        "def evaluate(e):\n"
        " try:\n"
        f"  {meter}\n"
        f"  return {expression}\n"
        " except Exception:\n"
        "  return slowly(e)\n"
    )
    scope = {**_HELPERS, **generator.constants, "slowly": slowly}
    exec(compile(source, "<predicate>", "exec"), scope)  # noqa: S102  # see the module's rule
    evaluate: Callable[[Mapping[str, object]], Result] = scope["evaluate"]  # type: ignore[assignment]  # defined by the source
    return evaluate


class _Generator:
    def __init__(self) -> None:
        self.constants: dict[str, object] = {}
        self._temporaries = count()
        self._in_loop = False

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
            case Call():
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

    def _call(self, node: Call) -> str:
        if not self._in_loop:
            inlined = self._inlined(node)
            if inlined is not None:
                return inlined
        arguments = [self._value(argument) for argument in node.arguments]
        if self._in_loop:
            if node.function in METERED:
                arguments.append("m")
            else:
                arguments = [
                    code if isinstance(argument, Constant) else f"m.touch({code})"
                    for argument, code in zip(node.arguments, arguments, strict=True)
                ]
        return f"{_NUMBERED[node.function]}({', '.join(arguments)})"

    def _inlined(self, node: Call) -> str | None:  # noqa: PLR0911  # one return per form
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
            case "double", (operand,) if operand.type == "dyn":
                return f"{_NUMBERED['double']}({self.code(operand)})"
        return self._text_test(node)

    def _text_test(self, node: Call) -> str | None:
        match node.function, node.arguments:
            case "matches", (text, Constant(value=str() as pattern)) if text.type == "string":
                search = f"c{len(self.constants)}"
                self.constants[search] = regex(pattern).search
                return f"({search}({self.code(text)}) is not None)"
            case "contains", (text, part) if text.type == part.type == "string":
                return f"({self.code(part)} in {self.code(text)})"
            case "startsWith", (text, part) if text.type == part.type == "string":
                return f"{self.code(text)}.startswith({self.code(part)})"
            case "endsWith", (text, part) if text.type == part.type == "string":
                return f"{self.code(text)}.endswith({self.code(part)})"
        return None

    def _equality(self, left: Node, right: Node) -> str | None:
        if isinstance(left, Constant):
            left, right = right, left
        if isinstance(left, Constant):
            return None
        a, b = self.code(left), self.code(right)
        types = {left.type, right.type}
        if types & {"string", "bytes"} or types in ({"int"}, {"uint"}, {"double"}):
            return f"({a} == {b})"
        if "bool" in types:
            return f"({a} is {b})"
        if isinstance(right, Constant) and right.value is None:
            return f"({a} is None)"
        if isinstance(right, Constant) and _plain_number(right) and right.value not in (0, 1):
            return f"({a} == {b})"
        return None

    def _ordering(self, function: str, left: Node, right: Node) -> str | None:
        symbol, helper = _ORDERINGS[function], _NUMBERED[function]
        if left.type == right.type and left.type in ("int", "uint", "double", "string", "bytes"):
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
            return f"({quick} if {test} else {helper}({held}, {constant}))"
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
        code = f"{self.code(left)} {symbol} {self.code(right)}"
        match left.type, right.type, symbol:
            case "int", "int", _:
                return f"int64({code})"
            case "double", "double", _:
                return f"({code})"
            case "string", "string", "+":
                return f"({code})"
        return None

    def _loop(self, node: Loop) -> str:
        outside, self._in_loop = self._in_loop, True
        items = f"m.items({self.code(node.over)})"
        each = f"for v{node.variable.number} in {items}"
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
