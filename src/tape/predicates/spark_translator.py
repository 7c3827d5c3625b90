"""From the tree of an expression to Columns, one rule per kind of node."""

from collections import Counter
from collections.abc import Callable
from functools import reduce
from operator import and_, or_
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F

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
    walk,
)
from tape.predicates.evaluate import Evaluation
from tape.predicates.functions import METERED
from tape.predicates.predicate import DEFAULT_LIMITS
from tape.predicates.spark_arithmetic import arithmetic, negated
from tape.predicates.spark_values import (
    LEFT_TO_PYTHON,
    Comparison,
    Json,
    Typed,
    Untranslatable,
    Value,
    compared,
    compared_numbers,
    constant,
    is_number,
    null_of,
    size_of,
    text_of,
    to_double,
    to_int,
)
from tape.predicates.to_python import cost
from tape.predicates.values import EvaluationError
from tape.predicates.work import ELEMENT, READ, STEP, WALKED, LimitError, new_work
from tape.settings import Limits

_ORDERINGS: Final[dict[str, Comparison]] = {"_<_": "<", "_<=_": "<=", "_>_": ">", "_>=_": ">="}
_INT_COLUMNS: Final = frozenset({"global_seq", "seq", "ts_ms", "schema_version"})
_FOLD_STEPS: Final = 10_000
_HALF: Final = DEFAULT_LIMITS.steps * STEP // 2
_WEIGHTS: Final = {"contains": READ, "double": READ, "int": READ, "_+_": 2}
"""What a character of a text costs; to compare two texts costs one each."""


