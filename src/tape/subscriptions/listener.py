"""A listener: works for one subscription, by one hold, until there is a reason to let go of it.

The hold is renewed all the time. Whatever is found out meanwhile (another state than active, a
newer revision, another credential, a source that is away or refuses), and whoever asks it to stop,
the listener does the same: it fetches nothing more, finishes what it has in hand, gives back what
it cannot finish, and lets go of the hold. Whether somebody should listen again, and by what, is
decided anew by who keeps the listeners.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any, Final, NamedTuple, Protocol

from tape.errors import (
    Closed,
    NoCredential,
    NotFound,
    Overloaded,
    SourceRefused,
    StaleLease,
    StoreUnavailable,
    TapeError,
    WalletUnavailable,
    WrongState,
)
from tape.model.subscription import Subscription, SubscriptionState
from tape.model.subscription_spec import SourceSpec, SubscriptionSpec
from tape.ports.source import Source
from tape.settings import ListenerSettings
from tape.subscriptions.listening_report import ListeningReport
from tape.subscriptions.message_flow import AGAIN_MOST_S, STORE_AWAY, MessageFlow
from tape.subscriptions.operations import SubscriptionHold, SubscriptionOperations
from tape.telemetry.retrying import Retrying
from tape.telemetry.unknown_errors import log_unknown

log = logging.getLogger("tape.subscriptions")

LAST_REPORT_S: Final = 1.0
"""So long a report that is on its way is waited for: what it says would be said twice."""
CLOSE_S: Final = 7.0
"""How long a source has to give back what is in hand. Without that it comes again a bit later."""
CLOSE_LEAST_S: Final = 2.0
LET_GO_S: Final = 5.0
LEAVING_S: Final = 13.0
LEAVING_SHARE: Final = 0.4
"""Of the time of grace, for all that comes after the work: so long, and of a shorter one this."""
CANCEL_AGAIN_S: Final = 1.0
NOT_OURS: Final = (StaleLease, NotFound)
"""The hold is another's, or there is nothing to hold any more."""
REFUSED: Final = (NoCredential, SourceRefused)
"""Of a source that was just opened: whatever other process listens, it would be told the same."""


UNKNOWN: Final = (StoreUnavailable, Overloaded, WalletUnavailable, Closed)
"""It cannot be found out now whether a credential was changed."""
LOGIN_LOOK_S: Final = 0.5


class _Ends(Exception):
    """There is a reason to let go before there is a source."""


class OpenForListening(Protocol):
    def __call__(self, spec: SourceSpec, name: str) -> Awaitable[Source]:
        """Open a source with its credential. `name` is shown in the log and to the broker."""


LoginOf = Callable[[SourceSpec], Awaitable[object]]
"""What is another once the credential of a source was changed. NoCredential if it was deleted."""


async def no_login(_spec: SourceSpec) -> object:
    """A `LoginOf` for sources whose login stays as it is."""
    return None


class ListenerEnd(NamedTuple):
    """Why a listener has let go. After `trouble` it should not be tried again at once."""

    because: str
    is_trouble: bool = False
    error: TapeError | None = None


class ListeningManner(NamedTuple):
    """How to listen, where that is not for ever and in silence.

    `tells_received` makes an entry for each message that is accepted. `when_empty` is called once
    the source is empty, for a scheduled subscription after one batch, which is fetched at once;
    when it returns, the listener lets go.
    """

    tells_received: bool = False
    when_empty: Callable[[], Awaitable[None]] | None = None


PLAINLY: Final = ListeningManner()


