"""Listening for declared subscriptions in a program: which ones, with what opens their sources."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from difflib import get_close_matches
from typing import Final

from tape.bus import Operations
from tape.client.run_calls import lease_owner
from tape.errors import SourceRefused
from tape.model.subscription import Subscription
from tape.model.subscription_spec import SourceKind, SourceSpec
from tape.ports.credentials import OpenCredential
from tape.ports.source import Source
from tape.settings import ListenerSettings
from tape.sources.by_spec import open_source, require_client
from tape.subscriptions.keep_listening import IsWanted, KeepListening, Observe
from tape.subscriptions.listener import PLAINLY, ListeningManner, LoginOf, OpenForListening

log = logging.getLogger("tape.subscriptions")

ANY_POOL: Final = ""
NAMED: Final = 10


def opening_sources(open_credential: OpenCredential) -> OpenForListening:
    """What opens sources with their credentials."""

    async def open_for_listening(spec: SourceSpec, name: str) -> Source:
        credential = await open_credential(spec.auth) if spec.auth else None
        return await open_source(spec, credential, name=name)

    return open_for_listening


def looking_at_logins(open_credential: OpenCredential) -> LoginOf:
    """What says whether a source has the credential that is good now."""

    async def login_of(spec: SourceSpec) -> object:
        return (await open_credential(spec.auth, counts=False)).revision if spec.auth else None

    return login_of


class ListensFor:
    """Those of a pool of listeners; without one all that do not run in a service of their own.

    Subscriptions whose client is not installed here are left to other processes.
    """

    def __init__(self, pool: str = ANY_POOL) -> None:
        self._pool = pool
        self._without_client: set[str] = set()

    def __call__(self, subscription: Subscription) -> bool:
        return self.is_meant(subscription) and self._has_client(subscription)

    def is_meant(self, subscription: Subscription) -> bool:
        """Whether its document leaves it to this process, be its client installed or not."""
        if self._pool:
            return subscription.listener_pool == self._pool
        return subscription.target != "cloud-run"

    def log_pool(self, rows: Sequence[Subscription]) -> None:
        """Say which of the subscriptions are of this pool, or which pools there are."""
        pulled = [row for row in rows if row.mode == "pull"]
        meant = [row.name for row in pulled if row.listener_pool == self._pool]
        if meant:
            more = f" and {len(meant) - NAMED} more" if len(meant) > NAMED else ""
            names = ", ".join(map(repr, meant[:NAMED]))
            log.info("pool %s: listening for %s%s", self._pool, names, more)
            return
        pools = sorted({row.listener_pool for row in pulled if row.listener_pool})
        near = get_close_matches(self._pool, pools, n=1)
        log.warning(
            "no subscription has %r as its runtime.pool, and this worker listens once there is "
            "one; %s%s",
            self._pool,
            f"pools of subscriptions: {', '.join(pools)}" if pools else "none has a pool",
            f". Did you mean {near[0]!r}?" if near else "",
        )

    def _has_client(self, subscription: Subscription) -> bool:
        try:
            require_client(SourceKind(subscription.source))
        except SourceRefused as missing:
            if subscription.name not in self._without_client:
                self._without_client.add(subscription.name)
                log.warning("subscription %r: %s", subscription.name, missing)
            return False
        return True


def listeners_keeper(
    operations: Operations,
    open_credential: OpenCredential,
    is_wanted: IsWanted,
    settings: ListenerSettings,
    *,
    owner: str = "",
    manner: ListeningManner = PLAINLY,
    observe: Observe = lambda _end: None,
    on_first_look: Callable[[Sequence[Subscription]], None] = lambda _rows: None,
) -> KeepListening:
    """What listens on a store or at a server, once it is run."""
    return KeepListening(
        operations.subscriptions,
        opening_sources(open_credential),
        is_wanted,
        settings,
        owner=owner or lease_owner(),
        manner=manner,
        observe=observe,
        on_first_look=on_first_look,
        login_of=looking_at_logins(open_credential),
    )


@asynccontextmanager
async def listening(keeper: KeepListening) -> AsyncIterator[None]:
    """Listen within this; at its end what is in hand is finished."""
    stop = asyncio.Event()
    task = asyncio.create_task(keeper.run(stop), name="tape-listening")
    try:
        yield
    finally:
        stop.set()
        await asyncio.gather(task, return_exceptions=True)
