"""Values of an expression as Spark Columns: NULL is CEL's error, everything else is a value.

A number of a payload has a value here and no CEL type: Parquet that Spark has shredded gives 2 back
as 2.0 where a field holds both, so whether JSON wrote an integer cannot be known. What depends on
it is left to Python, and comparisons are made so that it does not matter.
"""

from dataclasses import dataclass
from typing import Final, Literal

from pyspark.sql import Column
from pyspark.sql import functions as F

from tape.predicates.functions import EXACT
from tape.predicates.values import INT_MAX, INT_MIN, Type

Comparison = Literal["<", "<=", ">", ">=", "=="]

_NO_NUMBERS: Final = ("STRING", "BOOLEAN")
_NUMERAL: Final = r"\A[+-]?(?:[0-9]++(?:\.[0-9]*+)?+|\.[0-9]++)(?:[eE][+-]?[0-9]++)?+\z"
_NAN: Final = r"(?i)\A[+-]?nan\z"
_INFINITY: Final = r"(?i)\A[+-]?inf(?:inity)?\z"
_INTEGER: Final = r"\A[+-]?[0-9]++\z"


LEFT_TO_PYTHON: Final = "decide with udf_predicate"
"""Ends what a Column says of an entry that it cannot decide: the query fails with it."""


class Untranslatable(Exception):
    """A part that no Column decides exactly as Python does."""


@dataclass(frozen=True, slots=True)
class Typed:
    """Of one type that is known: bool, int, double, string or null. `small` numbers are constants
    that a double holds exactly; `ordinary` ones are never NaN."""

    type: Type
    column: Column
    small: bool = False
    ordinary: bool = False


@dataclass(frozen=True, slots=True)
class Json:
    """What a path leads to in a VARIANT."""

    root: Column
    path: str = "$"

    def at(self, key: str | int) -> "Json":
        if isinstance(key, int):
            if not 0 <= key < 2**31:
                raise Untranslatable("an index outside of what Spark's paths take")
            return Json(self.root, f"{self.path}[{key}]")
        if "'" not in key:
            return Json(self.root, f"{self.path}['{key}']")
        if '"' not in key:
            return Json(self.root, f'{self.path}["{key}"]')
        raise Untranslatable("a key with both kinds of quotes")

    def read_as(self, kind: str) -> Column:
        return F.try_variant_get(self.root, self.path, kind)

    @property
    def variant(self) -> Column:
        return self.root if self.path == "$" else self.read_as("variant")

    @property
    def text(self) -> Column:
        """Nothing but a string of JSON is ever cast to binary; to a string nearly all is."""
        return self.read_as("binary").cast("string")

    @property
    def number(self) -> Column:
        double = self.read_as("double")
        is_number = ~F.schema_of_variant(self.variant).isin(*_NO_NUMBERS)
        return F.when(double.isNotNull() & is_number, double)

    @property
    def long(self) -> Column:
        """The number where it is an integer of 64 bits, so far as VARIANT still knows."""
        long = self.read_as("bigint")
        is_long = F.schema_of_variant(self.variant) == "BIGINT"
        return F.when(long.isNotNull() & is_long, long)

    @property
    def boolean(self) -> Column:
        boolean = self.read_as("boolean")
        is_boolean = F.schema_of_variant(self.variant) == "BOOLEAN"
        return F.when(boolean.isNotNull() & is_boolean, boolean)

    @property
    def is_object(self) -> Column:
        return self.read_as("struct<>").isNotNull()

    @property
    def elements(self) -> Column:
        return self.read_as("array<variant>")

    @property
    def members(self) -> Column:
        return self.read_as("map<string,variant>")


Value = Typed | Json


def null_of(kind: str = "boolean") -> Column:
    return F.lit(None).cast(kind)


def constant(value: object) -> Typed:
    match value:
        case None:
            return Typed("null", F.lit(True))
        case bool():
            return Typed("bool", F.lit(value))
        case int() if INT_MIN <= value <= INT_MAX:
            return Typed("int", F.lit(value).cast("bigint"), small=abs(value) < EXACT)
        case float():
            return Typed("double", F.lit(value), ordinary=value == value)  # noqa: PLR0124  # not NaN
        case str():
            return Typed("string", F.lit(value))
    raise Untranslatable(f"a constant of type {type(value).__name__}")


