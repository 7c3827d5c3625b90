"""The checked expression as a small typed tree: what every engine translates from.

Reading it resolves all that is left open in CEL's own form: `dyn()` is gone, a name is an envelope
name (`Name`) or a loop variable with a number of its own (`Local`), the comprehensions that macros
expand to are macros again (`Loop`), chains of `&&` and `||` are flat. Field numbers are those of
cel.expr (syntax.proto, checked.proto).
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from typing import Final, Literal

from tape.predicates.functions import FUNCTIONS, result_type
from tape.predicates.values import TYPE_NAMES, CelType, Type, UInt
from tape.predicates.wire import ProtoMessage


@dataclass(frozen=True, slots=True)
class Constant:
    value: object
    type: Type


@dataclass(frozen=True, slots=True)
class Name:
    name: str
    type: Type


@dataclass(frozen=True, slots=True)
class Local:
    """A loop variable; the number is unique in the expression, so nothing is ever shadowed."""

    number: int
    type: Type = "dyn"


@dataclass(frozen=True, slots=True)
class Select:
    operand: "Node"
    field: str
    type: Type = "dyn"


@dataclass(frozen=True, slots=True)
class Has:
    operand: "Node"
    field: str
    type: Type = "bool"


@dataclass(frozen=True, slots=True)
class FunctionCall:
    """A function that needs all its arguments; a method's receiver is the first of them."""

    function: str
    arguments: tuple["Node", ...]
    type: Type
    position: int | None = None


@dataclass(frozen=True, slots=True)
class Logic:
    operator: Literal["and", "or"]
    operands: tuple["Node", ...]
    type: Type = "bool"


@dataclass(frozen=True, slots=True)
class Conditional:
    condition: "Node"
    then: "Node"
    otherwise: "Node"
    type: Type


@dataclass(frozen=True, slots=True)
class ListOf:
    elements: tuple["Node", ...]
    type: Type = "list"


@dataclass(frozen=True, slots=True)
class MapOf:
    entries: tuple[tuple["Node", "Node"], ...]
    type: Type = "map"


@dataclass(frozen=True, slots=True)
class Loop:
    """A macro. `collect` is map() and filter(): results where the predicate holds."""

    macro: Literal["all", "exists", "exists_one", "collect"]
    variable: Local
    over: "Node"
    predicate: "Node"
    result: "Node"
    type: Type


Node = (
    Constant
    | Name
    | Local
    | Select
    | Has
    | FunctionCall
    | Logic
    | Conditional
    | ListOf
    | MapOf
    | Loop
)

TRUE: Final = Constant(value=True, type="bool")


class UnsupportedError(Exception):
    """An expression that CEL's checker allows and Tape does not evaluate."""

    def __init__(self, reason: str, position: int | None) -> None:
        self.position = position
        super().__init__(reason)


def children(node: Node) -> tuple[Node, ...]:  # noqa: PLR0911  # one return per kind
    match node:
        case Constant() | Name() | Local():
            return ()
        case Select() | Has():
            return (node.operand,)
        case FunctionCall():
            return node.arguments
        case Logic():
            return node.operands
        case Conditional():
            return (node.condition, node.then, node.otherwise)
        case ListOf():
            return node.elements
        case MapOf():
            return tuple(part for entry in node.entries for part in entry)
        case Loop():
            return (node.over, node.predicate, node.result)


def walk(node: Node) -> Iterator[Node]:
    yield node
    for child in children(node):
        yield from walk(child)


def read(checked: ProtoMessage, names: Mapping[str, Type]) -> Node:
    """The tree of a cel.expr.CheckedExpr, given the types of the names it may refer to."""
    return _Reader(checked, names).node(checked.message(4), {})


