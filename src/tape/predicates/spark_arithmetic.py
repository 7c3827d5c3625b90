"""CEL's arithmetic over Columns of known types: an overflow or a zero divisor gives NULL."""

from pyspark.sql import Column
from pyspark.sql import functions as F

from tape.predicates.spark_values import Json, Typed, Untranslatable, Value, null_of, text_of
from tape.predicates.values import INT_MIN


def arithmetic(function: str, left: Value, right: Value) -> Typed:
    if function == "_+_" and "string" in (_type(left), _type(right)):
        return Typed("string", F.concat(text_of(left), text_of(right)))
    if isinstance(left, Json) or isinstance(right, Json):
        raise Untranslatable("arithmetic depends on whether JSON wrote an integer: use double()")
    match left.type, right.type:
        case "int", "int":
            return Typed("int", _of_ints(function, left.column, right.column))
        case "double", "double":
            return Typed("double", _of_doubles(function, left, right))
        case _:
            raise Untranslatable(f"{function} of {left.type} and {right.type}")


def negated(value: Value) -> Typed:
    if isinstance(value, Json):
        raise Untranslatable("arithmetic depends on whether JSON wrote an integer: use double()")
    match value.type:
        case "int":
            return Typed("int", F.try_subtract(F.lit(0).cast("bigint"), value.column))
        case "double":
            return Typed("double", -value.column)
        case _:
            raise Untranslatable(f"-_ of {value.type}")


def _type(value: Value) -> str:
    return value.type if isinstance(value, Typed) else "dyn"


def _of_ints(function: str, a: Column, b: Column) -> Column:
    match function:
        case "_+_":
            return F.try_add(a, b)
        case "_-_":
            return F.try_subtract(a, b)
        case "_*_":
            return F.try_multiply(a, b)
        case "_/_":
            overflows = (a == F.lit(INT_MIN)) & (b == -1)
            return F.when((b != 0) & ~overflows, F.call_function("div", a, b))
        case "_%_":
            return F.when((b != 0) & (b != -1), a % b).when(b == -1, a - a)
        case _:
            return null_of("bigint")


def _of_doubles(function: str, left: Typed, right: Typed) -> Column:
    match function:
        case "_+_":
            return left.column + right.column
        case "_-_":
            return left.column - right.column
        case "_*_":
            return left.column * right.column
        case _:
            # VARIANT does not keep the sign of -0.0, and so not that of an infinite quotient.
            raise Untranslatable(f"{function} of doubles")
