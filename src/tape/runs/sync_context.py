"""The context of an app that is not asynchronous: the same steps, each waited for.

The app runs in a thread of its own, the steps on the event loop.
"""

import asyncio
import inspect
import time
from collections.abc import Callable, Coroutine
from datetime import datetime
from typing import Any, ParamSpec, TypeVar
from uuid import UUID

from tape.errors import InvalidArgument
from tape.model.timer import REDRIVE
from tape.model.value import ANY_VERSION
from tape.runs.ambient import EFFECT_KEY
from tape.runs.boundary import boundary
from tape.runs.context import Context
from tape.runs.declare import App, Effect
from tape.runs.effect_call import EffectCall, Settled

P = ParamSpec("P")
R = TypeVar("R")


class SyncContext:
    """What a synchronous app is given."""

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
        """Do an effect of either kind: an asynchronous body on the loop, another right here."""
        if inspect.iscoroutinefunction(effect.body):
            return self._wait(self._context.call(effect, *args, **kwargs))
        context = self._context
        call: EffectCall = self._wait(self._begun(effect, args, kwargs))
        if isinstance(call, Settled):
            return call.result
        while True:
            boundary(f"before act {effect.spec.name}")
            token = EFFECT_KEY.set(call.key)
            try:
                result = effect.body(*args, **kwargs)
            except Exception as error:  # noqa: BLE001 - whatever it raises is the act's failure
                time.sleep(self._wait(context.act_failed(call, error)))
            else:
                return self._wait(context.act_done(call, result))
            finally:
                EFFECT_KEY.reset(token)

    async def _begun(
        self, effect: Effect[Any, Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        try:
            return await self._context.begin_act(effect, args, kwargs)
        except Settled as settled:
            return settled

    def call_same_colour(
        self, effect: Effect[Any, Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        if inspect.iscoroutinefunction(effect.body):
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
        return self._here(lambda: self._context.sample(function, name=name))

    def decide(
        self,
        model: str,
        request: Any,
        ask: Callable[[], Any],
        *,
        rationale: str = "",
        policy_version: str = "",
    ) -> Any:
        async def asked() -> Any:
            return await asyncio.to_thread(ask)

        return self._wait(
            self._context.decide(
                model, request, asked, rationale=rationale, policy_version=policy_version
            )
        )

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

    def start(self, app: App | str, payload: Any = None, *, pool: str = "", name: str = "") -> str:
        return self._wait(self._context.start(app, payload, pool=pool, name=name))

    def result(self, run_id: str) -> Any:
        return self._wait(self._context.result(run_id))

    def heartbeat(self) -> None:
        self._wait(self._context.heartbeat())

    def _wait(self, step: Coroutine[Any, Any, R]) -> R:
        return asyncio.run_coroutine_threadsafe(step, self._loop).result()

    def _here(self, step: Callable[[], R]) -> R:
        async def taken() -> R:
            return step()

        return self._wait(taken())