class SparkTranslator:
    def __init__(self, tree: Node) -> None:
        self._locals: dict[int, Json] = {}
        self._most_elements = most_elements(tree)

    def truth(self, node: Node) -> Column:  # noqa: PLR0911  # one return per kind
        """The node as a bool; NULL where it is an error or anything else."""
        if is_closed(node):
            return self._folded_truth(node)
        match node:
            case Logic():
                parts = map(self.truth, node.operands)
                return reduce(and_ if node.operator == "and" else or_, parts)
            case Conditional():
                chosen = self.truth(node.condition)
                return F.when(chosen, self.truth(node.then)).when(
                    ~chosen, self.truth(node.otherwise)
                )
            case Has():
                return self._has(node)
            case Loop():
                return self._loop(node)
            case FunctionCall() if node.type == "bool":
                return self._test(node)
            case _:
                value = self.value(node)
                if isinstance(value, Json):
                    return value.boolean
                return value.column if value.type == "bool" else null_of()

    def value(self, node: Node) -> Value:  # noqa: PLR0911  # one return per kind
        if is_closed(node):
            return _folded(node)
        match node:
            case Name():
                return _named(node)
            case Local():
                return self._locals[node.number]
            case Select():
                return self._at(node.operand, node.field)
            case Conditional() if node.type != "bool":
                return self._chosen(node)
            case FunctionCall(
                "_[_]", (operand, Constant(value=str() | int() as key, type=kind))
            ) if kind in ("string", "int"):
                return self._at(operand, key)
            case FunctionCall() if node.type != "bool":
                return self._call(node)
            case ListOf() | MapOf():
                raise Untranslatable("a list or a map made of values that are not constant")
            case Loop("collect"):
                raise Untranslatable("a list made by map() or filter()")
            case _:
                return Typed("bool", self.truth(node))

    def _folded_truth(self, node: Node) -> Column:
        try:
            value = _evaluated(node)
        except EvaluationError:
            return null_of()
        return F.lit(value) if isinstance(value, bool) else null_of()

    def _at(self, operand: Node, key: str | int) -> Json:
        container = self.value(operand)
        if isinstance(container, Json):
            return container.at(key)
        raise Untranslatable("a field of what is not JSON")

    def _has(self, node: Has) -> Column:
        operand = self.value(node.operand)
        if not isinstance(operand, Json):
            raise Untranslatable("has() of what is not JSON")
        found = operand.at(node.field).variant.isNotNull()
        return F.when(found, F.lit(True)).when(operand.is_object, F.lit(False))

    def _chosen(self, node: Conditional) -> Value:
        chosen = self.truth(node.condition)
        then, otherwise = self.value(node.then), self.value(node.otherwise)
        if isinstance(then, Json) and isinstance(otherwise, Json):
            return Json(F.when(chosen, then.variant).when(~chosen, otherwise.variant))
        if isinstance(then, Typed) and isinstance(otherwise, Typed) and then.type == otherwise.type:
            return Typed(then.type, F.when(chosen, then.column).when(~chosen, otherwise.column))
        raise Untranslatable("a choice between values of different types")

    def _call(self, node: FunctionCall) -> Value:
        match node.function, node.arguments:
            case "_+_" | "_-_" | "_*_" | "_/_" | "_%_", (left, right):
                return arithmetic(node.function, self.value(left), self.value(right))
            case "-_", (operand,):
                return negated(self.value(operand))
            case "double", (operand,):
                return to_double(self.value(operand))
            case "int", (operand,):
                return to_int(self.value(operand))
            case "size", (operand,):
                return Typed("int", size_of(self.value(operand)))
            case "string", (operand,):
                return _to_string(self.value(operand))
            case _:
                raise Untranslatable(f"{node.function}()")

    def _test(self, node: FunctionCall) -> Column:  # noqa: PLR0911  # one return per function
        match node.function, node.arguments:
            case "!_", (operand,):
                return ~self.truth(operand)
            case "_==_", (left, right):
                return equal(self.value(left), self.value(right))
            case "_!=_", (left, right):
                return ~equal(self.value(left), self.value(right))
            case "_<_" | "_<=_" | "_>_" | "_>=_", (left, right):
                ordering = _ORDERINGS[node.function]
                return _ordered(ordering, self.value(left), self.value(right))
            case "@in", (value, ListOf(elements=elements)):
                return self._one_of(self.value(value), [self.value(one) for one in elements])
            case "@in", (value, container):
                return self._within(self.value(value), self.value(container))
            case "contains", (text, part):
                return F.contains(text_of(self.value(text)), text_of(self.value(part)))
            case "startsWith", (text, part):
                return F.startswith(text_of(self.value(text)), text_of(self.value(part)))
            case "endsWith", (text, part):
                return F.endswith(text_of(self.value(text)), text_of(self.value(part)))
            case _:
                raise Untranslatable(f"{node.function}()")

    def _one_of(self, value: Value, elements: list[Value]) -> Column:
        """Every element has to be known, also where an earlier one is equal."""
        if not elements:
            return F.when(_exists(value), F.lit(False))
        found = reduce(or_, (equal(value, element) for element in elements))
        dynamic = [one for one in elements if isinstance(one, Json)]
        known = reduce(and_, map(_exists, dynamic), F.lit(True))
        return F.when(known, found) if dynamic else found

    def _within(self, value: Value, container: Value) -> Column:
        if isinstance(value, Json) or not isinstance(container, Json):
            raise Untranslatable("`in` where neither side is constant")
        held = Json(container.variant)
        is_element = self._over(
            held.elements,
            lambda items: F.exists(items, lambda item: equal(Json(item), value)),
        )
        members = held.members
        match value.type:
            case "null":
                is_key = null_of()
            case "string":
                is_key = F.map_contains_key(members, value.column)
            case _:
                is_key = F.when(members.isNotNull(), F.lit(False))
        known = F.when(_exists(value), F.lit(True))
        return F.when(known, F.coalesce(is_element, is_key))

    def _loop(self, node: Loop) -> Column:
        over = self.value(node.over)
        if not isinstance(over, Json):
            raise Untranslatable("a macro over what is not JSON")
        held = Json(over.variant)
        names = F.transform(F.map_keys(held.members), lambda key: key.cast("variant"))

        def holds(item: Column) -> Column:
            self._locals[node.variable.number] = Json(item)
            return self.truth(node.predicate)

        def decided(items: Column) -> Column:
            match node.macro:
                case "all":
                    return F.forall(items, holds)
                case "exists":
                    return F.exists(items, holds)
                case "exists_one":
                    failed = F.exists(items, lambda item: holds(item).isNull())
                    return F.when(~failed, F.size(F.filter(items, holds)) == 1)
                case "collect":
                    raise Untranslatable("a list made by map() or filter()")

        return self._over(F.coalesce(held.elements, names), decided)

    def _over(self, items: Column, decided: Callable[[Column], Column]) -> Column:
        """What is decided about a list, made once. Python ends an evaluation that does too much
        work, and a list that is too long may get there."""
        message = f"a list of more than {self._most_elements} elements: {LEFT_TO_PYTHON}"
        refused = F.raise_error(F.lit(message)).cast("boolean")

        def bounded(made: Column) -> Column:
            return F.when(F.size(made) > self._most_elements, refused).otherwise(decided(made))

        return F.transform(F.array(items), bounded)[0]


