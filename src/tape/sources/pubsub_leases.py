"""What of a Pub/Sub subscription is in hand: its deadlines extended, its last words said.

A message that comes again while it is in hand, because a deadline could not be extended in time, is
not handed out twice: its newest acknowledgement id is kept beside the others, for the older ones
may count no more.
"""

import asyncio
import contextlib
import logging
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from google.api_core import exceptions
from google.auth.exceptions import GoogleAuthError
from google.pubsub_v1 import SubscriberAsyncClient

log = logging.getLogger("tape.pubsub")

ANSWER_S: Final = 10.0
REQUEST_IDS: Final = 1_000  # a request may have 512 KiB
AGAIN_S: Final = 1.0
FAILED: Final = (exceptions.GoogleAPICallError, GoogleAuthError, OSError, TimeoutError)
_LOST: Final = (
    exceptions.NotFound,
    exceptions.PermissionDenied,
    exceptions.Unauthenticated,
    exceptions.InvalidArgument,
    exceptions.FailedPrecondition,
)


class _HeldMessage(NamedTuple):
    message_id: str
    ack_ids: list[str]


class MessageLeases:
    def __init__(self, client: SubscriberAsyncClient, subscription: str, deadline_s: int) -> None:
        self._client = client
        self._subscription = subscription
        self.deadline_s = deadline_s
        self._in_hand: dict[str, _HeldMessage] = {}
        """By receipt, which is the first of its acknowledgement ids."""
        self._receipts: dict[str, str] = {}
        self._unsaid: dict[str, float] = {}
        self._keeping: asyncio.Task[None] | None = None

    def keep(self) -> None:
        """Extend deadlines from now on."""
        self._keeping = asyncio.create_task(self._keep(), name="tape-pubsub-deadlines")

    def take(self, message_id: str, ack_id: str) -> bool:
        """Whether the message is new, and not in hand already."""
        known = self._receipts.get(message_id)
        if known is not None:
            self._in_hand[known].ack_ids.append(ack_id)
            return False
        self._receipts[message_id] = ack_id
        self._in_hand[ack_id] = _HeldMessage(message_id, [ack_id])
        return True

    async def ack(self, receipts: Sequence[str]) -> None:
        since = asyncio.get_running_loop().time()
        self._unsaid.update(dict.fromkeys(self._released(receipts), since))
        await self._say_unsaid()

    async def nak(self, receipts: Sequence[str]) -> None:
        with contextlib.suppress(*FAILED):  # then they come again when their time is up
            await self._set_deadline(self._released(receipts), 0)

    async def close(self) -> None:
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.gather(self._keeping, return_exceptions=True)
        await self._say_unsaid()
        await self.nak([*self._in_hand])

    def _released(self, receipts: Sequence[str]) -> list[str]:
        ack_ids: list[str] = []
        for receipt in receipts:
            held = self._in_hand.pop(receipt, None)
            if held is not None:
                del self._receipts[held.message_id]
                ack_ids += held.ack_ids
        return ack_ids

    async def _keep(self) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time()
        while True:
            await asyncio.sleep(min(AGAIN_S, self.deadline_s / 3))
            await self._say_unsaid()
            if loop.time() >= due:
                due = loop.time() + self.deadline_s / 3 - AGAIN_S
                with contextlib.suppress(*FAILED):  # the next time comes before it is too late
                    newest = [held.ack_ids[-1] for held in self._in_hand.values()]
                    await self._set_deadline(newest, self.deadline_s)

    async def _say_unsaid(self) -> None:
        """Acknowledge; what fails is tried again until it has come again anyway."""
        too_late = asyncio.get_running_loop().time() - self.deadline_s
        for ack_id in [each for each, since in self._unsaid.items() if since < too_late]:
            del self._unsaid[ack_id]
        for ids in _requests([*self._unsaid]):
            try:
                await self._client.acknowledge(
                    subscription=self._subscription, ack_ids=ids, timeout=ANSWER_S, retry=None
                )
            except _LOST as error:
                log.debug("%s: acknowledgements were lost: %s", self._subscription, error)
            except FAILED:
                return
            for ack_id in ids:
                self._unsaid.pop(ack_id, None)

    async def _set_deadline(self, ack_ids: list[str], deadline_s: int) -> None:
        for ids in _requests(ack_ids):
            await self._client.modify_ack_deadline(
                subscription=self._subscription, ack_ids=ids, ack_deadline_seconds=deadline_s,
                timeout=ANSWER_S, retry=None,
            )  # fmt: skip


def _requests(ack_ids: list[str]) -> Iterator[list[str]]:
    for start in range(0, len(ack_ids), REQUEST_IDS):
        yield ack_ids[start : start + REQUEST_IDS]
