"""What a listener tells the journal each time it renews its hold."""

import asyncio
import contextlib
from collections.abc import Sequence
from itertools import islice
from typing import Final

from tape.errors import SourceRefused, SourceUnavailable
from tape.model.listening import MOST_PASSED
from tape.ports.source import ReceivedMessage, Source
from tape.subscriptions.operations import (
    HoldSubscription,
    SubscriptionHold,
    SubscriptionOperations,
)

ASK_S: Final = 1.0
"""A source that takes longer to say what waits is not waited for: the hold must be renewed. What it
says is told in a later report."""
_Told = tuple[int, tuple[tuple[str, int], ...]]
"""A backlog, and how far the source has come."""
_NOT_KNOWN: Final[_Told] = (-1, ())


class ListeningReport:
    """Gathers what happened since the last report. `last_error` stays until something is fetched;
    `is_refused` is whether the source refuses the login or the settings. `has_fetched` is whether a
    fetch has succeeded, with messages or without, since the source was opened."""

    def __init__(self, operations: SubscriptionOperations, held: HoldSubscription) -> None:
        """`held` is the request that was granted, with its token."""
        self._operations = operations
        self._held = held
        self._source: Source | None = None
        self._asking: asyncio.Task[_Told] | None = None
        self._told = self._last_told = _NOT_KNOWN
        self._last_warnings: list[str] = []
        self._opened = asyncio.Event()
        self._fetched = 0
        self.in_flight = 0
        self.last_error = ""
        self.is_refused = False
        self.has_fetched = False

    @property
    def owner(self) -> str:
        return self._held.owner

    def watch(self, source: Source | None) -> None:
        """Tell of this source from now on; None while none is open."""
        self._source = source
        self._stop_asking()
        self._told = self._last_told
        if source is not None:
            self._opened.set()

    async def ask_last(self, ending: asyncio.Event) -> None:
        """Ask the source once more before it is closed. What it says is told until it is asked
        again. A source that takes long is not waited for, nor one that somebody is to end."""
        source = self._source
        assert source is not None  # noqa: S101 - see watch
        self._stop_asking()
        asking = self._asking = asyncio.create_task(_ask(source), name="tape-ask-source")
        ends = asyncio.create_task(ending.wait())
        try:
            await asyncio.wait((asking, ends), timeout=ASK_S, return_when=asyncio.FIRST_COMPLETED)
        finally:
            ends.cancel()
        if asking.done():
            self._told = asking.result()
        self._last_told, self._last_warnings = self._told, source.warnings()

    async def wait_for_source(self, most_s: float) -> None:
        """Until there is one to tell of, but no longer than that."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(most_s):
                await self._opened.wait()

    def note_fetched(self, received: Sequence[ReceivedMessage]) -> None:
        self._fetched += len(received)
        self.has_fetched = True
        self.last_error = ""

    async def send(self, *, letting_go: bool = False) -> SubscriptionHold:
        """Renew the hold, or let go of it."""
        backlog, passed = await self._asked()
        fetched, self._fetched = self._fetched, 0
        request = self._held._replace(
            letting_go=letting_go,
            fetched=fetched,
            in_flight=self.in_flight,
            backlog=backlog,
            last_error=self.last_error or self._warnings(),
            passed=passed,
            refused=letting_go and self.is_refused,
        )
        try:
            return await self._operations.hold_subscription(request)
        except BaseException:
            self._fetched += fetched  # at worst it is counted twice
            raise

    async def _asked(self) -> _Told:
        """What the source says, or said last, if it takes long or is closed."""
        if self._source is None:
            return self._told
        if self._asking is None:
            self._asking = asyncio.create_task(_ask(self._source), name="tape-ask-source")
        asking = self._asking
        await asyncio.wait((asking,), timeout=ASK_S)
        if self._asking is asking and asking.done():
            self._asking = None
            self._told = asking.result()
        return self._told

    def _stop_asking(self) -> None:
        asking, self._asking = self._asking, None
        if asking is not None:
            asking.cancel()

    def _warnings(self) -> str:
        source = self._source
        return "; ".join(self._last_warnings if source is None else source.warnings())


async def _ask(source: Source) -> _Told:
    with contextlib.suppress(SourceUnavailable, SourceRefused):  # fetching finds that out
        backlog = await source.backlog()
        passed = await source.passed()
        return -1 if backlog is None else backlog, (*islice(passed.items(), MOST_PASSED),)
    return _NOT_KNOWN
