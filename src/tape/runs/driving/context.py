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
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Literal, ParamSpec, TypeVar, overload

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
from tape.model.poll import Polled, poll_request
from tape.model.run import RunName
from tape.model.run_end import child_gate
from tape.model.timer import GATE_TIMEOUT, REDRIVE, CancelTimer, SetTimer
from tape.model.value import ANY_VERSION
from tape.ports.user_traceback import recorded_cause
from tape.runs.declare import App, ChildId, DeclaredEffect
from tape.runs.driving.effect_loop import EffectLoop
from tape.runs.driving.journal_writes import JournalWrites
from tape.runs.driving.polls import Polls
from tape.runs.driving.steps import RunSteps
from tape.telemetry.tracing import recording

P = ParamSpec("P")
R = TypeVar("R")


class RunFacts:
    """What an app can read of its run without taking a step, in a context of either kind."""

    def __init__(self, steps: RunSteps) -> None:
        self._steps = steps

    @property
    def run_id(self) -> str:
        return self._steps.run.run_id

    @property
    def app_name(self) -> str:
        return self._steps.run.app_name

    @property
    def user_id(self) -> str:
        return self._steps.run.user_id

    @property
    def session_id(self) -> str:
        return self._steps.run.session_id

    @property
    def invocation_id(self) -> str:
        return self._steps.run.invocation_id

    @property
    def app_version(self) -> str:
        """The version of the app that started this run; it may be older than this code."""
        return self._steps.run.app_version

    @property
    def input(self) -> Any:
        return self._steps.log.input

    @property
    def is_replaying(self) -> bool:
        """Whether the next step is replayed from the journal."""
        return self._steps.log.is_replaying

    @property
    def is_cancelled(self) -> bool:
        """Whether the cancellation of this run was requested. Its next new effect is refused."""
        return self._steps.is_cancelled


