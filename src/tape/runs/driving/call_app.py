"""Calling an app with its context, and telling how it ended."""

import asyncio
from functools import partial
from typing import Any

import orjson

from tape.errors import RunCancelled
from tape.model.json_text import to_json
from tape.model.run import RunStatus
from tape.ports.user_code import as_failure
from tape.runs.ambient import running
from tape.runs.declare import App
from tape.runs.driving.context import Context
from tape.runs.driving.effect_loop import EffectLoop
from tape.runs.driving.sync_context import SyncContext
from tape.runs.driving.unwinding import Unwind, error_in
from tape.runs.failures import raised_json


async def call_app(app: App[Any], context: Context, effects: EffectLoop) -> tuple[RunStatus, str]:
    """Call the app; return how it ended, and its result or error. What unwinds it is raised, even
    if the app did not let it by.
    """
    steps = effects.steps
    try:
        result = await _result(app, context, effects)
        detail = to_json(result, steps.limits, field="result")
    except BaseException as raised:  # noqa: BLE001 - what is no error of the app is raised again
        steps.check_end(raised)
        error = _own_error(raised)
        if isinstance(error, RunCancelled):
            return RunStatus.CANCELLED, _cancelled(steps.cancel_reason or str(error))
        steps.log.check_finished(f"raises {type(error).__name__} ({error})")
        group = raised if isinstance(raised, BaseExceptionGroup) else None
        return RunStatus.FAILED, raised_json(error, steps.limits, within=group)
    steps.check_end(None)
    steps.log.check_finished()
    return RunStatus.TERMINAL, detail


async def _result(app: App[Any], context: Context, effects: EffectLoop) -> Any:
    steps = effects.steps
    if steps.is_cancelled:
        raise RunCancelled(steps.cancel_reason)
    given: Context | SyncContext = context
    if not app.is_async:
        given = SyncContext(context, effects, asyncio.get_running_loop())
    args = (given, context.input) if app.takes_input else (given,)
    with running(given):
        if app.is_async:
            return await app.function(*args)
        return await steps.threads.call(partial(app.function, *args))


def _own_error(raised: BaseException) -> Exception:
    """Return the app's own error. What unwinds the app, or ends this task or process, is raised
    again.
    """
    error = error_in(raised)
    if isinstance(error, Unwind):
        raise error
    return as_failure(error)


def _cancelled(reason: str) -> str:
    return orjson.dumps({"cancelled": reason}).decode()