class _Reader:
    """Types are inferred here, not taken from the checker: where `dyn` meets another type it may
    promise the other (`true ? payload.x : 1` as int), and generated code must not rely on that."""

    def __init__(self, checked: ProtoMessage, names: Mapping[str, Type]) -> None:
        self._names = names
        self._resolved = {
            entry.signed(1): entry.message(2).text(1)
            for entry in checked.messages(2)
            if not entry.message(2).has(3)
        }
        self._positions = {
            entry.signed(1): entry.signed(2) for entry in checked.message(5).messages(4)
        }
        self._locals = count()

    def node(self, expr: ProtoMessage, scope: dict[str, Local]) -> Node:  # noqa: PLR0911  # one return per kind
        number = expr.signed(2)
        if expr.has(3):
            return self._constant(expr.message(3), number)
        if expr.has(4):
            return self._name(expr.message(4).text(1), number, scope)
        if expr.has(5):
            return self._select(expr.message(5), number, scope)
        if expr.has(6):
            return self._call(expr.message(6), number, scope)
        if expr.has(7):
            elements = expr.message(7).messages(1)
            return ListOf(tuple(self.node(element, scope) for element in elements))
        if expr.has(8):
            return self._map(expr.message(8), number, scope)
        return self._loop(expr.message(9), scope)

    def _unsupported(self, reason: str, number: int) -> UnsupportedError:
        return UnsupportedError(reason, self._positions.get(number))

    def _constant(self, constant: ProtoMessage, number: int) -> Constant:
        read: dict[int, tuple[Type, Callable[[int], object]]] = {
            1: ("null", lambda _: None),
            2: ("bool", lambda field: bool(constant.signed(field))),
            3: ("int", constant.signed),
            4: ("uint", lambda field: UInt(constant.unsigned(field))),
            5: ("double", constant.double),
            6: ("string", constant.text),
            7: ("bytes", constant.blob),
        }
        for field, (kind, value) in read.items():
            if constant.has(field):
                return Constant(value(field), kind)
        raise self._unsupported("this kind of constant is not supported", number)

    def _name(self, name: str, number: int, scope: dict[str, Local]) -> Node:
        if name in scope:
            return scope[name]
        return self._global(self._resolved.get(number, name), number)

    def _global(self, name: str, number: int) -> Node:
        name = name.removeprefix(".")
        if name in self._names:
            return Name(name, self._names[name])
        if name in TYPE_NAMES:
            return Constant(CelType(name), "type")
        raise self._unsupported(f"{name} is not supported", number)

    def _select(self, select: ProtoMessage, number: int, scope: dict[str, Local]) -> Node:
        if number in self._resolved:
            return self._global(self._resolved[number], number)
        operand = self.node(select.message(1), scope)
        if select.signed(3):
            return Has(operand, select.text(2))
        return Select(operand, select.text(2))

    def _call(self, call: ProtoMessage, number: int, scope: dict[str, Local]) -> Node:
        function = call.text(2)
        target = [call.message(1)] if call.has(1) else []
        arguments = tuple(self.node(part, scope) for part in [*target, *call.messages(3)])
        match function, arguments:
            case "dyn", (argument,):
                return argument
            case "_&&_", _:
                return Logic("and", _flat("and", arguments))
            case "_||_", _:
                return Logic("or", _flat("or", arguments))
            case "_?_:_", (condition, then, otherwise):
                kind: Type = then.type if then.type == otherwise.type else "dyn"
                return Conditional(condition, then, otherwise, kind)
        if function not in FUNCTIONS:
            raise self._unsupported(f"the function {function} is not supported", number)
        kind = result_type(function, [node.type for node in arguments])
        return FunctionCall(function, arguments, kind, self._positions.get(number))

    def _map(self, struct: ProtoMessage, number: int, scope: dict[str, Local]) -> Node:
        if struct.has(1):
            raise self._unsupported("messages are not supported", number)
        return MapOf(
            tuple(
                (self.node(entry.message(3), scope), self.node(entry.message(4), scope))
                for entry in struct.messages(2)
            )
        )

    def _loop(self, loop: ProtoMessage, scope: dict[str, Local]) -> Node:
        """Undo the expansion of a macro. A user cannot name its accumulator, so the shape of the
        step tells with certainty which macro it was."""
        over = self.node(loop.message(2), scope)
        variable = Local(next(self._locals))
        inner = scope | {loop.text(1): variable}
        step = loop.message(6).message(6)
        parts = step.messages(3)
        match step.text(2):
            case "_&&_":
                return Loop("all", variable, over, self.node(parts[1], inner), TRUE, "bool")
            case "_||_":
                return Loop("exists", variable, over, self.node(parts[1], inner), TRUE, "bool")
            case "_+_":
                return Loop("collect", variable, over, TRUE, self._appended(step, inner), "list")
            case _:
                chosen = self.node(parts[0], inner)
        if loop.message(7).has(6):
            return Loop("exists_one", variable, over, chosen, TRUE, "bool")
        result = self._appended(parts[1].message(6), inner)
        return Loop("collect", variable, over, chosen, result, "list")

    def _appended(self, addition: ProtoMessage, scope: dict[str, Local]) -> Node:
        """The one element of the list that a step adds to the accumulator."""
        return self.node(addition.messages(3)[1].message(7).messages(1)[0], scope)


def _flat(operator: Literal["and", "or"], operands: tuple[Node, ...]) -> tuple[Node, ...]:
    flat: list[Node] = []
    for operand in operands:
        if isinstance(operand, Logic) and operand.operator == operator:
            flat.extend(operand.operands)
        else:
            flat.append(operand)
    return tuple(flat)
