"""The loop that executes an effect: begin it, call its body until it is settled, write that down.

It is the same for apps of both kinds. They differ in the thread that calls a body which is not
asynchronous: one of the run's executor, or that of the app, which waits meanwhile.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from functools import partial
from typing import Any

from tape.errors import BudgetExceeded
from tape.ports.user_code import as_failure
from tape.runs.ambient import EFFECT_KEY, WITHIN
from tape.runs.boundary import boundary
from tape.runs.declare import DeclaredEffect
from tape.runs.driving.decisions import Decisions
from tape.runs.driving.journalled_effect import JournalledEffect, Settled, checked_spend
from tape.runs.driving.step_order import StepPlace
from tape.runs.driving.steps import RunSteps
from tape.runs.driving.unwinding import Unwind
from tape.runs.operations import RunOperations
from tape.telemetry.tracing import acting


class EffectLoop:
    """Executes the effects of a run, or gives back what its journal has of them."""

    def __init__(self, steps: RunSteps, decisions: Decisions, runs: RunOperations) -> None:
        self.steps = steps
        self.decisions = decisions
        self._runs = runs

    async def call(
        self,
        effect: DeclaredEffect[Any, Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        executor: Executor | None = None,
    ) -> Any:
        """Execute an effect of either kind: an asynchronous body here, another in a thread, of this
        executor if one is given.
        """
        try:
            journalled = await self._enter(effect, args, kwargs)
        except Settled as settled:
            return settled.result
        call_body = partial(self._call_body, effect, args, kwargs, executor)
        name = f"effect {effect.spec.name} of run {self.steps.run.run_id}"
        return await self.steps.tasks.carry(partial(self._execute, journalled, call_body), name)

    async def _enter(
        self, effect: DeclaredEffect[Any, Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> JournalledEffect:
        """Have a place for what is about to be done; Settled is raised if it was done before."""
        steps = self.steps
        with steps.place() as place:
            if effect.spec.estimate is not None:
                await self._admit(place, effect, args, kwargs)
            await place.come_up()
            steps.enter("effect", effect.spec.name)
            journalled = JournalledEffect(effect.spec, args, kwargs, steps)
            steps.effect_index += 1
            if journalled.is_observation and not steps.log.is_replaying:
                steps.check_cancelled()  # the journal is not waited for, and would not refuse it
            with steps.noting_unwind():
                journalled.enter()
            return journalled

    async def _admit(
        self,
        place: StepPlace,
        effect: DeclaredEffect[Any, Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> None:
        """Ask whether the budget of the run has as much left as the effect is estimated to cost."""
        name, estimate = effect.spec.name, effect.spec.estimate
        spend = checked_spend(estimate and estimate(*args, **kwargs), "estimate")

        async def ask() -> str:
            await self.steps.pen.flush()
            run_id = self.steps.run.run_id
            return (await self._runs.admit_budget(run_id, spend.usd, spend.tokens)).reason

        request = {"usd": spend.usd, "tokens": spend.tokens}
        if reason := await self.decisions.ask_journal(place, f"admit/{name}", request, ask):
            raise BudgetExceeded(f"{name}: {reason}")

    async def _execute(
        self, journalled: JournalledEffect, call_body: Callable[[], Awaitable[Any]]
    ) -> Any:
        """Execute it, from where it is written down to its outcome, in a task of its own."""
        name, noting_unwind = journalled.spec.name, self.steps.noting_unwind
        EFFECT_KEY.set(journalled.key)
        WITHIN.set(f"effect {name!r}")
        try:
            await self.wait_begun(journalled)
            while True:
                boundary(f"before act {name}")
                try:
                    with acting(f"effect {name}", {"tape.effect_key": journalled.key}):
                        result = await call_body()
                except Exception as error:  # noqa: BLE001 - whatever it raises is the act's failure
                    with noting_unwind():
                        pause_s = await journalled.fail(error)
                    await self.pause(pause_s)
                else:
                    with noting_unwind():
                        return await journalled.confirm(result)
        except Settled as settled:
            return settled.result

    async def wait_begun(self, journalled: JournalledEffect) -> None:
        """Wait until it is written down what is about to be done."""
        await self.steps.pen.catch_up()
        with self.steps.noting_unwind():
            await journalled.wait_begun()
        self.steps.pen.check()

    async def _call_body(
        self,
        effect: DeclaredEffect[Any, Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        executor: Executor | None,
    ) -> Any:
        try:
            if effect.is_async:
                return await effect.body(*args, **kwargs)
            body = partial(effect.body, *args, **kwargs)
            result = await self.steps.threads.call(body, executor)
            return await result if inspect.isawaitable(result) else result
        except (Exception, Unwind):
            raise
        except BaseException as raised:
            raise as_failure(raised) from raised

    async def pause(self, seconds: float) -> None:
        """Wait before it is tried again, which it is not once the run is another's."""
        await asyncio.sleep(seconds)
        self.steps.pen.check()
