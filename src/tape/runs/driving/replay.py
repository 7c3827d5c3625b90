"""A run's journal as its driver needs it: the steps in order, and what became of each.

A step is something the app did, in the order in which it did them: a decision, an effect begun, a
gate come to, a timer, a value or event written. Everything else on the journal is an answer to a
step, or somebody else's: an effect's outcome, a gate's release, a timer that fired, a charge.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

import orjson

from tape.model.entry import NO_TRACE, Entry, Trace
from tape.runs.driving.unwinding import HasDiverged

DECISION = "decision recorded"
"""What a step is that was decided, drawn or could not be decided: an older journal has only this
one verb for all of them.
"""
_STEPS = {
    ("decision", "recorded"): "model",
    ("decision", "drawn"): "model",
    ("decision", "failed"): "model",
    ("effect", "pending"): "tool_name",
    ("gate", "waiting"): "gate_name",
    ("timer", "set"): "timer_id",
    ("value", "changed"): "",
    ("value", "deleted"): "",
    ("event", "recorded"): "",
    ("event", "appended"): "",
}
_OUTCOMES = frozenset({"confirmed", "failed", "unknown", "reconciled", "stuck"})


class RecordedStep(NamedTuple):
    """`kind` is the entry's kind and verb, `name` what of it the app chose."""

    kind: str
    name: str
    seq: int
    payload: Any

    def __str__(self) -> str:
        return f"{self.kind} {self.name}".strip()


class EffectState(NamedTuple):
    """How an effect stands; `response` and `error` are parsed JSON."""

    status: str
    response: Any = None
    error: Any = None


class ReplayLog:
    """Filled with a run's entries in order; then taken from, step by step."""

    def __init__(self) -> None:
        self.effects: dict[str, EffectState] = {}
        self.released: dict[str, Any] = {}
        self.fired: set[str] = set()
        self.charges: set[str] = set()
        self.budgets = 0
        self.last_seq = 0
        self.input: Any = None
        self.trace = NO_TRACE
        """What its beginning carries."""
        self._steps: list[RecordedStep] = []
        self._next = 0

    def add(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            self._add(entry)

    def _add(self, entry: Entry) -> None:
        self.last_seq = entry.seq
        _, _, kind, verb, *_dims = entry.subject.split("/", 5)
        payload = entry.payload
        name = _STEPS.get((kind, verb))
        if name is not None:
            self._steps.append(
                RecordedStep(
                    DECISION if kind == "decision" else f"{kind} {verb}",
                    payload[name] if name else _named(kind, entry),
                    entry.seq,
                    payload,
                )
            )
        if kind == "effect":
            if verb == "pending":
                self.effects[payload["idempotency_key"]] = EffectState("pending")
            elif verb in _OUTCOMES:
                self.effects[payload["idempotency_key"]] = EffectState(
                    payload["status"], payload["response"], payload["error"]
                )
        elif (kind, verb) == ("gate", "released"):
            self.released[payload["gate_name"]] = payload["resolution"]
        elif (kind, verb) == ("timer", "fired"):
            self.fired.add(payload["timer_id"])
        elif (kind, verb) == ("budget", "charged"):
            self.charges.add(payload["last_charge"])
        elif (kind, verb) == ("budget", "set"):
            self.budgets += 1
        elif kind == "run" and entry.seq == 1:
            self.input = payload.get("input")
            self.trace = Trace(entry.trace_id, entry.span_id, entry.parent_span_id)

    @property
    def is_replaying(self) -> bool:
        return self._next < len(self._steps)

    @property
    def position(self) -> int:
        """How many steps have been taken."""
        return self._next

    def peek(self) -> RecordedStep | None:
        """The next recorded step, None where there are no more."""
        return self._steps[self._next] if self._next < len(self._steps) else None

    def has_next_event(self, event_type: str, payload_json: str) -> bool:
        """Whether the next recorded step is this very event."""
        step = self.peek()
        if step is None or (step.kind, step.name) != ("event recorded", event_type):
            return False
        return bool(step.payload == orjson.loads(payload_json))

    def take(self, kind: str, name: str) -> RecordedStep | None:
        """The recorded step that this one repeats, None if it is a new one."""
        step = self.peek()
        if step is None:
            return None
        if (step.kind, step.name) != (kind, name):
            raise HasDiverged(
                f"step {self._next + 1}: the journal has {step} (seq {step.seq}), "
                f"the code does {kind} {name}".rstrip()
            )
        self._next += 1
        return step

    def check_request(self, step: RecordedStep, request: Any) -> None:
        """A recorded answer must not be given to another question."""
        if step.payload["request"] != request:
            raise HasDiverged(
                f"step {self._next}: {step} (seq {step.seq}) was done with "
                f"{step.payload['request']!r}, the code does it with {request!r}"
            )

    def check_finished(self, how: str = "ends") -> None:
        """A run that ends must have done all that is recorded."""
        step = self.peek()
        if step is not None:
            raise HasDiverged(
                f"the code {how} after step {self._next}, the journal goes on with "
                f"{step} (seq {step.seq})"
            )


def _named(kind: str, entry: Entry) -> str:
    if kind == "value":
        value = entry.payload["value"]
        return f"{value['namespace']}/{value['key']}"
    return entry.event_type if kind == "event" else ""
