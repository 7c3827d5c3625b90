"""A run's context: everything an app does that must be the same when it is run again.

The app runs from its beginning each time. What its journal holds is given back from there, in
order, without being done again; from where the journal ends it goes on. So between two steps an
app may do anything that has the same result every time, and nothing else.
"""

import asyncio
import inspect
import random as random_module
import uuid as uuid_module
from collections.abc import Awaitable, Callable
from contextvars import copy_context
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, ParamSpec, TypeVar

import orjson

from tape.errors import (
    BudgetExceeded,
    EffectFailed,
    InvalidArgument,
    RunCancelled,
    VersionMismatch,
)
from tape.model.budget import ChargeBudget, SetBudget
from tape.model.decision import RecordDecision
from tape.model.gate import AwaitSignal
from tape.model.json_text import to_json
from tape.model.lease import NewRun
from tape.model.run import Run, RunName
from tape.model.run_end import child_gate
from tape.model.timer import GATE_TIMEOUT, REDRIVE, CancelTimer, SetTimer
from tape.model.value import ANY_VERSION
from tape.runs.ambient import EFFECT_KEY
from tape.runs.boundary import boundary
from tape.runs.declare import App, Effect, Spend
from tape.runs.effect_call import LIMITS, EffectCall, Settled
from tape.runs.journal_writes import JournalWrites
from tape.runs.pen import Pen
from tape.runs.replay import ReplayLog
from tape.runs.signals import Parked

P = ParamSpec("P")
R = TypeVar("R")

InThread = Callable[[Callable[[], Any]], Awaitable[Any]]


