"""What a program's own functions raise: handlers, effects, apps, checks and compensators.

Whatever it is, it is a failure of that call and of nothing else. `sys.exit()` in a handler ends the
handler's task, not the worker and what else that has in hand. Three things are not the function's
own doing and go on: that its task was cancelled, that its coroutine is closed, and what a signal
raised.
"""

import asyncio
import dis
import signal
import threading
from collections.abc import Callable, Iterator
from functools import partial
from types import CodeType
from typing import Any

_RAISE = dis.opmap["RAISE_VARARGS"]


def as_failure(raised: BaseException) -> Exception:
    """The failure of a call that raised this; raised again if the call is not to blame."""
    if isinstance(raised, StopIteration):  # the one error that a future does not take
        return _caused(raised)
    if isinstance(raised, Exception):
        return raised
    if _is_closing(raised) or came_by_signal(raised) or _is_cancelling(raised):
        raise raised
    return _caused(raised)


def called(
    function: Callable[..., Any], *args: Any, let_by: tuple[type[BaseException], ...] = ()
) -> Any:
    """Call a function in a thread. It raises errors, and besides only what is `let_by`."""
    try:
        return function(*args)
    except let_by:
        raise
    except GeneratorExit as raised:
        raise _caused(raised) from raised
    except BaseException as raised:
        failure = as_failure(raised)
        if failure is raised:  # with the cause that it was raised with
            raise
        raise failure from raised


def came_by_signal(raised: BaseException) -> bool:
    """Whether a signal raised it: then this process is meant."""
    raises_here = (
        threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    )
    if raises_here and isinstance(raised, KeyboardInterrupt):
        return True
    handlers = set(_handlers())
    at = raised.__traceback__
    while at is not None:
        if at.tb_frame.f_code in handlers:
            return True
        at = at.tb_next
    return False


def _handlers() -> Iterator[CodeType]:
    """The code of the signal handlers that there are."""
    for number in signal.valid_signals():
        handler: Any = signal.getsignal(number)
        while isinstance(handler, partial):
            handler = handler.func
        code = getattr(handler, "__code__", None)
        if isinstance(code, CodeType):
            yield code


def _is_closing(raised: BaseException) -> bool:
    """Whether a coroutine is closed where it waits, so that it must not wait for anything again.
    Python raises GeneratorExit there, without a `raise`.
    """
    at = raised.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    is_raised = at is not None and at.tb_frame.f_code.co_code[at.tb_lasti] == _RAISE
    return isinstance(raised, GeneratorExit) and not is_raised


def _is_cancelling(raised: BaseException) -> bool:
    if not isinstance(raised, asyncio.CancelledError):
        return False
    try:
        task = asyncio.current_task()
    except RuntimeError:  # a thread, where nothing is cancelled
        return False
    return task is not None and task.cancelling() > 0


def _caused(raised: BaseException) -> Exception:
    failure = RuntimeError(repr(raised))
    failure.__cause__ = raised
    return failure
