"""The log: each entry as one line of CloudEvents JSON, on standard output or any text stream.

A write that fails is tried again later, like any broker's; a pipe that nobody reads any more stays
a BrokenPipeError, for the program has lost what it was writing for.
"""

import asyncio
import sys
from collections.abc import Sequence
from typing import TextIO

from tape.brokers.in_order import Results
from tape.errors import BrokerUnavailable
from tape.model.json_text import terminal_safe
from tape.ports.broker import Outgoing
from tape.wire.cloudevents import cloud_event, structured

_ONE_LINE = str.maketrans("\r\n", "  ")


class LogBroker:
    """Without `out` it is `sys.stdout` as it is at each write."""

    def __init__(self, out: TextIO | None = None) -> None:
        self._out = out
        self._writing = asyncio.Lock()

    async def publish(self, messages: Sequence[Outgoing]) -> Results:
        # Line breaks in a payload stand between its tokens, where a space does as well.
        lines = [
            terminal_safe(structured(cloud_event(message)).decode()).translate(_ONE_LINE)
            for message in messages
        ]
        try:
            async with self._writing:
                await asyncio.to_thread(self._write, "".join(f"{line}\n" for line in lines))
        except BrokenPipeError:
            raise
        except (OSError, ValueError) as error:  # ValueError: the stream has been closed
            failure = BrokerUnavailable(f"log: {type(error).__name__}")
            return [failure] * len(messages)
        return [None] * len(messages)

    async def close(self) -> None:
        """The stream is its owner's."""

    def _write(self, text: str) -> None:
        out = self._out or sys.stdout
        out.write(text)
        out.flush()
