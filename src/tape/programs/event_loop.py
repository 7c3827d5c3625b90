"""Event loops of programs: until a signal, and with the code of others on them."""

import asyncio
import logging
import signal
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

from tape.ports.user_code import came_by_signal

log = logging.getLogger("tape.app")


@contextmanager
def stopping_on_signals(stop: asyncio.Event) -> Iterator[None]:
    """SIGTERM and SIGINT ask to stop; a second one ends the process as it always would."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    numbers = (signal.SIGTERM, signal.SIGINT)

    def forget() -> None:
        for number in numbers:
            loop.remove_signal_handler(number)

    def ask() -> None:
        forget()
        stop.set()

    for number in numbers:
        loop.add_signal_handler(number, ask)
    try:
        yield
    finally:
        forget()


def run_to_end(program: Coroutine[Any, Any, None]) -> None:
    """Run a program that calls functions of others on an event loop of its own.

    asyncio lets SystemExit and KeyboardInterrupt of any task out of the loop. Our own tasks keep
    them in. One that a function of others has begun does not: whoever waits for it is told all the
    same, and the rest goes on, unless a signal raised it.
    """
    with asyncio.Runner() as runner:
        loop = runner.get_loop()
        main = loop.create_task(program)
        while True:
            try:
                return loop.run_until_complete(main)
            except (SystemExit, KeyboardInterrupt) as raised:
                if main.done() or came_by_signal(raised):
                    raise
                log.exception(
                    "a task that a function of this program started tried to exit; the program "
                    "continues"
                )