class Context:
    """What an asynchronous app is given."""

    def __init__(
        self,
        run: Run,
        log: ReplayLog,
        pen: Pen,
        *,
        journal: JournalWrites,
        in_thread: InThread,
    ) -> None:
        self._run = run
        self._log = log
        self._pen = pen
        self._journal = journal
        self._in_thread = in_thread
        self._decisions = 0
        self._calls = 0
        self._sleeps = 0
        self._children = 0
        self._charges = 0
        self._budgets = 0
        self._events = 0
        self._patches: dict[str, bool] = {}
        self._gates: set[str] = set()
        self._timers: set[str] = set()
        self._acting = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._parked: Parked | None = None
        self.cancel_reason = run.cancel_reason

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
        """The version of the app that started this run, which may be older than this code."""
        return self._run.app_version

    @property
    def input(self) -> Any:
        return self._log.input

    @property
    def is_replaying(self) -> bool:
        """Whether the next step is one that has been done before."""
        return self._log.is_replaying

    @property
    def is_cancelled(self) -> bool:
        """Whether somebody has asked for the end of this run. Its next new effect is refused."""
        return bool(self.cancel_reason)

    async def call(self, effect: Effect[P, Any], /, *args: P.args, **kwargs: P.kwargs) -> Any:
        """Do an effect of either kind: an asynchronous body here, another in a thread."""
        self._acting += 1
        self._idle.clear()
        try:
            return await self._call(effect, args, kwargs)
        finally:
            self._acting -= 1
            if not self._acting:
                self._idle.set()

    async def _call(
        self, effect: Effect[Any, Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        try:
            call = await self.begin_act(effect, args, kwargs)
        except Settled as settled:
            return settled.result
        while True:
            boundary(f"before act {effect.spec.name}")
            token = EFFECT_KEY.set(call.key)
            try:
                result = await self._do(effect, args, kwargs)
            except Exception as error:  # noqa: BLE001 - whatever it raises is the act's failure
                await asyncio.sleep(await self.act_failed(call, error))
            else:
                return await self.act_done(call, result)
            finally:
                EFFECT_KEY.reset(token)

    async def wind_down(self, parked: Parked) -> None:
        """Begin nothing new, and wait for what other branches of the app are doing."""
        self._parked = parked
        await self._idle.wait()

    async def begin_act(
        self, effect: Effect[Any, Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> EffectCall:
        """Write down what is about to be done; Settled is raised if it was done before."""
        self._check()
        if effect.spec.estimate is not None:
            await self._admit(effect.spec.name, effect.spec.estimate(*args, **kwargs))
        call = EffectCall(
            effect.spec,
            args,
            kwargs,
            run_id=self.run_id,
            decision_index=self._decisions,
            call_index=self._calls,
        )
        self._calls += 1
        await call.begin(self._log, self._pen)
        return call

    async def _admit(self, tool_name: str, spend: Spend) -> None:
        async def ask() -> str:
            await self._pen.flush()
            admission = await self._journal.runs.admit_budget(self.run_id, spend.usd, spend.tokens)
            return admission.reason

        request = {"usd": spend.usd, "tokens": spend.tokens}
        if reason := await self.decide(f"admit/{tool_name}", request, ask):
            raise BudgetExceeded(f"{tool_name}: {reason}")

    async def act_failed(self, call: EffectCall, error: Exception) -> float:
        return await call.failed(self._pen, error)

    async def act_done(self, call: EffectCall, result: Any) -> Any:
        return await call.done(self._pen, result)

    def call_same_colour(
        self, effect: Effect[Any, Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        if not inspect.iscoroutinefunction(effect.body):
            raise InvalidArgument(
                f"{effect.spec.name!r} is not asynchronous and this app is: "
                f"await ctx.call({effect.spec.name}, …)"
            )
        return self.call(effect, *args, **kwargs)

    async def _do(
        self, effect: Effect[Any, Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        if inspect.iscoroutinefunction(effect.body):
            return await effect.body(*args, **kwargs)
        return await self._in_thread(partial(copy_context().run, effect.body, *args, **kwargs))

    def now(self) -> datetime:
        """The time, the same each time this step is replayed."""
        ms = self._drawn("now", lambda: round(datetime.now(UTC).timestamp() * 1000))
        return datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=ms)

    def uuid(self) -> uuid_module.UUID:
        return uuid_module.UUID(self._drawn("uuid", lambda: str(uuid_module.uuid4())))

    def random(self) -> float:
        """A number in 0 <= x < 1."""
        drawn: float = self._drawn("random", random_module.random)
        return drawn

    def sample(self, function: Callable[[], R], /, *, name: str = "sample") -> R:
        """What the function returns, as JSON, once and for all. It must not act on the world."""
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
        """A decision, such as a model's answer: asked for once, and replayed from then on."""
        step = self._log.take("decision recorded", model)
        if step is not None:
            self._log.check_request(step, orjson.loads(orjson.dumps(request)))
            self._count_decision()
            return step.payload["response"]
        self._check_cancelled()
        response = await ask()
        response_json = to_json(response, LIMITS, field=f"answer of {model}")
        self._pen.post(
            RecordDecision(
                self._decisions,
                model,
                to_json(request, LIMITS, field="request"),
                response_json,
                rationale,
                policy_version,
            )
        )
        self._count_decision()
        return orjson.loads(response_json)

    def patched(self, name: str) -> bool:
        """Whether this run is to take the new way. Runs that were past this point before the
        change, or are replaying it, go the old one; and one that took the new way keeps to it.
        """
        if name not in self._patches:
            model = f"patched/{name}"
            step = self._log.peek()
            if step is None or (step.kind, step.name) == ("decision recorded", model):
                self._patches[name] = bool(self._drawn(model, lambda: True))
            else:
                self._patches[name] = False
        return self._patches[name]

    def _drawn(self, model: str, draw: Callable[[], Any]) -> Any:
        step = self._log.take("decision recorded", model)
        if step is not None:
            self._count_decision()
            return step.payload["response"]
        self._check()
        drawn_json = to_json(draw(), LIMITS, field=model)
        self._pen.post(RecordDecision(self._decisions, model, response_json=drawn_json))
        self._count_decision()
        return orjson.loads(drawn_json)

    def _count_decision(self) -> None:
        self._decisions += 1
        self._calls = 0

    async def gate(self, name: str, payload: Any = None, *, timeout_s: float | None = None) -> Any:
        """Wait for the word of somebody outside; what `send_signal` was given.

        Past the time-out it is `{"timed_out": true}`. A gate opens once: another wait needs
        another name.
        """
        if name in self._gates:
            raise InvalidArgument(
                f"this run has waited at {name!r} before, and a gate opens once: "
                "give the next wait another name",
                field="name",
            )
        self._gates.add(name)
        if timeout_s is not None:
            await self._timer(f"gate:{name}", timeout_s, GATE_TIMEOUT, {"gate": name})
        if self._log.take("gate waiting", name) is None:
            self._check_cancelled()
            waiting = AwaitSignal(name, to_json(payload, LIMITS, field="payload"))
            gate = await self._pen.write(waiting)
            if gate.released:
                return orjson.loads(gate.resolution_json)
        elif name in self._log.released:
            return self._log.released[name]
        raise Parked(f"gate {name}"[:256])

    async def sleep(self, seconds: float) -> None:
        """Wait so long, by the store's clock, even if the process does not live that long."""
        if seconds < 0:
            raise InvalidArgument("must not be negative", field="seconds")
        self._sleeps += 1
        timer_id = f"sleep:{self._sleeps}"
        await self._timer(timer_id, seconds, REDRIVE, None)
        if timer_id not in self._log.fired:
            raise Parked(f"timer {timer_id}")

    async def set_timer(
        self, timer_id: str, seconds: float, *, kind: str = REDRIVE, payload: Any = None
    ) -> None:
        """Have `/tape/timer/fired/<kind>/<run_id>` on the journal then."""
        await self._timer(timer_id, seconds, kind, payload)

    async def cancel_timer(self, timer_id: str) -> bool:
        """Whether it was cancelled before it fired is told by the answer, the same ever after."""
        ask = partial(self._pen.write, CancelTimer(timer_id))
        return bool(await self.decide(f"cancel_timer/{timer_id}", None, ask))

    async def _timer(self, timer_id: str, seconds: float, kind: str, payload: Any) -> None:
        if timer_id in self._timers:
            raise InvalidArgument(f"this run has set {timer_id!r} before", field="timer_id")
        self._timers.add(timer_id)
        if self._log.take("timer set", timer_id) is None:
            self._check_cancelled()
            text = to_json(payload, LIMITS, field="payload")
            await self._pen.write(
                SetTimer(timer_id, kind=kind, payload_json=text, after_ms=round(seconds * 1000))
            )

    async def set_value(
        self, namespace: str, key: str, value: Any, *, if_version: int = ANY_VERSION
    ) -> int:
        """Write a value as this run; its version. With `if_version` VersionMismatch is raised,
        now and in every replay, if it is not at that version.
        """
        if if_version >= 0:
            return await self._set_value_if(namespace, key, value, if_version)
        step = self._log.take("value changed", f"{namespace}/{key}")
        if step is not None:
            version: int = step.payload["value"]["version"]
            return version
        self._check_cancelled()
        await self._pen.flush()
        return await self._journal.set_value(namespace, key, value, if_version, self._pen)

    async def _set_value_if(self, namespace: str, key: str, value: Any, if_version: int) -> int:
        """The answer is a decision: it depends on others, and must be the same ever after."""

        async def ask() -> dict[str, Any]:
            await self._pen.flush()
            try:
                written = await self._journal.set_value(
                    namespace, key, value, if_version, self._pen
                )
            except VersionMismatch as mismatch:
                return {"mismatch": str(mismatch)}
            return {"version": written}

        request = {"value": value, "if_version": if_version}
        answer = await self.decide(f"set_value/{namespace}/{key}", request, ask)
        if "mismatch" in answer:
            raise VersionMismatch(answer["mismatch"])
        version: int = answer["version"]
        return version

    async def get_value(self, namespace: str, key: str) -> Any:
        """A value as it is now, and in every replay; None where there is none."""
        model = f"value/{namespace}/{key}"
        return await self.decide(model, None, partial(self._journal.get_value, namespace, key))

    async def delete_value(self, namespace: str, key: str) -> bool:
        """Delete a value as this run; whether there was one."""

        async def ask() -> bool:
            await self._pen.flush()
            return await self._journal.delete_value(namespace, key, self._pen)

        return bool(await self.decide(f"delete_value/{namespace}/{key}", None, ask))

    async def record(
        self, event_type: str, payload: Any = None, *, entity_type: str = "", entity_id: str = ""
    ) -> None:
        """Record an event as this run, once."""
        self._events += 1
        if self._log.take("event recorded", event_type) is not None:
            return
        await self._pen.flush()
        key = f"{self.run_id}/event-{self._events}"
        await self._journal.record(event_type, payload, (entity_type, entity_id), key, self._pen)

    async def set_budget(self, *, usd: float = 0.0, tokens: int = 0) -> None:
        """What this run may spend in all; zero is no cap."""
        self._budgets += 1
        if self._budgets > self._log.budgets:
            await self._pen.write(SetBudget(usd, tokens))

    async def charge(self, *, usd: float = 0.0, tokens: int = 0) -> None:
        """Note what was spent."""
        self._charges += 1
        charge_id = f"charge-{self._charges}"
        if charge_id not in self._log.charges:
            self._pen.post(ChargeBudget(usd, tokens, charge_id))

    async def start(
        self, app: App | str, payload: Any = None, *, pool: str = "", name: str = ""
    ) -> str:
        """Start a child run; its id. It goes its own way: `result` waits for it."""
        self._children += 1
        app_name = app.name if isinstance(app, App) else app
        child = RunName(
            app_name, self.user_id, self.session_id, f"{self.run_id}/{name or self._children}"
        )
        new = NewRun(
            child,
            to_json(payload, LIMITS, field="input"),
            pool or (app.pool if isinstance(app, App) else self._run.pool),
            app.version if isinstance(app, App) else "",
            self.run_id,
            self._run.fencing_token,
        )

        async def begin() -> str:
            await self._pen.flush()
            return (await self._journal.runs.begin_run(new)).run.run_id

        run_id: str = await self.decide(f"start/{app_name}", {"invocation": child[3]}, begin)
        return run_id

    async def result(self, run_id: str) -> Any:
        """Wait for a child run: what it returned. One that did not succeed raises EffectFailed."""
        end = await self.gate(child_gate(run_id))
        if end["status"] != "terminal":
            raise EffectFailed(f"child run {run_id} is {end['status']}: {end['outcome']}")
        return end["outcome"]

    async def heartbeat(self) -> None:
        """Renew the lease now. It is renewed by itself; this is for a body that must be sure."""
        self._pen.check()
        run = await self._journal.heartbeat()
        self.cancel_reason = run.cancel_reason

    def _check(self) -> None:
        """Unwind an app that is not to go on."""
        self._pen.check()
        if self._parked is not None:
            raise self._parked

    def _check_cancelled(self) -> None:
        self._check()
        if self.cancel_reason:
            raise RunCancelled(f"run {self.run_id!r} is to be cancelled: {self.cancel_reason}")
