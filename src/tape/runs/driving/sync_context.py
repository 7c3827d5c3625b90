"""The context of an app that is not asynchronous: the same steps, each waited for.

The app runs in a thread of its own, the steps on the event loop.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import CancelledError
from datetime import datetime
from typing import Any, ParamSpec, TypeVar, overload
from uuid import UUID

from tape.errors import Closed, InvalidArgument
from tape.model.timer import REDRIVE
from tape.model.value import ANY_VERSION
from tape.ports.user_code import as_failure
from tape.runs.ambient import EFFECT_KEY, within
from tape.runs.boundary import boundary
from tape.runs.declare import App, ChildId, Effect
from tape.runs.driving.context import Context
from tape.runs.driving.effect_execution import EffectCall, Settled
from tape.runs.driving.unwinding import Abandoned, Unwind
from tape.telemetry.tracing import acting

P = ParamSpec("P")
R = TypeVar("R")


class SyncContext:
    """The context of a synchronous app: the calls of `Context`, which block instead of being
    awaited.
    """

    def __init__(self, context: Context, loop: asyncio.AbstractEventLoop) -> None:
        self._context = context
        self._loop = loop

    @property
    def run_id(self) -> str:
        return self._context.run_id

    @property
    def app_name(self) -> str:
        return self._context.app_name

    @property
    def user_id(self) -> str:
        return self._context.user_id

    @property
    def session_id(self) -> str:
        return self._context.session_id

    @property
    def invocation_id(self) -> str:
        return self._context.invocation_id

    @property
    def app_version(self) -> str:
        return self._context.app_version

    @property
    def input(self) -> Any:
        return self._context.input

    @property
    def is_replaying(self) -> bool:
        return self._context.is_replaying

    @property
    def is_cancelled(self) -> bool:
        return self._context.is_cancelled

    def call(self, effect: Effect[P, Any], /, *args: P.args, **kwargs: P.kwargs) -> Any:
        """Execute an effect of either kind: an asynchronous body on the loop, another in this
        thread.
        """
        if effect.is_async:
            return self._wait(self._context.call(effect, *args, **kwargs))
        call = self._wait(self._begun(effect, args, kwargs))
        if isinstance(call, Settled):
            return call.result
        return self._act(call, effect, args, kwargs)

    def _act(
        self,
        call: EffectCall,
        effect: Effect[Any, Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        context = self._context
        while True:
            boundary(f"before act {effect.spec.name}")
            try:
                with acting(f"effect {effect.spec.name}", {"tape.effect_key": call.key}):
                    result = self._done(call, effect, args, kwargs)
            except Exception as error:  # noqa: BLE001 - whatever it raises is the act's failure
                pause = self._wait(context.act_failed(call, error))
                self._wait(context.pause(pause))
            else:
                return self._wait(context.act_done(call, result))

    def _done(
        self,
        call: EffectCall,
        effect: Effect[Any, Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        key = EFFECT_KEY.set(call.key)
        try:
            with within(f"effect {effect.spec.name!r}"):
                result = effect.body(*args, **kwargs)
                return self._wait(_own(result)) if inspect.isawaitable(result) else result
        except (Exception, Unwind):
            raise
        except BaseException as raised:
            raise as_failure(raised) from raised
        finally:
            EFFECT_KEY.reset(key)

    async def _begun(
        self, effect: Effect[Any, Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> EffectCall | Settled:
        try:
            call = await self._context.begin_act(effect, args, kwargs)
            await self._context.begun(call)
        except Settled as settled:
            return settled
        return call

    def call_same_colour(
        self, effect: Effect[Any, Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        if effect.is_async:
            raise InvalidArgument(
                f"{effect.spec.name!r} is asynchronous and this app is not: "
                f"ctx.call({effect.spec.name}, …)"
            )
        return self.call(effect, *args, **kwargs)

    def now(self) -> datetime:
        return self._here(self._context.now)

    def uuid(self) -> UUID:
        return self._here(self._context.uuid)

    def random(self) -> float:
        return self._here(self._context.random)

    def sample(self, function: Callable[[], R], /, *, name: str = "sample") -> R:
        is_drawn, before = self._here(lambda: self._context.begin_draw(name))
        if not is_drawn:
            with within(f"the draw {name!r}"):
                drawn = function()
            before = self._here(lambda: self._context.end_draw(name, drawn))
        result: R = before
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
        context = self._context
        record = context.decision(
            model, request, rationale=rationale, policy_version=policy_version
        )
        is_answered, answer = self._here(lambda: context.begin_decision(record))
        if is_answered:
            return answer
        try:
            with within(f"decision {model!r}"):
                response = ask()
        except Unwind:
            raise
        except BaseException as error:  # noqa: BLE001 - whatever it raises, there is no decision
            failed = as_failure(error)
            return self._here(lambda: context.fail_decision(record, failed))
        return self._here(lambda: context.end_decision(record, response))

    def patched(self, name: str) -> bool:
        return self._here(lambda: self._context.patched(name))

    def gate(self, name: str, payload: Any = None, *, timeout_s: float | None = None) -> Any:
        return self._wait(self._context.gate(name, payload, timeout_s=timeout_s))

    def sleep(self, seconds: float) -> None:
        self._wait(self._context.sleep(seconds))

    def set_timer(
        self, timer_id: str, seconds: float, *, kind: str = REDRIVE, payload: Any = None
    ) -> None:
        self._wait(self._context.set_timer(timer_id, seconds, kind=kind, payload=payload))

    def cancel_timer(self, timer_id: str) -> bool:
        return self._wait(self._context.cancel_timer(timer_id))

    def set_value(
        self, namespace: str, key: str, value: Any, *, if_version: int = ANY_VERSION
    ) -> int:
        return self._wait(self._context.set_value(namespace, key, value, if_version=if_version))

    def get_value(self, namespace: str, key: str) -> Any:
        return self._wait(self._context.get_value(namespace, key))

    def delete_value(self, namespace: str, key: str) -> bool:
        return self._wait(self._context.delete_value(namespace, key))

    def record(
        self, event_type: str, payload: Any = None, *, entity_type: str = "", entity_id: str = ""
    ) -> None:
        self._wait(
            self._context.record(event_type, payload, entity_type=entity_type, entity_id=entity_id)
        )

    def set_budget(self, *, usd: float = 0.0, tokens: int = 0) -> None:
        self._wait(self._context.set_budget(usd=usd, tokens=tokens))

    def charge(self, *, usd: float = 0.0, tokens: int = 0) -> None:
        self._wait(self._context.charge(usd=usd, tokens=tokens))

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
        return self._wait(self._context.start(app, payload, pool=pool, name=name))

    @overload
    def result(self, run_id: ChildId[R]) -> R: ...

    @overload
    def result(self, run_id: str) -> Any: ...

    def result(self, run_id: str) -> Any:
        return self._wait(self._context.result(run_id))

    def heartbeat(self) -> None:
        self._wait(self._context.heartbeat())

    def _wait(self, step: Coroutine[Any, Any, R]) -> R:
        if _is_running(self._loop):
            step.close()
            raise InvalidArgument(
                "a step of this app was called on the event loop, which would wait for itself: "
                "call it in the thread of the app"
            )
        awaited = _awaited(step)
        try:
            return asyncio.run_coroutine_threadsafe(awaited, self._loop).result()
        except CancelledError:
            raise Abandoned(Closed("this run was interrupted")) from None
        except RuntimeError:
            if not self._loop.is_closed():
                raise
            awaited.close()
            step.close()
            raise Abandoned(Closed("the event loop of this run has ended")) from None

    def _here(self, step: Callable[[], R]) -> R:
        async def taken() -> R:
            return step()

        return self._wait(taken())


def _is_running(loop: asyncio.AbstractEventLoop) -> bool:
    """Whether this is the thread of that event loop."""
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False


async def _own(result: Awaitable[Any]) -> Any:
    """What a function of the program's own has left to be awaited."""
    try:
        return await result
    except (Exception, Unwind):
        raise
    except BaseException as raised:
        raise as_failure(raised) from raised


async def _awaited(step: Coroutine[Any, Any, R]) -> R:
    """What the step returns. What it raises must not end the loop, as these two would."""
    try:
        return await step
    except (SystemExit, KeyboardInterrupt) as raised:
        raise as_failure(raised) from raised
