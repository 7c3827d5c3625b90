"""What each message is to become, decided before the turn that writes it, by one revision.

It may take a while: bodies are parsed, keys are found in them. So it is done in slices, between
which everything else of the process has a turn, and in a thread for bodies that take longer than a
slice.
"""

import asyncio
from collections.abc import Iterator, Sequence
from time import perf_counter
from typing import Any, Final

from tape.errors import InvalidArgument, MessageRefused
from tape.model.accept_messages import PlannedMessage, position_number
from tape.model.directive import DispatchPlan, directives_applied, plan_dispatch
from tape.model.entry import Entry, Trace
from tape.model.lease import NewRun
from tape.model.message import LONGEST, SourceMessage, invocation_of, is_storable, run_input
from tape.model.run import RunName
from tape.model.run_write import clipped
from tape.model.subscription import MESSAGE_USER
from tape.model.subscription_spec import Control, SubscriptionSpec
from tape.settings import KIB, Limits
from tape.subscriptions.keys import dedup_key, dedup_rule
from tape.subscriptions.letters import letter_of

SLICE_S: Final = 0.002
LONG_BODY: Final = 64 * KIB


class Planner:
    """Makes messages ready to be accepted, by what one revision says."""

    def __init__(self, spec: SubscriptionSpec, limits: Limits) -> None:
        self.spec = spec
        self.window_ms = spec.dedup.window_secs * 1000 if spec.dedup is not None else 0
        self.key_rule = dedup_rule(spec)
        self._limits = limits
        self._routes: dict[tuple[str, str], NewRun] = {}
        """Of each app and pool a run that was checked, to be given a name and an input."""

    def check_routes(self) -> None:
        """Refuse a revision by which some run could never be begun."""
        spec, directives = self.spec, self.spec.headers.directives if self.spec.headers else ()
        fields = {spec.dispatch.app: "spec.dispatch.playbook"}
        pools = {spec.dispatch.execution_pool: "spec.dispatch.execution_pool"}
        for number, directive in enumerate(directives):
            field = f"spec.headers.directives[{number}]"
            if directive.controls is Control.PLAYBOOK:
                fields |= dict.fromkeys(directive.allowed, f"{field}.allowed")
            elif directive.controls is Control.EXECUTION_POOL:
                pools |= dict.fromkeys(directive.allowed, f"{field}.allowed")
            elif directive.controls is Control.PRIORITY:
                pools |= dict.fromkeys((pool for _value, pool in directive.pools), f"{field}.map")
        for app, field in fields.items():
            self._check_route(app, "", field)
        for pool, field in pools.items():
            self._check_route(spec.dispatch.app, pool, field)

    def _check_route(self, app: str, pool: str, field: str) -> None:
        try:
            self._route(app, pool)
        except InvalidArgument as fault:
            raise InvalidArgument(f"no run can be begun by it: {fault}", field=field) from None

    async def plan_all(self, messages: Sequence[SourceMessage]) -> list[PlannedMessage]:
        """In order."""
        planned: list[PlannedMessage] = []
        until = perf_counter() + SLICE_S
        for message in messages:
            if len(message.body) > LONG_BODY:
                planned.append(await asyncio.to_thread(self.plan, message))
            else:
                planned.append(self.plan(message))
            if perf_counter() >= until:
                await asyncio.sleep(0)
                until = perf_counter() + SLICE_S
        return planned

    def plan(self, message: SourceMessage) -> PlannedMessage:
        spec, place = self.spec, message.place
        shown_id = clipped(message.shown_id, self._limits)
        number = position_number(message)
        plan = plan_dispatch(spec.dispatch, spec.headers, message.headers)
        try:
            input_json = run_input(message, spec, plan, self._limits)
        except MessageRefused as refused:
            letter = letter_of(spec.name, message, refused)
            return PlannedMessage(place, shown_id, number, letter=letter)
        run = self.run_of(place, plan.app, plan.pool, plan.trace, input_json)
        audit = self._audit(message, plan, run) if plan.is_audited else None
        key = dedup_key(message, spec, plan) if self.window_ms else ""
        return PlannedMessage(place, shown_id, number, key, run, audit, is_sampled=plan.is_sampled)

    def run_of(self, place: str, app: str, pool: str, trace: Trace, input_json: str) -> NewRun:
        """The run of the message of a place."""
        name = RunName(app, MESSAGE_USER, self.spec.name, invocation_of(place, self._limits))
        return self._route(app, pool)._replace(name=name, input_json=input_json, trace=trace)

    def renamed(self, planned: PlannedMessage, attempt: int) -> PlannedMessage:
        """With another name for its run: the one it had belongs to a run of somebody else."""
        if planned.run is None:
            return planned
        name = planned.run.name
        invocation = invocation_of(f"{planned.place}~{attempt}", self._limits)
        run = planned.run._replace(name=name._replace(invocation_id=invocation))
        audit = planned.audit
        if audit is not None:
            audit = {**audit, "run_id": run.name.run_id}
        return planned._replace(run=run, audit=audit)

    def _route(self, app: str, pool: str) -> NewRun:
        found = self._routes.get((app, pool))
        if found is None:
            # Whatever the place and the input are: they are bounded, and all ids are of one length.
            run = NewRun(RunName(app, MESSAGE_USER, self.spec.name, ""), pool=pool)
            found = self._routes[app, pool] = run.checked(self._limits)
        return found

    def _audit(self, message: SourceMessage, plan: DispatchPlan, run: NewRun) -> dict[str, Any]:
        return directives_applied(message, self.spec.dispatch, plan, run.name.run_id)


def check_messages(messages: Sequence[SourceMessage]) -> None:
    """Refuse what no source may hand over: a place or a time that could not be kept."""
    for number, message in enumerate(messages):
        place = message.place
        if not (message.origin and message.position):
            raise InvalidArgument("needs an origin and a position", field=f"messages[{number}]")
        if len(place) > LONGEST or not place.isascii() or "\0" in place:
            raise InvalidArgument(
                f"a place is plain ASCII of at most {LONGEST} characters",
                field=f"messages[{number}].position",
            )
        if not is_storable(message.timestamp_ms):
            raise InvalidArgument("must have 64 bits", field=f"messages[{number}].timestamp_ms")


def chunks(
    messages: Sequence[SourceMessage], most: int, most_bytes: int
) -> Iterator[Sequence[SourceMessage]]:
    """Parts of them in order, each of so many messages and bytes at most, or one message."""
    first, size = 0, 0
    for place, message in enumerate(messages):
        length = len(message.body) + sum(len(name) + len(value) for name, value in message.headers)
        if place > first and (place - first >= most or size + length > most_bytes):
            yield messages[first:place]
            first, size = place, 0
        size += length
    if first < len(messages):
        yield messages[first:]


def is_run_of(first: Entry, name: str, place: str) -> bool:
    """Whether a run with this first entry was begun for the message of a place."""
    given = first.payload.get("input")
    block = given.get("message") if isinstance(given, dict) else None
    return isinstance(block, dict) and (block.get("subscription"), block.get("place")) == (
        name, place,
    )  # fmt: skip