class Context(RunFacts):
    """The context of an asynchronous app."""

    def __init__(self, effects: EffectLoop, journal: JournalWrites, polls: Polls) -> None:
        super().__init__(effects.steps)
        self._effects = effects
        self._decisions = effects.decisions
        self._journal = journal
        self._polls = polls
        self._limits = self._steps.limits
        self._sleeps = 0
        self._charges = 0
        self._budgets = 0
        self._events = 0
        self._starts = 0
        self._children: set[str] = set()
        self._patches: dict[str, bool] = {}
        self._gates: set[str] = set()
        self._timers: set[str] = set()

    async def call(
        self, effect: DeclaredEffect[P, Any], /, *args: P.args, **kwargs: P.kwargs
    ) -> Any:
        """Execute an effect of either kind: an asynchronous body here, another in a thread."""
        return await self._effects.call(effect, args, kwargs)

    def call_same_colour(
        self, effect: DeclaredEffect[Any, Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        if not effect.is_async:
            raise InvalidArgument(
                f"{effect.spec.name!r} is not asynchronous and this app is: "
                f"await ctx.call({effect.spec.name}, …)"
            )
        return self.call(effect, *args, **kwargs)

    def now(self) -> datetime:
        """Return the time; every replay of this step returns the same."""
        ms = self._decisions.draw("now", lambda: round(datetime.now(UTC).timestamp() * 1000))
        return datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=ms)

    def uuid(self) -> uuid_module.UUID:
        return uuid_module.UUID(self._decisions.draw("uuid", lambda: str(uuid_module.uuid4())))

    def random(self) -> float:
        """Return a number in 0 <= x < 1; every replay returns the same."""
        drawn: float = self._decisions.draw("random", random_module.random)
        return drawn

    def sample(self, function: Callable[[], R], /, *, name: str = "sample") -> R:
        """Call the function once and return its result, as JSON, now and in every replay.

        The function must not act on the world. An exception from it is not recorded: an app that
        catches it must not take another branch because of it.
        """
        drawn: R = self._decisions.draw(name, function)
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
        record = self._decisions.new(
            model, request, rationale=rationale, policy_version=policy_version
        )
        return await self._decisions.decide(record, ask)

    def patched(self, name: str) -> bool:
        """Return whether this run takes the new branch.

        A run that was past this point before the change, or replays it, takes the old branch. A run
        that took the new branch once always does.
        """
        if name not in self._patches:
            model = f"patched/{name}"
            is_new = not self._steps.log.is_replaying or self._decisions.is_next(model)
            self._patches[name] = is_new and bool(self._decisions.draw(model, lambda: True))
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
        with self._steps.place() as place:
            await place.come_up()
            if timer is not None and self._steps.take("timer set", timer.timer_id) is None:
                self._steps.check_cancelled()
                entered.append(self._steps.pen.enter(timer))
            step = self._steps.take("gate waiting", name)
            if step is None:
                self._steps.check_cancelled()
                entered.append(self._steps.pen.enter(wait))
        for done in entered:
            gate = await done
        if step is None and gate.released:
            return orjson.loads(gate.resolution_json)
        if step is None or name not in self._steps.log.released:
            self._steps.park(f"gate {name}")
        return self._steps.log.released[name]

    async def sleep(self, seconds: float) -> None:
        """Wait, by the store's clock, even if this process ends meanwhile."""
        self._sleeps += 1
        timer = self._timer(f"sleep:{self._sleeps}", seconds, REDRIVE, None)
        await self._set(timer)
        if timer.timer_id not in self._steps.log.fired:
            self._steps.park(f"timer {timer.timer_id}")

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
        with self._steps.place() as place:
            ask = partial(self._steps.pen.write, cancel)
            return bool(
                await self._decisions.ask_journal(place, f"cancel_timer/{timer_id}", None, ask)
            )

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
        with self._steps.place() as place:
            await place.come_up()
            if self._steps.take("timer set", timer.timer_id) is not None:
                return
            self._steps.check_cancelled()
            done = self._steps.pen.enter(timer)
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
        mismatch = self._decisions.new(f"set_value/{name}", request)._replace(verb=DRAWN)
        with self._steps.place() as place:
            await place.come_up()
            if if_version >= 0 and self._decisions.is_next(mismatch.model):
                (_, answer) = self._decisions.begin(mismatch)
                raise VersionMismatch(answer["mismatch"])
            step = self._steps.take("value changed", name)
            if step is not None:
                version: int = step.payload["value"]["version"]
                return version
            self._steps.check_cancelled()
            await self._steps.pen.flush()
            written = self._journal.set_value(namespace, key, value_json, if_version)
            try:
                return await self._steps.journalled(written)
            except VersionMismatch as error:
                # It depends on others, and must be the same ever after.
                self._decisions.end(mismatch, {"mismatch": str(error)})
                raise

    async def get_value(self, namespace: str, key: str) -> Any:
        """Return the current value; every replay returns the same. None if there is none."""
        with self._steps.place() as place:
            ask = partial(self._journal.get_value, namespace, key)
            return await self._decisions.ask_journal(place, f"value/{namespace}/{key}", None, ask)

    async def delete_value(self, namespace: str, key: str) -> bool:
        """Delete a value as this run. Returns whether it existed."""
        name = f"{namespace}/{key}"
        self._journal.check_name(namespace, key)
        nothing = self._decisions.new(f"delete_value/{name}", None)._replace(verb=DRAWN)
        with self._steps.place() as place:
            await place.come_up()
            if self._decisions.is_next(nothing.model):
                self._decisions.begin(nothing)
                return False
            if self._steps.take("value deleted", name) is not None:
                return True
            self._steps.check_cancelled()
            await self._steps.pen.flush()
            deleted = await self._steps.journalled(self._journal.delete_value(namespace, key))
            if not deleted:
                self._decisions.end(nothing, False)
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
        with self._steps.place() as place:
            await place.come_up()
            if not self._steps.log.has_next_event(event_type, event.payload_json):
                check_statement(event)  # an older version may have recorded it unchecked
            if self._steps.take("event recorded", event_type) is None:
                self._steps.check_cancelled()
                await self._steps.pen.flush()
                await self._steps.journalled(self._journal.record(event))

    async def poll(
        self,
        *,
        source: Literal["nats", "kafka", "pubsub", "file"],
        auth: str = "",
        subscription: str = "",
        stream: str = "",
        consumer: str = "",
        topic: str = "",
        group: str = "",
        folder: str = "",
        pattern: str = "",
        batch: int = 100,
        timeout_ms: int | None = None,
        ack: Literal["on_success", "auto", "manual"] = "on_success",
        payload_from: Literal["message.json", "message.body", "message.attributes"] = (
            "message.json"
        ),
    ) -> Polled:
        """Fetch messages of a source, at most `batch` within `timeout_ms`; every replay returns the
        same. `auth` is the alias of a credential in the wallet.

        They are acknowledged when the run has ended well; with `auto`, as soon as the journal has
        them; with `manual`, by `ack`. What is not acknowledged comes again, to another poll: know
        it by its `place`. If the source cannot be had, EffectFailed is raised, now and in every
        replay.
        """
        fields = {
            "auth": auth,
            "subscription": subscription,
            "stream": stream,
            "consumer": consumer,
            "topic": topic,
            "group": group,
            "folder": folder,
            "pattern": pattern,
        }
        request = poll_request(
            source, fields, batch=batch, timeout_ms=timeout_ms, ack=ack, payload_from=payload_from
        )
        return await self._polls.poll(request)

    async def ack(self, receipts: Sequence[str]) -> int:
        """Acknowledge messages by the `receipts` of a manual poll. Returns how many were still in
        hand, the same in every replay: none of a poll before the run waited or its process ended.
        """
        return await self._polls.ack(receipts)

    async def set_budget(self, *, usd: float = 0.0, tokens: int = 0) -> None:
        """Set what this run may spend in all; zero means no cap."""
        budget = SetBudget(usd, tokens).checked(self._limits)
        self._steps.enter("a budget")
        self._budgets += 1
        if self._budgets > self._steps.log.budgets:
            await self._steps.pen.write(budget)

    async def charge(self, *, usd: float = 0.0, tokens: int = 0) -> None:
        """Record an expense against the budget."""
        charge = ChargeBudget(usd, tokens, f"charge-{self._charges + 1}").checked(self._limits)
        self._steps.enter("a charge")
        self._charges += 1
        if charge.charge_id not in self._steps.log.charges:
            self._steps.pen.post_happened(charge)
            await self._steps.pen.catch_up()

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
        """Start a child run and return its id. It runs independently; `result` waits for it.

        It runs in `pool`, else in the pool that its app names, else in the pool of this run.
        """
        app_name = app.name if isinstance(app, App) else app
        number = name or str(self._starts + 1)
        child = RunName(app_name, self.user_id, self.session_id, f"{self.run_id}/{number}")
        new = NewRun(
            child,
            to_json(payload, self._limits, field="input"),
            pool or (app.own_pool if isinstance(app, App) else "") or self._steps.run.pool,
            app.version if isinstance(app, App) else "",
            self.run_id,
            self._steps.run.fencing_token,
        ).checked(self._limits)
        self._starts += 1

        async def begin() -> str:
            await self._steps.pen.flush()
            with recording(f"start_run {app_name}") as trace:
                begun = await self._journal.runs.begin_run(new._replace(trace=trace))
            return begun.run.run_id

        request = {"invocation": child.invocation_id}
        with self._steps.place() as place:
            run_id: str = await self._decisions.ask_journal(
                place, f"start/{app_name}", request, begin
            )
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
        self._steps.check()
        try:
            run = await self._journal.heartbeat()
        except NotFound:  # it begins with its first step, and there was none
            return
        except StaleLease as error:
            self._steps.pen.lose(error)
            self._steps.pen.check()
            raise
        self._steps.cancel_reason = run.cancel_reason
