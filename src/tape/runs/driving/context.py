"""A run's context: everything an app does that must be the same when it is run again.

The app runs from its beginning each time. What its journal holds is given back from there, in
order, without being done again; from where the journal ends it goes on. So between two steps an
app may do anything that has the same result every time, and nothing else.

Branches of an app may be at a step each at the same time. Branches of several steps each begin them
in another order when they are replayed: give those to child runs.
"""

import math
import random as random_module
import uuid as uuid_module
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, NoReturn, TypeVar, overload

import orjson

from tape.errors import (
    EffectFailed,
    InvalidArgument,
    NotFound,
    StaleLease,
    VersionMismatch,
)
from tape.model.budget import ChargeBudget, SetBudget
from tape.model.decision import DRAWN
from tape.model.error_record import traceback_in, without_traceback
from tape.model.event import check_statement
from tape.model.gate import AwaitSignal
from tape.model.json_text import to_json
from tape.model.lease import NewRun
from tape.model.run import Run, RunName
from tape.model.run_end import child_gate
from tape.model.timer import GATE_TIMEOUT, REDRIVE, CancelTimer, SetTimer
from tape.model.value import ANY_VERSION
from tape.ports.user_code import as_failure
from tape.ports.user_traceback import recorded_cause
from tape.runs.ambient import within
from tape.runs.declare import App, ChildId
from tape.runs.driving.effects import Acting
from tape.runs.driving.journal_writes import JournalWrites
from tape.runs.driving.pen import Pen
from tape.runs.driving.replay import DECISION, ReplayLog
from tape.runs.driving.unwinding import Parked, Unwind
from tape.telemetry.tracing import recording

R = TypeVar("R")


