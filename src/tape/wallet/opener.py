"""Opens credentials for use, and keeps what was opened in memory.

What is kept is good for `RENEW_S`. Then the sealed versions are read again, and opened again only
if they are others: so a process learns of a put, a rotation or a deletion within two seconds, and
one that uses a credential all the time reads one row a second. If the store, the server or the
service that has the key cannot be reached, or does not answer for `PATIENCE_S`, what was opened
last stays good until it can: a webhook is still verified and a broker still reached while the
journal is away.

A version that this process cannot open, because it lacks the key or the row is damaged, is left out
as long as another one opens: a rotation by somebody with a newer key must not take away the value
before it. It is tried again at each renewal. Every other refusal is the caller's.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from tape.errors import (
    Closed,
    CredentialDamaged,
    Overloaded,
    StoreUnavailable,
    TapeError,
    WalletLocked,
    WalletUnavailable,
)
from tape.model.credential import CredentialVersion
from tape.ports.credentials import OpenedCredential, SecretValue
from tape.wallet.keys import KeySource

log = logging.getLogger("tape.secrets")

RENEW_S: Final = 1.0
PATIENCE_S: Final = 0.5
MOST_KEPT: Final = 256
AWAY: Final = (StoreUnavailable, Overloaded, WalletUnavailable)
"""It cannot be found out what is good now."""
SHUT: Final = (WalletLocked, CredentialDamaged)
"""This version does not open here; another one may."""

ValueName = tuple[int, str, bytes, bytes]

ReadSealed = Callable[[str], Awaitable[Sequence[CredentialVersion]]]
"""The versions of an alias that are good, the current one first. NoCredential if there are none."""
OnOpened = Callable[[str], None]


class _Kept(NamedTuple):
    """`values` are those that open, the current one first."""

    alias: str
    values: dict[ValueName, SecretValue]
    renew_at: float

    @property
    def opened(self) -> OpenedCredential:
        version, *_rest = next(iter(self.values))
        return OpenedCredential(self.alias, version, tuple(self.values.values()))


class CredentialOpener:
    """An `OpenCredential`. Make it on the event loop it will be used on."""

    def __init__(
        self,
        read_sealed: ReadSealed,
        keys: KeySource,
        on_opened: OnOpened,
        *,
        now: Callable[[], float] | None = None,
    ) -> None:
        """`on_opened` is told of each opening, from memory too."""
        self._read_sealed = read_sealed
        self._keys = keys
        self._on_opened = on_opened
        self._now = now or asyncio.get_running_loop().time
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self._renewing: dict[str, asyncio.Task[OpenedCredential]] = {}
        self._tasks: set[asyncio.Task[OpenedCredential]] = set()

    async def __call__(self, alias: str, *, counts: bool = True) -> OpenedCredential:
        kept = self._kept.get(alias)
        if kept is None:
            task = self._renewal(alias)
            await asyncio.wait((task,))
            opened = _result(task)
        elif self._now() < kept.renew_at:
            opened = kept.opened
        else:
            opened = await self._renewed(alias, kept)
        if counts:
            self._on_opened(alias)
        return opened

    def forget(self, alias: str) -> None:
        """Read it again at its next opening: it was changed here."""
        self._kept.pop(alias, None)
        self._renewing.pop(alias, None)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._kept.clear()

    async def _renewed(self, alias: str, kept: _Kept) -> OpenedCredential:
        """As it is now, or as it was last known where that cannot be found out."""
        waits = alias not in self._renewing  # whoever comes later has waited long enough already
        task = self._renewal(alias)
        await asyncio.wait((task,), timeout=PATIENCE_S if waits else 0)
        if not task.done():
            return kept.opened
        try:
            return _result(task)
        except AWAY:
            if alias in self._kept:
                self._kept[alias] = kept._replace(renew_at=self._now() + RENEW_S)
            return kept.opened

    def _renewal(self, alias: str) -> asyncio.Task[OpenedCredential]:
        """The one task that reads an alias, whoever waits for it."""
        task = self._renewing.get(alias)
        if task is None:
            task = asyncio.create_task(self._open(alias), name="tape-open-credential")
            self._renewing[alias] = task
            self._tasks.add(task)
            task.add_done_callback(lambda done: self._settled(alias, done))
        return task

    def _settled(self, alias: str, task: asyncio.Task[OpenedCredential]) -> None:
        self._tasks.discard(task)
        if self._renewing.get(alias) is task:
            del self._renewing[alias]
        if task.cancelled():
            return
        error = task.exception()  # nobody may be waiting any more
        if error is not None and not isinstance(error, (*AWAY, Closed)):
            self._kept.pop(alias, None)

    async def _open(self, alias: str) -> OpenedCredential:
        task = asyncio.current_task()
        begun = self._now()
        sealed = await self._read_sealed(alias)
        before = self._kept.get(alias)
        values = await self._values(alias, sealed, before.values if before else {})
        kept = _Kept(alias, values, begun + RENEW_S)
        if self._renewing.get(alias) is task:  # it was not changed here in the meantime
            self._kept[alias] = kept
            self._kept.move_to_end(alias)
            if len(self._kept) > MOST_KEPT:
                self._kept.popitem(last=False)
        return kept.opened

    async def _values(
        self,
        alias: str,
        sealed: Sequence[CredentialVersion],
        known: Mapping[ValueName, SecretValue],
    ) -> dict[ValueName, SecretValue]:
        """What is new is opened: so what was retired goes also while KMS is away."""
        values: dict[ValueName, SecretValue] = {}
        shut: list[TapeError] = []
        for row in sealed:
            name = _name_of(row)
            if name in known:
                values[name] = known[name]
                continue
            try:
                values[name] = await self._unsealed(alias, row)
            except SHUT as error:
                shut.append(error)
        if not values:
            raise shut[0]
        for refusal in shut:
            _warn_of_one_left_out(str(refusal))
        return values

    async def _unsealed(self, alias: str, row: CredentialVersion) -> SecretValue:
        from tape.wallet.envelope import open_version  # what encrypts is loaded when it is needed

        keyring = await self._keys.keyring()
        # Sealed for the alias that was asked for, whatever the row calls itself.
        return await open_version(keyring, row._replace(alias=alias))


def _result(task: asyncio.Task[OpenedCredential]) -> OpenedCredential:
    if task.cancelled():
        raise Closed
    return task.result()


def _name_of(row: CredentialVersion) -> ValueName:
    """What says whether values are the same; a rewrap changes the rest."""
    return (row.version, row.form, row.nonce, row.ciphertext)


@lru_cache(MOST_KEPT)
def _warn_of_one_left_out(why: str) -> None:
    log.warning("%s. It is left out, as another version opens", why)
