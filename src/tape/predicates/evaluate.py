"""The plain evaluation of an expression, error values and all.

`&&`, `||`, `all` and `exists` absorb an error when another operand decides the result, in either
order. This walks the tree and is slow; it is asked only when the generated code has raised, and has
what that left of the budget.
"""

from collections.abc import Mapping
from typing import assert_never

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
)
from tape.predicates.functions import FUNCTIONS, METERED, boolean, has_field, select
from tape.predicates.values import (
    BoolKey,
    EvaluationError,
    UInt,
    items,
    settled,
    stored_key,
    type_name,
)
from tape.predicates.work import CALL, WALKED, LimitError, Work


class Evaluation:
    """One evaluation: the envelope, the loop variables in force and the work done so far."""

    def __init__(self, envelope: Mapping[str, object], work: Work) -> None:
        self._envelope = envelope
        self._work = work
        self._locals: dict[int, object] = {}

    def value(self, node: Node) -> object:  # noqa: C901, PLR0911, PLR0912  # one case per kind
        work = self._work
        work[0] -= WALKED
        if work[0] < 0:
            raise LimitError
        match node:
            case Constant():
                return node.value
            case Name():
                if node.name not in self._envelope:
                    raise EvaluationError(f"{node.name} is not set for this entry")
                return settled(self._envelope[node.name])
            case Local():
                return settled(self._locals[node.number])
            case Select():
                return select(self.value(node.operand), node.field)
            case Has():
                return has_field(self.value(node.operand), node.field)
            case FunctionCall():
                return self._call(node)
            case Logic():
                decided = node.operator == "or"
                return self._absorbing(decided, node.operands)
            case Conditional():
                chosen = boolean(self.value(node.condition))
                return self.value(node.then if chosen else node.otherwise)
            case ListOf():
                return [self.value(element) for element in node.elements]
            case MapOf():
                return self._map(node)
            case Loop():
                return self._loop(node)
            case _:
                assert_never(node)

    def _call(self, node: FunctionCall) -> object:
        function = FUNCTIONS[node.function]
        arguments = [self.value(argument) for argument in node.arguments]
        self._work[0] -= CALL
        if node.function in METERED:
            return function(*arguments, self._work)
        return function(*arguments)

    def _absorbing(self, decided: bool, operands: tuple[Node, ...]) -> bool:
        failure: EvaluationError | None = None
        for operand in operands:
            try:
                if boolean(self.value(operand)) is decided:
                    return decided
            except EvaluationError as error:
                failure = failure or error
        if failure is not None:
            raise failure
        return not decided

    def _map(self, node: MapOf) -> dict[object, object]:
        built: dict[object, object] = {}
        for key_node, value_node in node.entries:
            add_entry(built, self.value(key_node), self.value(value_node))
        return built

    def _loop(self, node: Loop) -> object:
        elements = items(self.value(node.over), 0, self._work)
        match node.macro:
            case "all" | "exists":
                return self._quantified(node, elements)
            case "exists_one":
                return len(self._chosen(node, elements)) == 1
            case "collect":
                return self._chosen(node, elements)

    def _quantified(self, node: Loop, elements: list[object]) -> bool:
        decided = node.macro == "exists"
        failure: EvaluationError | None = None
        for element in elements:
            self._locals[node.variable.number] = element
            try:
                if boolean(self.value(node.predicate)) is decided:
                    return decided
            except EvaluationError as error:
                failure = failure or error
        if failure is not None:
            raise failure
        return not decided

    def _chosen(self, node: Loop, elements: list[object]) -> list[object]:
        chosen = []
        for element in elements:
            self._locals[node.variable.number] = element
            if boolean(self.value(node.predicate)):
                chosen.append(self.value(node.result))
        return chosen


def add_entry(built: dict[object, object], key: object, value: object) -> None:
    if type(key) not in (bool, int, UInt, str):
        raise EvaluationError(f"invalid map key type: {type_name(key)}")
    stored: object | BoolKey = stored_key(key)
    if stored in built:
        raise EvaluationError("duplicate map key")
    built[stored] = value
