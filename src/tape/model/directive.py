"""Headers as instructions: which app and pool a message gets, and what else its headers may decide.

Only headers that the subscription lists decide anything, and only by values that it allows. A value
that is not allowed leaves the default as it is, and is written down as refused. Of a header that
stands several times the last value counts. The engine is pure; the server, the command line and
Spark decide by it.

What a value may do is bounded, too: one that is not UTF-8 or longer than `LONGEST_VALUE` is
refused, and of a refused one only the beginning is written down. A key is taken whatever it is, as
its digest if it is too long for one.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, assert_never

from tape.model.entry import NO_TRACE, Trace
from tape.model.message import Header, SourceMessage, bounded_key, lower_name
from tape.model.subscription_spec import Control, DirectiveSpec, DispatchSpec, HeaderSpec
from tape.model.trace_context import TRACE_HEADERS, TraceContext, read_trace_context

LONGEST_VALUE: Final = 512
SHOWN_VALUE: Final = 128
_SAMPLED: Final = 0b1


class AppliedDirective(NamedTuple):
    header: str
    controls: Control
    effective_value: str


class RefusedDirective(NamedTuple):
    header: str
    controls: Control
    value: str


class DispatchPlan(NamedTuple):
    """What becomes of a message. `idempotency_key` is empty where no header gives one.

    `traceparent`, `tracestate` and `baggage` are W3C texts, empty where they are not propagated.
    """

    app: str
    pool: str
    idempotency_key: str = ""
    content_type: str = ""
    schema_hint: str = ""
    trace: Trace = NO_TRACE
    traceparent: str = ""
    tracestate: str = ""
    baggage: str = ""
    applied: tuple[AppliedDirective, ...] = ()
    refused: tuple[RefusedDirective, ...] = ()
    is_rerouted: bool = False
    """Whether the app or the pool is not the default."""

    @property
    def is_audited(self) -> bool:
        """Whether the journal is told of it: routes and refusals are, keys and hints are not."""
        return self.is_rerouted or bool(self.refused)

    @property
    def is_sampled(self) -> bool:
        """Whether who began the trace records it."""
        return bool(self.traceparent) and bool(int(self.traceparent[-2:], 16) & _SAMPLED)


def plan_dispatch(
    dispatch: DispatchSpec, rules: HeaderSpec | None, headers: Sequence[Header]
) -> DispatchPlan:
    """Decide what the headers say, within what the rules allow."""
    if rules is None:
        return DispatchPlan(dispatch.app, dispatch.execution_pool)
    values = _listed_values(rules, headers)
    chosen: dict[Control, AppliedDirective] = {}
    refused: list[RefusedDirective] = []
    for directive in rules.directives:
        if directive.header not in values:
            continue
        came = values[directive.header][-1]
        effective = _effective(directive, came)
        if effective is None:
            refused.append(RefusedDirective(directive.header, directive.controls, _shown(came)))
        elif effective:
            chosen[directive.controls] = AppliedDirective(
                directive.header, directive.controls, effective
            )
    if Control.EXECUTION_POOL in chosen:
        chosen.pop(Control.PRIORITY, None)  # who names a pool has said more than who ranks
    context = _trace_context(rules, values)
    said = {control: applied.effective_value for control, applied in chosen.items()}
    app = said.get(Control.PLAYBOOK, dispatch.app)
    pool = said.get(Control.EXECUTION_POOL) or said.get(Control.PRIORITY, dispatch.execution_pool)
    return DispatchPlan(
        app,
        pool,
        said.get(Control.IDEMPOTENCY_KEY, ""),
        said.get(Control.CONTENT_TYPE, ""),
        said.get(Control.SCHEMA_HINT, ""),
        Trace(context.trace_id, "", context.span_id) if context.traceparent else NO_TRACE,
        context.traceparent,
        context.tracestate,
        context.baggage,
        tuple(chosen.values()),
        tuple(refused),
        (app, pool) != (dispatch.app, dispatch.execution_pool),
    )


def directives_applied(
    message: SourceMessage, dispatch: DispatchSpec, plan: DispatchPlan, run_id: str
) -> dict[str, Any]:
    """The payload of `message_directives_applied`, for a plan that is audited. A route that is not
    overridden is null in it, as is the trace where there is none."""
    return {
        "message_id": message.shown_id[:LONGEST_VALUE],
        "run_id": run_id,
        "applied": [directive._asdict() for directive in plan.applied],
        "refused": [directive._asdict() for directive in plan.refused],
        "route_override": {
            "playbook": plan.app if plan.app != dispatch.app else None,
            "pool": plan.pool if plan.pool != dispatch.execution_pool else None,
        },
        "trace": {"traceparent": plan.traceparent, "tracestate": plan.tracestate}
        if plan.traceparent
        else None,
    }


def _listed_values(rules: HeaderSpec, headers: Sequence[Header]) -> dict[str, list[bytes]]:
    """The values of the headers that may decide something, in the order in which they came. What
    is not in here has no way into the plan."""
    listed = {directive.header for directive in rules.directives}
    if rules.propagates_trace:
        listed.update(TRACE_HEADERS)
    found: dict[str, list[bytes]] = {}
    for spelled, value in headers:
        name = lower_name(spelled)
        if name in listed:
            found.setdefault(name, []).append(value)
    return found


def _effective(directive: DirectiveSpec, came: bytes) -> str | None:
    """What a value makes of its control; None if it is not allowed, empty if it says nothing."""
    try:
        value = came.decode()
    except UnicodeDecodeError:
        return None
    match directive.controls:
        case Control.PLAYBOOK | Control.EXECUTION_POOL:
            return value if value and value in directive.allowed else None
        case Control.PRIORITY:
            return dict(directive.pools).get(value) or None
        case Control.IDEMPOTENCY_KEY:
            return (
                bounded_key(value) if not directive.allowed or value in directive.allowed else None
            )
        case Control.CONTENT_TYPE | Control.SCHEMA_HINT:
            if len(came) > LONGEST_VALUE or (directive.allowed and value not in directive.allowed):
                return None
            return value
        case _:
            assert_never(directive.controls)


def _shown(came: bytes) -> str:
    """The beginning of a value, for the audit: a sender must not fill the journal with refusals."""
    text = came[: 4 * SHOWN_VALUE].decode(errors="replace")
    return text if len(text) <= SHOWN_VALUE else text[:SHOWN_VALUE] + "…"


def _trace_context(rules: HeaderSpec, values: Mapping[str, Sequence[bytes]]) -> TraceContext:
    if not rules.propagates_trace:
        return TraceContext()
    return read_trace_context(values, rules.baggage_allowlist)
