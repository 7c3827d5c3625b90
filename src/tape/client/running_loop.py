"""Functions that block, called where an event loop runs on the same thread."""

import asyncio
import logging
import sys

from tape.errors import InvalidArgument

log = logging.getLogger("tape.client")


def refuse_running_loop(function: str, instead: str) -> None:
    """Refuse a call that could only block the event loop that runs here."""
    if _has_loop():
        raise InvalidArgument(
            f"{function} blocks, and an event loop is running here: write `{instead}`"
        )


def warn_of_running_loop() -> None:
    """Say what to use instead of a client that blocks. A notebook always has a loop."""
    if _has_loop() and "ipykernel" not in sys.modules:
        log.warning(
            "tape.connect makes a client that blocks, and an event loop is running here: write "
            "`async with tape.connect_async(url) as client`"
        )


def _has_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
