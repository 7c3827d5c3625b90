"""The expression as a Spark Column, where Spark decides it exactly as CEL does; else a Python UDF.

CEL's true, false and error are TRUE, FALSE and NULL, for which AND, OR, NOT, `exists` and `forall`
have the very truth tables that CEL demands. The Column is for a DataFrame with the columns of the
journal and `payload`, a VARIANT made by `parsed_payload`, in a session with ANSI on. It reads
`payload` and never the text beside it, so that a lake is read only where the paths lead.
"""

from functools import reduce
from operator import and_
from typing import Final, Literal, NamedTuple
from weakref import WeakKeyDictionary

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from tape.predicates.ast import Logic, Name, Node, walk
from tape.predicates.predicate import Predicate
from tape.predicates.spark_translator import SparkTranslator
from tape.predicates.spark_udf import udf_predicate
from tape.predicates.spark_values import LEFT_TO_PYTHON, Untranslatable

__all__ = [
    "SparkPredicate", "explain", "left_to_python", "parsed_payload", "spark_predicate",
    "udf_predicate",
]  # fmt: skip

_READS_PAYLOAD: Final = frozenset({"payload", "prev_value_json"})
_WIDE: Final = {
    "maxNumLen": "2147483647", "maxNestingDepth": "2000", "maxStringLen": "2147483647",
}  # fmt: skip
_MOST_KNOWN: Final = 1_000


class SparkPredicate(NamedTuple):
    """`why` says which part only Python decides; it is empty for a Column."""

    column: Column
    engine: Literal["column", "udf"]
    why: str


_known: WeakKeyDictionary[SparkSession, dict[Predicate, SparkPredicate]] = WeakKeyDictionary()


def spark_predicate(predicate: Predicate) -> SparkPredicate:
    """Needs a session. A row whose payload VARIANT could not hold fails the query, by name.

    Of one expression a session is given the same Column again: making one takes hundreds of calls
    into the JVM, and what is the same plan it has compiled already.
    """
    known = _known.setdefault(SparkSession.active(), {})
    if (found := known.get(predicate)) is None:
        if len(known) >= _MOST_KNOWN:
            known.clear()
        found = known[predicate] = _spark_predicate(predicate)
    return found


def _spark_predicate(predicate: Predicate) -> SparkPredicate:
    try:
        return SparkPredicate(_translated(predicate.tree), "column", "")
    except Untranslatable as found:
        return SparkPredicate(udf_predicate(predicate), "udf", str(found))


def explain(predicate: Predicate) -> str:
    found = spark_predicate(predicate)
    if found.engine == "column":
        return "a Spark Column decides"
    return f"a Python UDF decides, because no Column is exact: {found.why}"


def left_to_python(fault: Exception) -> str:
    """Why no Column decides some entry, if that is what a query failed of; else empty."""
    return next((line for line in str(fault).splitlines() if LEFT_TO_PYTHON in line), "")


def parsed_payload(payload_json: Column) -> Column:
    """A payload's text as VARIANT, also what `try_parse_json` gives up on: numbers of more than
    1,000 characters, strings of more than 20 million, nesting beyond 1,000."""
    return F.coalesce(F.try_parse_json(payload_json), F.from_json(payload_json, "variant", _WIDE))


def _translated(tree: Node) -> Column:
    """Conditions on the envelope come first: they cost least, and Parquet skips by them."""
    operands = tree.operands if isinstance(tree, Logic) and tree.operator == "and" else (tree,)
    translator = SparkTranslator(tree)
    parts = [_guarded(translator, operand) for operand in sorted(operands, key=_reads_payload)]
    return reduce(and_, parts)


def _guarded(translator: SparkTranslator, node: Node) -> Column:
    part = translator.truth(node)
    return F.coalesce(part, _refused_payload()) if _reads_payload(node) else part


def _reads_payload(node: Node) -> bool:
    return any(isinstance(part, Name) and part.name in _READS_PAYLOAD for part in walk(node))


def _refused_payload() -> Column:
    """Only asked where the rest is NULL; an answer that does not need the payload stands."""
    message = F.concat(
        F.lit("entry "),
        F.col("global_seq").cast("string"),
        F.lit(": VARIANT does not hold its payload; parse with tape.predicates.to_spark"),
        F.lit(f".parsed_payload, or {LEFT_TO_PYTHON}"),
    )
    return F.when(F.col("payload").isNull(), F.raise_error(message).cast("boolean"))