class HeldListener:
    """Works by a hold that was granted. Use it once."""

    def __init__(
        self,
        operations: SubscriptionOperations,
        held: SubscriptionHold,
        spec: SubscriptionSpec,
        report: ListeningReport,
        *,
        open_source: OpenForListening,
        settings: ListenerSettings,
        manner: ListeningManner = PLAINLY,
        login_of: LoginOf = no_login,
    ) -> None:
        self._manner = manner
        self._operations = operations
        self._held = held
        self._spec = spec
        self._report = report
        self._open_source = open_source
        self._login_of = login_of
        self._settings = settings
        self._end: ListenerEnd | None = None
        self._ending = asyncio.Event()
        self._ending_since: float | None = None
        self._is_over = asyncio.Event()
        self._is_ours = True
        self._breakdown = ""
        self._loop = asyncio.get_running_loop()
        self._due_at_ms, self._due_at = held.due_at_ms, self._due(held)
        self._retrying = Retrying(log, f"the hold on subscription {spec.name!r}")

    async def run(self) -> ListenerEnd:
        """Listen until there is a reason to let go; which one."""
        renewing = asyncio.create_task(self._renew(), name=f"tape-hold-{self._spec.name}")
        try:
            if self._ending.is_set():
                pass  # it was asked to end before it began: no source need be opened
            elif self._spec.activation == "scheduled":
                await self._listen_on_cadence()
            else:
                await self._listen()
        except _Ends:
            pass
        except NOT_OURS as error:
            self._lose(error)
        except Closed as error:
            self._is_ours = False  # nobody is there to let go to
            self.end(str(error))
        except WrongState as error:  # it was deactivated, and may be activated again at once
            self.end(str(error))
        except TapeError as error:
            self._report.last_error = str(error)
            # A source has the login that it was opened with, which may have been rotated since.
            is_new = not self._report.has_fetched
            self._report.is_refused = is_new and isinstance(error, REFUSED)
            self.end(str(error), is_trouble=True, error=error)
        except Exception as error:  # noqa: BLE001 - a client raises what it likes
            self._break_down(error)
        finally:
            self._is_over.set()
            await asyncio.wait((renewing,), timeout=LAST_REPORT_S)
            await _cancel(renewing)
            self._report.last_error = self._breakdown or self._report.last_error
            if self._is_ours:
                await self._let_go()
        return self._end or ListenerEnd("it was cancelled")

    def end(
        self, because: str, *, is_trouble: bool = False, error: TapeError | None = None
    ) -> None:
        """Fetch nothing more, finish and let go, all of it within the time of grace. The first
        reason counts."""
        if self._end is None:
            self._end = ListenerEnd(because, is_trouble, error)
            self._ending_since = self._ending_since or self._loop.time()
            self._ending.set()

    def notice(self, subscription: Subscription) -> None:
        """End if the subscription is no longer what the hold was granted for."""
        if subscription.state != SubscriptionState.ACTIVE:
            self.end(f"it is {subscription.state}")
        elif subscription.revision != self._held.revision:
            self.end(f"revision {subscription.revision} is registered")

    def _lose(self, error: TapeError) -> None:
        self._is_ours = False
        self.end(str(error))

    def _break_down(self, error: Exception) -> None:
        """End because of what nobody has thought of. Its text may repeat a secret: neither the log
        has it, nor whoever may see subscriptions."""
        log_unknown(log, f"listening for subscription {self._spec.name!r} has failed", error)
        what = f"the listener has failed with {type(error).__name__}"
        self._breakdown = f"{what}; the log of {self._report.owner} says where"
        self.end(self._breakdown, is_trouble=True)

    async def _let_go(self) -> None:
        try:
            async with asyncio.timeout(LET_GO_S):
                await self._report.send(letting_go=True)
        except (TapeError, TimeoutError) as error:  # then the hold ends by itself
            log.debug("letting go of subscription %r failed: %s", self._spec.name, error)

    async def _renew(self) -> None:
        """Until it is lost, or the work is over."""
        every_s = self._settings.lease_s / 3
        await self._report.wait_for_source(every_s)  # to say at once how much waits there
        while not self._is_over.is_set():
            try:
                answer = await self._report.send()
            except (*NOT_OURS, Closed) as error:
                self._lose(error)
                return
            except TapeError as error:
                self._retrying.failed(error)
                pause_s = min(every_s, AGAIN_MOST_S)
            except Exception as error:  # noqa: BLE001 - of the source, which is asked what waits
                self._break_down(error)
                return
            else:
                self._retrying.succeeded()
                self._heed(answer)
                pause_s = every_s
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._is_over.wait()

    def _heed(self, answer: SubscriptionHold) -> None:
        if not answer.is_granted:
            self._is_ours = False
        if not answer.is_granted or answer.state != SubscriptionState.ACTIVE:
            self.end(f"it is {answer.state}")
        elif answer.newest_revision != self._held.revision:
            self.end(f"revision {answer.newest_revision} is registered")

    @contextlib.asynccontextmanager
    async def _flowing(self) -> AsyncIterator[MessageFlow]:
        """Within this, the source is open; at its end what is still in hand is given back."""
        self._report.has_fetched = False
        login = await self._login_of(self._spec.source)
        source = await self._opened()
        self._report.watch(source)
        flow = MessageFlow(
            self._operations, source, self._held, self._spec, self._report,
            hand_bytes=self._settings.hand_bytes, tells_received=self._manner.tells_received,
        )  # fmt: skip
        watching = asyncio.create_task(self._watch_login(login), name="tape-watch-login")
        try:
            yield flow
        finally:
            await _cancel(watching)
            self._report.watch(None)
            flow.leave()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._close_s()):
                    await source.close()

    async def _watch_login(self, login: object) -> None:
        """End once the source has a login that is good no more."""
        while True:
            await asyncio.sleep(LOGIN_LOOK_S)
            try:
                changed = await self._login_of(self._spec.source) != login
            except UNKNOWN:
                continue
            except TapeError as error:
                self.end(f"its credential cannot be used any more: {error}")
                return
            if changed:
                self.end("its credential was changed")
                return

    async def _opened(self) -> Source:
        """The source; nobody waits for it who is to end."""
        opening = asyncio.ensure_future(
            self._open_source(self._spec.source, f"tape-{self._spec.name}")
        )
        ending = asyncio.create_task(self._ending.wait())
        try:
            await asyncio.wait((opening, ending), return_when=asyncio.FIRST_COMPLETED)
        finally:
            await _cancel(opening, ending)
        if opening.cancelled():
            raise _Ends
        return opening.result()

    def _left_s(self) -> float:
        """Of the time of grace."""
        now = self._loop.time()
        return (self._ending_since or now) + self._settings.grace_s - now

    def _work_s(self) -> float:
        """How long what is in hand may still take, and leave time to let go."""
        self._ending_since = self._ending_since or self._loop.time()
        return max(0.0, self._left_s() - min(LEAVING_S, self._settings.grace_s * LEAVING_SHARE))

    def _close_s(self) -> float:
        return min(CLOSE_S, max(CLOSE_LEAST_S, self._left_s() - LAST_REPORT_S - LET_GO_S))

    async def _listen(self) -> None:
        async with self._flowing() as flow:
            await self._work(flow, self._fetch(flow))

    async def _work(self, flow: MessageFlow, fetch: Coroutine[Any, Any, None]) -> None:
        """Accept what is fetched until it fetches no more; or else finish what is in hand."""
        fetching = asyncio.create_task(fetch, name="tape-fetch")
        accepting = asyncio.create_task(flow.accept(), name="tape-accept")
        ending = asyncio.create_task(self._ending.wait())
        works = (fetching, accepting)
        try:
            await asyncio.wait((*works, ending), return_when=asyncio.FIRST_COMPLETED)
            await _cancel(fetching)
            flow.end()
            if not fetching.cancelled() and fetching.exception() is None:
                await asyncio.wait((accepting, ending), return_when=asyncio.FIRST_COMPLETED)
            if self._is_ours and not accepting.done():
                await asyncio.wait((accepting,), timeout=self._work_s())
        finally:
            await _cancel(ending, *works)
        for work in works:
            if not work.cancelled():
                work.result()

    async def _fetch(self, flow: MessageFlow) -> None:
        """Until cancelled, or until the source is empty and somebody waits for that."""
        when_empty = self._manner.when_empty
        await flow.fetch(until_empty=when_empty is not None)
        if when_empty is not None:
            await when_empty()
            self.end("the source is empty")

    async def _listen_on_cadence(self) -> None:
        """Fetch a batch each time it is due, or one now."""
        if self._manner.when_empty is not None:
            async with self._flowing() as flow:
                await self._take_batch(flow)
                if not self._ending.is_set():
                    await self._until_ending(self._manner.when_empty())
            self.end("one batch was fetched")
            return
        while not await self._ends_before(self._due_at):
            async with self._flowing() as flow:
                await self._take_batch(flow)
            if self._ending.is_set():
                return
            await self._until_ending(self._tick())

    async def _take_batch(self, flow: MessageFlow) -> None:
        """Between two batches no source is open that could be asked what waits there."""
        await self._work(flow, flow.fetch_batch())
        await self._report.ask_last(self._ending)

    async def _ends_before(self, at: float) -> bool:
        """Whether there is a reason to let go before it is so late."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(max(at, self._loop.time())):
                await self._ending.wait()
        return self._ending.is_set()

    async def _until_ending(self, work: Awaitable[None]) -> None:
        """Do it to its end, or for as long as what stops may still take."""
        working = asyncio.ensure_future(work)
        ending = asyncio.create_task(self._ending.wait())
        try:
            await asyncio.wait((working, ending), return_when=asyncio.FIRST_COMPLETED)
            if self._is_ours and not working.done():
                await asyncio.wait((working,), timeout=self._work_s())
        finally:
            await _cancel(working, ending)
        if not working.cancelled():
            working.result()

    async def _tick(self) -> None:
        """Note that the fetch is done, and find out when the next one is due. If there is a reason
        to let go before the store takes it, the next listener fetches at once."""
        while not self._ending.is_set():
            try:
                await self._operations.tick_subscription(
                    self._spec.name, self._held.fencing_token, self._due_at_ms
                )
                answer = await self._report.send()
            except STORE_AWAY as error:
                self._retrying.failed(error)
                await self._ends_before(self._loop.time() + AGAIN_MOST_S)
            else:
                self._heed(answer)
                self._due_at_ms, self._due_at = answer.due_at_ms, self._due(answer)
                return

    def _due(self, held: SubscriptionHold) -> float:
        """When the next scheduled fetch is due, by the loop's clock."""
        return self._loop.time() + (held.due_at_ms - held.now_ms) / 1000


async def _cancel(*tasks: asyncio.Future[Any]) -> None:
    """Until they have ended: before Python 3.12 `wait_for`, which clients of sources use, swallows
    a cancellation that comes together with its answer."""
    while pending := [task for task in tasks if not task.done()]:
        for task in pending:
            task.cancel()
        await asyncio.wait(pending, timeout=CANCEL_AGAIN_S)
    await asyncio.gather(*tasks, return_exceptions=True)