def is_number(value: Value) -> bool:
    return isinstance(value, Json) or value.type in ("int", "double")


def compared_numbers(comparison: Comparison, left: Value, right: Value) -> Column:
    """An int meets a double as a double; two ints beyond what doubles tell apart meet as ints."""
    if isinstance(left, Typed) and isinstance(right, Typed) and left.type == right.type == "int":
        return compared(comparison, left.column, right.column)
    a, b = _double(left), _double(right)
    rounded = _compared_doubles(comparison, a, b, _ordinary(left) and _ordinary(right))
    if any(isinstance(one, Typed) and (one.type == "double" or one.small) for one in (left, right)):
        return rounded
    told_apart = (F.abs(a) < EXACT) | (F.abs(b) < EXACT) | (a != b)
    exactly = compared(comparison, _long(left), _long(right))
    return F.when(told_apart, rounded).otherwise(F.coalesce(exactly, rounded))


def compared(comparison: Comparison, a: Column, b: Column) -> Column:
    match comparison:
        case "<":
            return a < b
        case "<=":
            return a <= b
        case ">":
            return a > b
        case ">=":
            return a >= b
        case "==":
            return a == b


def _compared_doubles(comparison: Comparison, a: Column, b: Column, ordinary: bool) -> Column:
    """To Spark NaN equals itself and is above all numbers."""
    plain = compared(comparison, a, b)
    if ordinary:
        return plain
    both = F.when(a.isNotNull() & b.isNotNull(), F.lit(False))
    return F.when(F.isnan(a) | F.isnan(b), both).otherwise(plain)


def _ordinary(value: Value) -> bool:
    return isinstance(value, Json) or value.type == "int" or value.ordinary


def _double(value: Value) -> Column:
    return value.number if isinstance(value, Json) else value.column.cast("double")


def _long(value: Value) -> Column:
    return value.long if isinstance(value, Json) else value.column


def text_of(value: Value) -> Column:
    """The value where it is a string."""
    if isinstance(value, Json):
        return value.text
    return value.column if value.type == "string" else null_of("string")


def to_double(value: Value) -> Typed:
    if isinstance(value, Json):
        return Typed("double", F.coalesce(value.number, _parsed_double(value.text)))
    match value.type:
        case "int" | "double":
            return Typed("double", _double(value), ordinary=_ordinary(value))
        case "string":
            return Typed("double", _parsed_double(value.column))
        case _:
            return Typed("double", null_of("double"))


def _parsed_double(text: Column) -> Column:
    """By CEL's grammar; Spark's own takes `1d`, blanks and more."""
    infinity = F.when(text.startswith("-"), F.lit(-float("inf"))).otherwise(F.lit(float("inf")))
    return (
        F.when(text.rlike(_NUMERAL), text.try_cast("double"))
        .when(text.rlike(_NAN), F.lit(float("nan")))
        .when(text.rlike(_INFINITY), infinity)
    )


def to_int(value: Value) -> Typed:
    if isinstance(value, Json):
        whole = F.coalesce(value.long, _truncated(value.number), _parsed_int(value.text))
        return Typed("int", whole)
    match value.type:
        case "int":
            return value
        case "double":
            return Typed("int", _truncated(value.column))
        case "string":
            return Typed("int", _parsed_int(value.column))
        case _:
            return Typed("int", null_of("bigint"))


def _truncated(double: Column) -> Column:
    inside = (double > F.lit(float(INT_MIN))) & (double < F.lit(2.0**63))
    return F.when(inside, double.cast("bigint"))


def _parsed_int(text: Column) -> Column:
    return F.when(text.rlike(_INTEGER), text.try_cast("bigint"))


def size_of(value: Value) -> Column:
    if isinstance(value, Typed):
        measured = F.length(value.column) if value.type == "string" else null_of("int")
        return measured.cast("bigint")
    elements, members = value.elements, value.members
    return F.coalesce(
        F.when(elements.isNotNull(), F.size(elements)),
        F.when(members.isNotNull(), F.size(members)),
        F.length(value.text),
    ).cast("bigint")