class Context(Acting):
    """The context of an asynchronous app."""

    def __init__(
        self,
        run: Run,
        log: ReplayLog,
        pen: Pen,
        *,
        journal: JournalWrites,
        executor: Executor,
    ) -> None:
        super().__init__(run, log, pen, journal, executor)
        self._sleeps = 0
        self._charges = 0
        self._budgets = 0
        self._events = 0
        self._starts = 0
        self._children: set[str] = set()
        self._patches: dict[str, bool] = {}
        self._gates: set[str] = set()
        self._timers: set[str] = set()

    @property
    def run_id(self) -> str:
        return self._run.run_id

    @property
    def app_name(self) -> str:
        return self._run.app_name

    @property
    def user_id(self) -> str:
        return self._run.user_id

    @property
    def session_id(self) -> str:
        return self._run.session_id

    @property
    def invocation_id(self) -> str:
        return self._run.invocation_id

    @property
    def app_version(self) -> str:
        """The version of the app that started this run; it may be older than this code."""
        return self._run.app_version

    @property
    def input(self) -> Any:
        return self._log.input

    @property
    def is_replaying(self) -> bool:
        """Whether the next step is replayed from the journal."""
        return self._log.is_replaying

    @property
    def is_cancelled(self) -> bool:
        """Whether the cancellation of this run was requested. Its next new effect is refused."""
        return bool(self.cancel_reason)

    def now(self) -> datetime:
        """Return the time; every replay of this step returns the same."""
        ms = self._drawn("now", lambda: round(datetime.now(UTC).timestamp() * 1000))
        return datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=ms)

    def uuid(self) -> uuid_module.UUID:
        return uuid_module.UUID(self._drawn("uuid", lambda: str(uuid_module.uuid4())))

    def random(self) -> float:
        """Return a number in 0 <= x < 1; every replay returns the same."""
        drawn: float = self._drawn("random", random_module.random)
        return drawn

    def sample(self, function: Callable[[], R], /, *, name: str = "sample") -> R:
        """Call the function once and return its result, as JSON, now and in every replay.

        The function must not act on the world. An exception from it is not recorded: an app that
        catches it must not take another branch because of it.
        """
        drawn: R = self._drawn(name, function)
        return drawn

    async def decide(
        self,
        model: str,
        request: Any,
        ask: Callable[[], Awaitable[Any]],
        *,
        rationale: str = "",
        policy_version: str = "",
    ) -> Any:
        """Make a decision, such as a model's answer: `ask` is called once, and replays return its
        answer.

        If `ask` raises, that is recorded too, and EffectFailed is raised now and in every replay.
        """
        record = self.decision(model, request, rationale=rationale, policy_version=policy_version)
        is_answered, answer = self.begin_decision(record)
        if is_answered:
            return answer
        with self._order.place() as place:
            try:
                with within(f"decision {model!r}"):
                    response = await ask()
            except Unwind:
                raise
            except BaseException as error:  # noqa: BLE001 - whatever it raises, there is no decision
                failed = as_failure(error)
                await place.come_up()
                return self.fail_decision(record, failed)
            await place.come_up()
            answer = self.end_decision(record, response)
        await self._pen.catch_up()
        return answer

    def patched(self, name: str) -> bool:
        """Return whether this run takes the new branch.

        A run that was past this point before the change, or replays it, takes the old branch. A run
        that took the new branch once always does.
        """
        if name not in self._patches:
            model = f"patched/{name}"
            step = self._log.peek()
            if step is None or (step.kind, step.name) == (DECISION, model):
                self._patches[name] = bool(self._drawn(model, lambda: True))
            else:
                self._patches[name] = False
        return self._patches[name]

    async def gate(self, name: str, payload: Any = None, *, timeout_s: float | None = None) -> Any:
        """Wait for a signal from outside, and return what `send_signal` was given.

        After the time-out the answer is `{"timed_out": true}`. A gate opens once: use another name
        for another wait.
        """
        if name in self._gates:
            raise InvalidArgument(
                f"this run has waited at {name!r} before, and a gate opens once: "
                "give the next wait another name",
                field="name",
            )
        timer = None
        if timeout_s is not None:
            timer = self._timer(f"gate:{name}", timeout_s, GATE_TIMEOUT, {"gate": name})
        wait = AwaitSignal(name, to_json(payload, self._limits, field="payload")).checked(
            self._limits
        )
        self._gates.add(name)
        entered = []
        with self._order.place() as place:
            await place.come_up()
            if timer is not None and self._step("timer set", timer.timer_id) is None:
                self._check_cancelled()
                entered.append(self._pen.enter(timer))
            step = self._step("gate waiting", name)
            if step is None:
                self._check_cancelled()
                entered.append(self._pen.enter(wait))
        for done in entered:
            gate = await done
        if step is None and gate.released:
            return orjson.loads(gate.resolution_json)
        if step is None or name not in self._log.released:
            self._park(f"gate {name}")
        return self._log.released[name]

    def _park(self, waiting_on: str) -> NoReturn:
        parked = Parked(waiting_on[:256])
        self.note(parked)
        raise parked

    async def sleep(self, seconds: float) -> None:
        """Wait, by the store's clock, even if this process ends meanwhile."""
        self._sleeps += 1
        timer = self._timer(f"sleep:{self._sleeps}", seconds, REDRIVE, None)
        await self._set(timer)
        if timer.timer_id not in self._log.fired:
            self._park(f"timer {timer.timer_id}")

    async def set_timer(
        self, timer_id: str, seconds: float, *, kind: str = REDRIVE, payload: Any = None
    ) -> None:
        """Set a timer. When it fires, `/tape/timer/fired/<kind>/<run_id>` is written to the
        journal.
        """
        await self._set(self._timer(timer_id, seconds, kind, payload))

    async def cancel_timer(self, timer_id: str) -> bool:
        """Cancel a timer. Returns whether that was before it fired, the same in every replay."""
        cancel = CancelTimer(timer_id).checked(self._limits)
        with self._order.place() as place:
            ask = partial(self._pen.write, cancel)
            return bool(await self._ask(place, f"cancel_timer/{timer_id}", None, ask))

    def _timer(self, timer_id: str, seconds: float, kind: str, payload: Any) -> SetTimer:
        """A timer that this run has not set before."""
        if not 0 <= seconds < math.inf:
            raise InvalidArgument(f"{seconds} seconds is not a time to wait", field=timer_id)
        if timer_id in self._timers:
            raise InvalidArgument(f"this run has set {timer_id!r} before", field="timer_id")
        text = to_json(payload, self._limits, field="payload")
        timer = SetTimer(
            timer_id, kind=kind, payload_json=text, after_ms=round(seconds * 1000)
        ).checked(self._limits)
        self._timers.add(timer_id)
        return timer

    async def _set(self, timer: SetTimer) -> None:
        with self._order.place() as place:
            await place.come_up()
            if self._step("timer set", timer.timer_id) is not None:
                return
            self._check_cancelled()
            done = self._pen.enter(timer)
        await done

    async def set_value(
        self, namespace: str, key: str, value: Any, *, if_version: int = ANY_VERSION
    ) -> int:
        """Write a value as this run, and return its version.

        With `if_version`, VersionMismatch is raised if the value is at another version, now and in
        every replay.
        """
        name = f"{namespace}/{key}"
        value_json = self._journal.checked_value(namespace, key, value)
        request = {"value": orjson.loads(value_json), "if_version": if_version}
        mismatch = self.decision(f"set_value/{name}", request)._replace(verb=DRAWN)
        with self._order.place() as place:
            await place.come_up()
            if if_version >= 0 and self._is_next(mismatch.model):
                (_, answer) = self.begin_decision(mismatch)
                raise VersionMismatch(answer["mismatch"])
            step = self._step("value changed", name)
            if step is not None:
                version: int = step.payload["value"]["version"]
                return version
            self._check_cancelled()
            await self._pen.flush()
            written = self._journal.set_value(namespace, key, value_json, if_version, self._pen)
            try:
                return await self._journalled(written)
            except VersionMismatch as error:
                # It depends on others, and must be the same ever after.
                self.end_decision(mismatch, {"mismatch": str(error)})
                raise

    def _is_next(self, model: str) -> bool:
        step = self._log.peek()
        return step is not None and (step.kind, step.name) == (DECISION, model)

    async def get_value(self, namespace: str, key: str) -> Any:
        """Return the current value; every replay returns the same. None if there is none."""
        with self._order.place() as place:
            ask = partial(self._journal.get_value, namespace, key)
            return await self._ask(place, f"value/{namespace}/{key}", None, ask)

    async def delete_value(self, namespace: str, key: str) -> bool:
        """Delete a value as this run. Returns whether it existed."""
        name = f"{namespace}/{key}"
        self._journal.check_name(namespace, key)
        nothing = self.decision(f"delete_value/{name}", None)._replace(verb=DRAWN)
        with self._order.place() as place:
            await place.come_up()
            if self._is_next(nothing.model):
                self.begin_decision(nothing)
                return False
            if self._step("value deleted", name) is not None:
                return True
            self._check_cancelled()
            await self._pen.flush()
            deleted = await self._journalled(self._journal.delete_value(namespace, key, self._pen))
            if not deleted:
                self.end_decision(nothing, False)
            return deleted

    async def record(
        self, event_type: str, payload: Any = None, *, entity_type: str = "", entity_id: str = ""
    ) -> None:
        """Record an event as this run, once.

        If the payload has a `schema_version`, it becomes the event's.
        """
        key = f"{self.run_id}/event-{self._events + 1}"
        event = self._journal.event(event_type, payload, (entity_type, entity_id), key)
        self._events += 1
        with self._order.place() as place:
            await place.come_up()
            if not self._log.has_next_event(event_type, event.payload_json):
                check_statement(event)  # an older version may have recorded it unchecked
            if self._step("event recorded", event_type) is None:
                self._check_cancelled()
                await self._pen.flush()
                await self._journalled(self._journal.record(event, self._pen))

    async def set_budget(self, *, usd: float = 0.0, tokens: int = 0) -> None:
        """Set what this run may spend in all; zero means no cap."""
        budget = SetBudget(usd, tokens).checked(self._limits)
        self._enter("a budget")
        self._budgets += 1
        if self._budgets > self._log.budgets:
            await self._pen.write(budget)

    async def charge(self, *, usd: float = 0.0, tokens: int = 0) -> None:
        """Record an expense against the budget."""
        charge = ChargeBudget(usd, tokens, f"charge-{self._charges + 1}").checked(self._limits)
        self._enter("a charge")
        self._charges += 1
        if charge.charge_id not in self._log.charges:
            self._pen.post_happened(charge)
            await self._pen.catch_up()

    @overload
    async def start(
        self, app: App[R], payload: Any = None, *, pool: str = "", name: str = ""
    ) -> ChildId[R]: ...

    @overload
    async def start(
        self, app: str, payload: Any = None, *, pool: str = "", name: str = ""
    ) -> ChildId[Any]: ...

    async def start(
        self, app: App[Any] | str, payload: Any = None, *, pool: str = "", name: str = ""
    ) -> ChildId[Any]:
        """Start a child run and return its id. It runs independently; `result` waits for it."""
        app_name = app.name if isinstance(app, App) else app
        number = name or str(self._starts + 1)
        child = RunName(app_name, self.user_id, self.session_id, f"{self.run_id}/{number}")
        new = NewRun(
            child,
            to_json(payload, self._limits, field="input"),
            pool or (app.pool if isinstance(app, App) else self._run.pool),
            app.version if isinstance(app, App) else "",
            self.run_id,
            self._run.fencing_token,
        ).checked(self._limits)
        self._starts += 1

        async def begin() -> str:
            await self._pen.flush()
            with recording(f"start_run {app_name}") as trace:
                begun = await self._journal.runs.begin_run(new._replace(trace=trace))
            return begun.run.run_id

        request = {"invocation": child.invocation_id}
        with self._order.place() as place:
            run_id: str = await self._ask(place, f"start/{app_name}", request, begin)
        self._children.add(run_id)
        return ChildId(run_id)

    @overload
    async def result(self, run_id: ChildId[R]) -> R: ...

    @overload
    async def result(self, run_id: str) -> Any: ...

    async def result(self, run_id: str) -> Any:
        """Wait for a child run and return its result. If it did not succeed, EffectFailed is
        raised.
        """
        if run_id not in self._children:
            raise InvalidArgument(
                f"{run_id!r} was not started by this run, so it would wait for ever", field="run_id"
            )
        end = await self.gate(child_gate(run_id))
        if end["status"] != "terminal":
            outcome = without_traceback(end["outcome"])
            failed = EffectFailed(f"child run {run_id} is {end['status']}: {outcome}")
            raise failed from recorded_cause(traceback_in(end["outcome"]))
        return end["outcome"]

    async def heartbeat(self) -> None:
        """Renew the lease now. Leases are renewed automatically; call this to be sure at this
        point.
        """
        self.check()
        try:
            run = await self._journal.heartbeat()
        except NotFound:  # it begins with its first step, and there was none
            return
        except StaleLease as error:
            self._pen.lose(error)
            self._pen.check()
            raise
        self.cancel_reason = run.cancel_reason
