"""What a poll has fetched: as many messages as it asks for, and as its run can record at once."""

from collections.abc import Sequence
from typing import Any

import orjson

from tape.model.poll import PollRequest
from tape.model.polled_message import polled_item
from tape.ports.source import ReceivedMessage
from tape.settings import Limits

_BRACKETS = 2


class PolledBatch:
    """`handles` is by place what the source knows messages by; `over` are the handles of those that
    do not fit and are given back.
    """

    def __init__(self, request: PollRequest, limits: Limits) -> None:
        self.request = request
        self.items: list[bytes] = []
        self.handles: dict[str, str] = {}
        self.over: list[str] = []
        self._limits = limits
        self._size = _BRACKETS

    @property
    def room(self) -> int:
        return 0 if self.over else self.request.batch - len(self.items)

    @property
    def recorded_form(self) -> list[Any]:
        return [orjson.Fragment(item) for item in self.items]

    def take(self, received: Sequence[ReceivedMessage]) -> None:
        """Take these, in their order, until one does not fit."""
        source, payload_from = self.request.source, self.request.payload_from
        for message, handle in received:
            if not self.room:
                self.over.append(handle)
                continue
            item = polled_item(message, source, payload_from, self._limits)
            size = self._size + len(item) + 1
            if self.items and size > self._limits.payload_bytes:
                self.over.append(handle)
                continue
            self.items.append(item)
            self.handles[message.place] = handle
            self._size = size
