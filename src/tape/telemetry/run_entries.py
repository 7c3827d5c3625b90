"""Counting what becomes of runs, by the entries that a process commits."""

from collections.abc import Iterable

from tape.model.entry import Draft, Kind
from tape.telemetry.instruments import Counter, Family
from tape.telemetry.metrics import EFFECT_OUTCOMES, OBLIGATIONS_ENDED, RUNS_ENDED

_COUNTED: dict[str, tuple[Family[Counter], frozenset[str]]] = {
    Kind.RUN.value: (RUNS_ENDED, frozenset({"terminal", "failed", "cancelled", "stuck"})),
    Kind.EFFECT.value: (
        EFFECT_OUTCOMES,
        frozenset({"confirmed", "failed", "unknown", "reconciled", "stuck"}),
    ),
    Kind.OBLIGATION.value: (OBLIGATIONS_ENDED, frozenset({"compensated", "stuck"})),
}


def count_entries(entries: Iterable[Draft]) -> None:
    for entry in entries:
        counted = _COUNTED.get(entry.kind)
        if counted is not None:
            family, verbs = counted
            verb = entry.subject.split("/", 4)[3]
            if verb in verbs:
                family.labels(verb).inc()