def most_elements(tree: Node) -> int:
    """How long a list may be so that no evaluation in Python comes near its limit of work.

    Half of the limit is for the elements, each of which may be looked at twice: by the generated
    code, and by the plain evaluation if that has raised. The other half is for texts.
    """
    loops = [part for part in walk(tree) if isinstance(part, Loop)]
    for loop in loops:
        if any(isinstance(part, Loop) for part in walk(loop.predicate)):
            raise Untranslatable("a macro within a macro")
        if any(
            isinstance(part, Name) and part.name not in _INT_COLUMNS
            for part in walk(loop.predicate)
        ):
            raise Untranslatable("a macro that looks outside of its list")
    turns = sum(2 * cost(loop.predicate) + WALKED * _nodes(loop.predicate) for loop in loops)
    scans = sum(
        2 * ELEMENT
        for part in walk(tree)
        if isinstance(part, FunctionCall) and part.function == "@in"
    )
    _refuse_long_texts(tree, _HALF if turns or scans else 2 * _HALF)
    return _HALF // (turns + scans + ELEMENT)


def _nodes(node: Node) -> int:
    return sum(1 for _ in walk(node))


def _refuse_long_texts(tree: Node, most: int) -> None:
    """What is done to one text of a payload, twice at worst, must fit into `most`. All texts of a
    payload together are no longer than it, and it is no longer than the default limit."""
    weights: Counter[Node] = Counter()
    for part in walk(tree):
        if isinstance(part, FunctionCall) and part.function in METERED:
            texts = [one for one in part.arguments if not isinstance(one, Constant)]
            weight = _WEIGHTS.get(part.function, len(texts) - 1)
            for text in texts:
                joined = sum(isinstance(one, FunctionCall) for one in walk(text)) + 1
                weights[text] += weight * joined
    if weights and 2 * max(weights.values()) * Limits().payload_bytes > most:
        raise Untranslatable("a text that is searched or read many times")


def is_closed(node: Node) -> bool:
    """Whether it is the same for every entry. A macro's steps count for the whole evaluation."""
    return not any(isinstance(part, Name | Local | Loop) for part in walk(node))


def _evaluated(node: Node) -> object:
    try:
        return Evaluation({}, new_work(_FOLD_STEPS)).value(node)
    except LimitError as error:
        raise Untranslatable("a constant part that takes much work") from error


def _folded(node: Node) -> Typed:
    try:
        return constant(_evaluated(node))
    except EvaluationError as error:
        raise Untranslatable("a constant part that is an error") from error


def _named(node: Name) -> Value:
    match node.name:
        case "payload":
            return Json(F.col("payload"))
        case "prev_value_json":
            before = Json(F.col("payload")).at("prev_value_json").text
            return Typed("string", F.when(F.col("kind") == "value", before))
        case name if name in _INT_COLUMNS:
            return Typed("int", F.col(name).cast("bigint"))
        case name:
            return Typed("string", F.col(name))


def _exists(value: Value) -> Column:
    """TRUE or FALSE, never NULL."""
    return (value.variant if isinstance(value, Json) else value.column).isNotNull()


def equal(left: Value, right: Value) -> Column:
    if isinstance(left, Typed):
        if isinstance(right, Typed):
            return _typed_equal(left, right)
        return _json_equal(right, left)
    if isinstance(right, Typed):
        return _json_equal(left, right)
    raise Untranslatable("equality of two values of JSON, which may be lists or maps")


def _json_equal(json: Json, typed: Typed) -> Column:
    match typed.type:
        case "null":
            variant = json.variant
            return F.when(variant.isNotNull(), F.is_variant_null(variant))
        case "bool":
            same = json.boolean == typed.column
        case "string":
            same = json.text == typed.column
        case _:
            same = compared_numbers("==", json, typed)
    both = _exists(json) & _exists(typed)
    return F.coalesce(same, F.when(both, F.lit(False)))


def _typed_equal(left: Typed, right: Typed) -> Column:
    if is_number(left) and is_number(right):
        return compared_numbers("==", left, right)
    if left.type == right.type:
        return left.column == right.column
    return F.when(_exists(left) & _exists(right), F.lit(False))


def _ordered(ordering: Comparison, left: Value, right: Value) -> Column:
    kinds = {value.type for value in (left, right) if isinstance(value, Typed)}
    if len(kinds) > 1 and not kinds <= {"int", "double"}:
        return null_of()
    options = []
    if kinds <= {"int", "double"}:
        options.append(compared_numbers(ordering, left, right))
    if kinds <= {"string"}:
        options.append(compared(ordering, text_of(left), text_of(right)))
    if kinds <= {"bool"}:
        options.append(compared(ordering, _boolean(left), _boolean(right)))
    return F.coalesce(*options) if options else null_of()


def _boolean(value: Value) -> Column:
    return value.boolean if isinstance(value, Json) else value.column


def _to_string(value: Value) -> Typed:
    if isinstance(value, Typed) and value.type in ("string", "int", "bool"):
        return Typed("string", value.column.cast("string"))
    raise Untranslatable("string() of a double or of JSON")
