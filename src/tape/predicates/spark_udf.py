"""The generated Python code of a predicate, run in Spark's Python workers over Arrow batches."""

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, Final

import orjson
import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import arrow_udf

from tape.errors import PredicateError
from tape.predicates.ast import Node
from tape.predicates.predicate import DEFAULT_LIMITS, Predicate

_VALUE: Final = "value"
_PARSED: Final = frozenset({"payload", "prev_value_json"})


def udf_predicate(predicate: Predicate) -> Column:
    """TRUE, FALSE and NULL where Python has true, false and an error."""
    plain = sorted(predicate.names - _PARSED)
    parses = not _PARSED.isdisjoint(predicate.names)
    read = sorted({*plain, "kind", "payload_json"}) if parses else plain or ["global_seq"]
    decide = _decider(predicate.expression, predicate.tree)
    column: Column = arrow_udf(decide, "boolean")(F.struct(*read))  # type: ignore[call-overload]  # the kind is known by the hints
    return column


def _decider(expression: str, tree: Node) -> Callable[[Any], Any]:
    def decide(rows: pa.Array) -> pa.Array:  # type: ignore[type-arg]  # Spark asks for just this
        evaluate = _compiled(expression, tree).evaluate
        verdicts: list[bool | None] = []
        for envelope in _envelopes(rows):
            try:
                verdicts.append(evaluate(envelope))
            except PredicateError:
                verdicts.append(None)
        return pa.array(verdicts, pa.bool_())

    return decide


@lru_cache(maxsize=1000)
def _compiled(expression: str, tree: Node) -> Predicate:
    """Once for each worker: compiled code cannot travel, the tree can."""
    return Predicate.of(expression, tree, DEFAULT_LIMITS)


def _envelopes(rows: Any) -> Iterator[dict[str, object]]:
    """As a follower of the journal builds them."""
    names = [field.name for field in rows.type]
    columns = [rows.field(name).to_pylist() for name in names]
    for values in zip(*columns, strict=True):
        envelope: dict[str, object] = dict(zip(names, values, strict=True))
        if "payload_json" in envelope:
            payload = orjson.loads(envelope.pop("payload_json"))  # type: ignore[arg-type]  # text
            envelope["payload"] = payload
            if envelope["kind"] == _VALUE:
                envelope["prev_value_json"] = payload["prev_value_json"]
        yield envelope
