"""The context of an app that is not asynchronous: the steps of `Context`, each waited for.

The app runs in a thread of its own, the steps on the event loop.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial, wraps
from typing import Any, Concatenate, ParamSpec, TypeVar, overload

from tape.errors import InvalidArgument
from tape.runs.ambient import within
from tape.runs.declare import App, ChildId, DeclaredEffect
from tape.runs.driving.context import Context, RunFacts
from tape.runs.driving.effect_loop import EffectLoop
from tape.runs.driving.waiting_thread import WaitingThread, wait_for

P = ParamSpec("P")
R = TypeVar("R")


def _waited(
    step: Callable[Concatenate[Context, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate["SyncContext", P], R]:
    """Make of a step that is awaited one that blocks."""

    @wraps(step)
    def wait(self: "SyncContext", /, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._wait(step(self._context, *args, **kwargs))

    return wait


def _on_loop(
    step: Callable[Concatenate[Context, P], R],
) -> Callable[Concatenate["SyncContext", P], R]:
    """Make of a step that is never awaited one that may be called in any thread."""

    @wraps(step)
    def call(self: "SyncContext", /, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._call_on_loop(partial(step, self._context, *args, **kwargs))

    return call


class SyncContext(RunFacts):
    """The context of a synchronous app: the calls of `Context`, which block instead of being
    awaited.
    """

    def __init__(
        self, context: Context, effects: EffectLoop, loop: asyncio.AbstractEventLoop
    ) -> None:
        super().__init__(effects.steps)
        self._context = context
        self._effects = effects
        self._loop = loop

    now = _on_loop(Context.now)
    uuid = _on_loop(Context.uuid)
    random = _on_loop(Context.random)
    patched = _on_loop(Context.patched)

    gate = _waited(Context.gate)
    sleep = _waited(Context.sleep)
    set_timer = _waited(Context.set_timer)
    cancel_timer = _waited(Context.cancel_timer)
    set_value = _waited(Context.set_value)
    get_value = _waited(Context.get_value)
    delete_value = _waited(Context.delete_value)
    record = _waited(Context.record)
    poll = _waited(Context.poll)
    ack = _waited(Context.ack)
    set_budget = _waited(Context.set_budget)
    charge = _waited(Context.charge)
    heartbeat = _waited(Context.heartbeat)

    def call(self, effect: DeclaredEffect[P, Any], /, *args: P.args, **kwargs: P.kwargs) -> Any:
        """Execute an effect of either kind: an asynchronous body on the loop, another in this
        thread.
        """
        here = WaitingThread()
        return self._wait(self._effects.call(effect, args, kwargs, here), here)

    def call_same_colour(
        self, effect: DeclaredEffect[Any, Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        if effect.is_async:
            raise InvalidArgument(
                f"{effect.spec.name!r} is asynchronous and this app is not: "
                f"ctx.call({effect.spec.name}, …)"
            )
        return self.call(effect, *args, **kwargs)

    def sample(self, function: Callable[[], R], /, *, name: str = "sample") -> R:
        """Call the function once, in this thread: see `Context.sample`."""
        decisions = self._effects.decisions
        is_drawn, drawn = self._call_on_loop(partial(decisions.begin_draw, name))
        if not is_drawn:
            with within(f"the draw {name!r}"):
                drawn = function()
            drawn = self._call_on_loop(partial(decisions.end_draw, name, drawn))
        result: R = drawn
        return result

    def decide(
        self,
        model: str,
        request: Any,
        ask: Callable[[], Any],
        *,
        rationale: str = "",
        policy_version: str = "",
    ) -> Any:
        """Make a decision; `ask` is called once, in this thread: see `Context.decide`."""
        here = WaitingThread()

        def ask_here() -> Awaitable[Any]:
            return self._steps.threads.call(ask, here)

        decided = self._context.decide(
            model, request, ask_here, rationale=rationale, policy_version=policy_version
        )
        return self._wait(decided, here)

    @overload
    def start(
        self, app: App[R], payload: Any = None, *, pool: str = "", name: str = ""
    ) -> ChildId[R]: ...

    @overload
    def start(
        self, app: str, payload: Any = None, *, pool: str = "", name: str = ""
    ) -> ChildId[Any]: ...

    def start(
        self, app: App[Any] | str, payload: Any = None, *, pool: str = "", name: str = ""
    ) -> ChildId[Any]:
        """Start a child run and return its id: see `Context.start`."""
        return self._wait(self._context.start(app, payload, pool=pool, name=name))

    @overload
    def result(self, run_id: ChildId[R]) -> R: ...

    @overload
    def result(self, run_id: str) -> Any: ...

    def result(self, run_id: str) -> Any:
        """Wait for a child run and return its result: see `Context.result`."""
        return self._wait(self._context.result(run_id))

    def _wait(self, step: Coroutine[Any, Any, R], here: WaitingThread | None = None) -> R:
        return wait_for(step, self._loop, here)

    def _call_on_loop(self, step: Callable[[], R]) -> R:
        async def taken() -> R:
            return step()

        return self._wait(taken())
