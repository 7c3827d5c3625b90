"""Listening in a process: for every active subscription that it may listen for and nobody else
holds.

Any number of processes may do this on one journal. Whoever gets the hold listens; when it lets go
or dies, another takes over at its next look.

That a source is away is logged once for all subscriptions that wait for it, as are a store and a
wallet's key service; any other trouble by each subscription for itself.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from tape.errors import Closed, TapeError
from tape.model.subscription import Subscription, SubscriptionState
from tape.model.subscription_spec import SourceSpec
from tape.ports.backoffs import Backoffs
from tape.ports.source import Source
from tape.settings import ListenerSettings
from tape.subscriptions.listener import (
    PLAINLY,
    HeldListener,
    ListenerEnd,
    ListeningManner,
    LoginOf,
    OpenForListening,
    no_login,
)
from tape.subscriptions.listening_report import ListeningReport
from tape.subscriptions.operations import (
    HoldSubscription,
    SubscriptionOperations,
    SubscriptionView,
)
from tape.subscriptions.spec import spec_of_json
from tape.telemetry.retrying import Retrying, is_outage
from tape.telemetry.unknown_errors import log_unknown

log = logging.getLogger("tape.subscriptions")

AGAIN_FIRST_S: Final = 1.0
AGAIN_MOST_S: Final = 30.0
STOP_LEAST_S: Final = 10.0
STOPS: Final = "this process stops"
LISTENED_FOR: Final = (SubscriptionState.ACTIVE, SubscriptionState.DRAINING)
"""What drains and is held by nobody is deactivated by an attempt to hold it."""

IsWanted = Callable[[Subscription], bool]
Observe = Callable[[ListenerEnd | None], None]
"""Is told of the end of each listener, and of None where one begins."""


class KeepListening:
    """`is_wanted` says which subscriptions this process listens for, by their rows."""

    def __init__(
        self,
        operations: SubscriptionOperations,
        open_source: OpenForListening,
        is_wanted: IsWanted,
        settings: ListenerSettings,
        *,
        owner: str,
        manner: ListeningManner = PLAINLY,
        observe: Observe = lambda _end: None,
        on_first_look: Callable[[Sequence[Subscription]], None] = lambda _rows: None,
        login_of: LoginOf = no_login,
    ) -> None:
        self._operations = operations
        self._manner = manner
        self._observe = observe
        self._on_first_look = on_first_look
        self._has_looked = False
        self._open_source = open_source
        self._login_of = login_of
        self._is_wanted = is_wanted
        self._settings = settings
        self._owner = owner
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._listeners: dict[str, HeldListener] = {}
        self._is_stopping = False
        self._backoffs = Backoffs(AGAIN_FIRST_S, AGAIN_MOST_S)
        self._retrying = Retrying(log, "listening")
        self._retrying_by_name: dict[str, Retrying] = {}

    async def run(self, stop: asyncio.Event) -> None:
        """Until `stop` is set; then what is in hand is finished, within the time of grace."""
        stopping = asyncio.create_task(stop.wait())
        try:
            looking = asyncio.create_task(self._keep_looking(), name="tape-look")
            await asyncio.wait((looking, stopping), return_when=asyncio.FIRST_COMPLETED)
            looking.cancel()  # a store that is away would hold up the end of listeners
            await asyncio.gather(looking, return_exceptions=True)
            if not looking.cancelled():
                looking.result()
            if not stop.is_set():
                return
            self._is_stopping = True
            for listener in self._listeners.values():
                listener.end(STOPS)
            if self._tasks:
                await asyncio.wait(self._tasks.values(), timeout=self._stop_s())
        finally:
            stopping.cancel()
            for task in self._tasks.values():
                task.cancel()
            await asyncio.gather(stopping, *self._tasks.values(), return_exceptions=True)

    def _stop_s(self) -> float:
        """Listeners end by themselves within the time of grace; who still asks for a hold is not
        waited for any longer."""
        return max(self._settings.grace_s, STOP_LEAST_S)

    async def _keep_looking(self) -> None:
        """Until the journal is closed."""
        while True:
            try:
                await self._look()
                self._retrying.succeeded()
            except Closed:
                return
            except TapeError as error:
                self._retrying.failed(error)
            except Exception as error:  # noqa: BLE001 - whatever it is, listening must not stop for good
                log_unknown(
                    log, "looking for subscriptions, which is tried again, has failed", error
                )
            await asyncio.sleep(self._settings.look_s)

    async def _look(self) -> None:
        """Tell listeners how their subscriptions stand, and begin those that are missing."""
        views = await self._operations.list_subscriptions()
        if not self._has_looked:
            self._has_looked = True
            self._on_first_look([view.subscription for view in views])
        for view in views:
            subscription = view.subscription
            listener = self._listeners.get(subscription.name)
            if listener is not None:
                listener.notice(subscription)
            elif self._is_free(view) and subscription.name not in self._tasks:
                work = self._listen(subscription.name)
                task = asyncio.create_task(work, name=f"tape-listen-{subscription.name}")
                self._tasks[subscription.name] = task
        names = {view.subscription.name for view in views}
        self._backoffs.forget_others(names)
        for name in self._retrying_by_name.keys() - names:
            del self._retrying_by_name[name]

    def _is_free(self, view: SubscriptionView) -> bool:
        """Whether this process should try to hold it now."""
        row = view.subscription
        if row.mode != "pull" or row.state not in LISTENED_FOR or view.is_held:
            return False
        return row.name not in self._backoffs and self._is_wanted(row)

    async def _listen(self, name: str) -> None:
        """Hold it and listen, if nobody else does."""
        try:
            await self._listen_if_granted(name)
        except TapeError as error:
            self._backoffs.add(name)
            self._retrying.failed(error)
        except Exception as error:  # noqa: BLE001 - whatever it is, this subscription must not stop for good
            self._backoffs.add(name)
            log_unknown(log, f"listening for subscription {name!r} has failed", error)
        finally:
            self._listeners.pop(name, None)
            self._tasks.pop(name, None)

    async def _listen_if_granted(self, name: str) -> None:
        ask = HoldSubscription(name, self._owner, round(self._settings.lease_s * 1000))
        held = await self._operations.hold_subscription(ask)
        if not held.is_granted:
            return
        spec = await asyncio.to_thread(spec_of_json, held.document_json)
        ask = ask._replace(fencing_token=held.fencing_token, revision=held.revision)
        report = ListeningReport(self._operations, ask)
        retrying = self._retrying_by_name.setdefault(name, Retrying(log, f"subscription {name!r}"))
        listener = HeldListener(
            self._operations,
            held,
            spec,
            report,
            open_source=partial(self._open, retrying),
            login_of=self._login_of,
            settings=self._settings,
            manner=self._manner,
        )
        self._listeners[name] = listener
        self._observe(None)
        if self._is_stopping:  # since the hold was asked for
            listener.end(STOPS)
        log.info("listening for subscription %r, revision %d", name, held.revision)
        end = await listener.run()
        self._observe(end)
        if end.is_trouble:
            pause_s = self._backoffs.add(name)
            if end.error is not None and is_outage(end.error):
                retrying.failed(end.error, pause_s)
            else:
                log.warning("subscription %r: %s", name, end.because)
        else:
            self._backoffs.forget(name)
            log.info("no longer listening for subscription %r: %s", name, end.because)

    async def _open(self, retrying: Retrying, spec: SourceSpec, name: str) -> Source:
        source = await self._open_source(spec, name)
        retrying.succeeded()
        return source
