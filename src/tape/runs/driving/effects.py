"""Doing effects in a run: each call of one is begun, done and settled, or replayed."""

import asyncio
import inspect
from concurrent.futures import Executor
from contextvars import copy_context
from functools import partial
from typing import Any, ParamSpec

from tape.errors import BudgetExceeded, InvalidArgument
from tape.model.run import Run
from tape.ports.user_code import as_failure
from tape.runs.ambient import EFFECT_KEY, WITHIN
from tape.runs.boundary import boundary
from tape.runs.declare import Effect
from tape.runs.driving.effect_execution import EffectCall, Settled, checked_spend
from tape.runs.driving.journal_writes import JournalWrites
from tape.runs.driving.pen import Pen
from tape.runs.driving.replay import ReplayLog
from tape.runs.driving.step_order import StepPlace
from tape.runs.driving.steps import Decisions
from tape.runs.driving.unwinding import Unwind
from tape.telemetry.tracing import acting

P = ParamSpec("P")


class Acting(Decisions):
    def __init__(
        self, run: Run, log: ReplayLog, pen: Pen, journal: JournalWrites, executor: Executor
    ) -> None:
        super().__init__(run, log, pen, executor, journal.limits)
        self._journal = journal

    async def call(self, effect: Effect[P, Any], /, *args: P.args, **kwargs: P.kwargs) -> Any:
        """Do an effect of either kind: an asynchronous body here, another in a thread."""
        try:
            call = await self.begin_act(effect, args, kwargs)
        except Settled as settled:
            return settled.result
        name = f"effect {effect.spec.name} of run {self._run.run_id}"
        return await self._tasks.carry(partial(self._act, call, effect, args, kwargs), name)

    async def _act(
        self,
        call: EffectCall,
        effect: Effect[Any, Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """The act from where it is written down to its outcome, in a task of its own."""
        EFFECT_KEY.set(call.key)
        WITHIN.set(f"effect {effect.spec.name!r}")
        try:
            await self.begun(call)
            while True:
                boundary(f"before act {effect.spec.name}")
                try:
                    with acting(f"effect {effect.spec.name}", {"tape.effect_key": call.key}):
                        result = await self._do(effect, args, kwargs)
                except Exception as error:  # noqa: BLE001 - whatever it raises is the act's failure
                    await self.pause(await self.act_failed(call, error))
                else:
                    return await self.act_done(call, result)
        except Settled as settled:
            return settled.result

    async def begin_act(
        self, effect: Effect[Any, Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> EffectCall:
        """Have a place for what is about to be done; Settled is raised if it was done before."""
        spec = effect.spec
        with self._order.place() as place:
            if spec.estimate is not None:
                await self._admit(place, effect, args, kwargs)
            await place.come_up()
            self._enter("effect", spec.name)
            call = EffectCall(
                spec,
                args,
                kwargs,
                run_id=self._run.run_id,
                decision_index=self._decisions,
                call_index=self._calls,
                limits=self._limits,
            )
            self._calls += 1
            if call.only_looks and not self._log.is_replaying:
                self._check_cancelled()  # the journal is not waited for, and would not refuse it
            try:
                call.enter(self._log, self._pen)
            except Unwind as unwind:
                self.note(unwind)
                raise
            return call

    async def begun(self, call: EffectCall) -> None:
        """Wait until it is written down what is about to be done."""
        await self._pen.catch_up()
        try:
            await call.begun()
        except Unwind as unwind:
            self.note(unwind)
            raise
        self._pen.check()

    async def _admit(
        self,
        place: StepPlace,
        effect: Effect[Any, Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> None:
        name, estimate = effect.spec.name, effect.spec.estimate
        spend = checked_spend(estimate and estimate(*args, **kwargs), "estimate")

        async def ask() -> str:
            await self._pen.flush()
            admission = await self._journal.runs.admit_budget(
                self._run.run_id, spend.usd, spend.tokens
            )
            return admission.reason

        request = {"usd": spend.usd, "tokens": spend.tokens}
        if reason := await self._ask(place, f"admit/{name}", request, ask):
            raise BudgetExceeded(f"{name}: {reason}")

    async def act_failed(self, call: EffectCall, error: Exception) -> float:
        """How long to wait before it is tried again; its failure is raised if it is not."""
        try:
            return await call.failed(self._pen, error)
        except Unwind as unwind:
            self.note(unwind)
            raise

    async def act_done(self, call: EffectCall, result: Any) -> Any:
        try:
            return await call.done(self._pen, result)
        except Unwind as unwind:
            self.note(unwind)
            raise

    async def pause(self, seconds: float) -> None:
        """Before an act is tried again, which it is not once the run is another's."""
        await asyncio.sleep(seconds)
        self._pen.check()

    def call_same_colour(
        self, effect: Effect[Any, Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        if not effect.is_async:
            raise InvalidArgument(
                f"{effect.spec.name!r} is not asynchronous and this app is: "
                f"await ctx.call({effect.spec.name}, …)"
            )
        return self.call(effect, *args, **kwargs)

    async def _do(
        self, effect: Effect[Any, Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        body = effect.body
        try:
            if effect.is_async:
                return await body(*args, **kwargs)
            result = await self.threads.call(partial(copy_context().run, body, *args, **kwargs))
            return await result if inspect.isawaitable(result) else result
        except (Exception, Unwind):
            raise
        except BaseException as raised:
            raise as_failure(raised) from raised
