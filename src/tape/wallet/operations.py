"""The operations on credentials, the same in process and over gRPC. Values go in and never out.

`Wallet` does them on a store; `tape.client` does them at a server. What is opened is opened where
it is used: by `Wallet.open_credential` on a store in this process, and by an opener with a keyring
of its own at a server, which sends what is sealed.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, Protocol

import orjson

from tape.errors import (
    CredentialDamaged,
    InvalidArgument,
    NoCredential,
    TapeError,
    TooLarge,
    VersionMismatch,
    WalletLocked,
    WalletUnavailable,
)
from tape.journal.ids import UlidFactory
from tape.journal.writer import Writer
from tape.model.credential import (
    CountOpenings,
    Credential,
    CredentialForm,
    CredentialState,
    CredentialVersion,
    DeleteCredential,
    PutCredential,
    RetireCredential,
    RewrapCredential,
    check_alias,
    credential_state,
    no_credential,
)
from tape.model.json_text import utf8_length
from tape.ports.credentials import OpenedCredential
from tape.ports.keyring import Keyring
from tape.ports.store import Store
from tape.settings import KIB, Limits
from tape.telemetry import metrics
from tape.wallet.keys import KeySource
from tape.wallet.opener import CredentialOpener
from tape.wallet.openings import Openings

__all__ = ["CredentialState", "SealedCredential", "SealedVersion", "Wallet", "WalletOperations"]

VALUE_BYTES: Final = 64 * KIB
REWRAP_PAGE: Final = 500
REWRAP_AT_ONCE: Final = 20
REWRAP_PASSES: Final = 3
_BROKEN: Final = (CredentialDamaged, WalletLocked, WalletUnavailable)


class SealedVersion(NamedTuple):
    version: int
    form: str
    key_id: str
    wrapped_key: bytes
    nonce: bytes
    ciphertext: bytes


class SealedCredential(NamedTuple):
    """The versions that are good now, the current one first, as they are stored."""

    alias: str
    versions: tuple[SealedVersion, ...]


class WalletOperations(Protocol):
    async def put_credential(self, alias: str, value: str, *, form: str = "") -> CredentialState:
        """Seal a value as a new version; the one before is refused at once. `form` is text or
        object; empty is object for a text that is a JSON object, and refuses one that only begins
        like that."""

    async def rotate_credential(self, alias: str, value: str, *, form: str = "") -> CredentialState:
        """Seal a value as a new version; the one before stays good until the next rotation, or
        until it is retired. The current value once more changes nothing, nor does it with `put`
        where no other is good: so either may be repeated."""

    async def retire_credential(self, alias: str) -> CredentialState:
        """Refuse the version before the current one from now on."""

    async def list_credentials(self) -> list[CredentialState]:
        """By alias."""

    async def delete_credential(self, alias: str) -> bool:
        """False if there is none."""

    async def rewrap_credentials(self) -> int:
        """Wrap every data key with the newest key-encryption key; how many were. An alias opens at
        every moment of it."""

    async def get_sealed_credential(self, alias: str) -> SealedCredential:
        """For a runtime elsewhere, which has its own keyring. NoCredential if there is none."""


class Wallet:
    """The operations on a store in this process. `keys` are this process's own."""

    def __init__(
        self, store: Store, writer: Writer, ids: UlidFactory, limits: Limits, keys: KeySource
    ) -> None:
        self._store = store
        self._writer = writer
        self._ids = ids
        self._limits = limits
        self._keys = keys
        self._openings = Openings(self._add_openings)
        self._opener = CredentialOpener(self._sealed, keys, self._openings.count)

    async def put_credential(self, alias: str, value: str, *, form: str = "") -> CredentialState:
        return await self._put(alias, value, form, keeps_previous=False)

    async def rotate_credential(self, alias: str, value: str, *, form: str = "") -> CredentialState:
        return await self._put(alias, value, form, keeps_previous=True)

    async def retire_credential(self, alias: str) -> CredentialState:
        while True:
            version = await self._version(alias)
            try:
                state = await self._writer.submit(
                    RetireCredential(alias, version, next(self._ids), self._limits)
                )
            except VersionMismatch:  # another one changed it meanwhile
                continue
            self._opener.forget(alias)
            return state

    async def list_credentials(self) -> list[CredentialState]:
        return await self._store.wallet.list_credentials()

    async def delete_credential(self, alias: str) -> bool:
        deleted = await self._writer.submit(DeleteCredential(alias, next(self._ids), self._limits))
        self._opener.forget(alias)
        if deleted:
            metrics.forget_credential(alias)
        return deleted

    async def rewrap_credentials(self) -> int:
        """One that cannot be rewrapped keeps no other from it, and is told of at the end."""
        keyring = await self._keys.keyring()
        rewrapped = 0
        faults: list[TapeError] = []
        for _ in range(REWRAP_PASSES):  # what was put meanwhile may be under an older key
            faults.clear()
            done = await self._rewrap_all(keyring, faults)
            rewrapped += done
            if not done:
                break
        if faults:
            faults[0].args = (f"{faults[0]} ({rewrapped} others were rewrapped)",)
            raise faults[0]
        return rewrapped

    async def get_sealed_credential(self, alias: str) -> SealedCredential:
        rows = await self._sealed(alias)
        self._openings.count(alias)
        return SealedCredential(alias, tuple(SealedVersion(*row[1:7]) for row in rows))

    async def has_credential(self, alias: str) -> bool:
        try:
            await self._sealed(alias)
        except NoCredential:
            return False
        return True

    async def open_credential(self, alias: str, *, counts: bool = True) -> OpenedCredential:
        """Open a credential for use in this process: an `OpenCredential`."""
        return await self._opener(alias, counts=counts)

    async def close(self) -> None:
        """Write what was counted; what was opened is forgotten."""
        await self._opener.close()
        await self._openings.close()
        await self._keys.close()

    async def _put(
        self, alias: str, value: str, form: str, *, keeps_previous: bool
    ) -> CredentialState:
        from tape.wallet.envelope import seal  # what encrypts is loaded when it is needed

        check_alias(alias, self._limits)
        kept_form = checked_form(value, form)
        keyring = await self._keys.keyring()
        while True:
            before = await self._store.wallet.get_credential(alias)
            if keeps_previous and (before is None or before.deleted):
                raise no_credential(alias)
            if before is not None and (keeps_previous or not before.previous_version):
                repeated = await self._state_if_it_is(before, keyring, value, kept_form)
                if repeated is not None:
                    return repeated
            version = 1 + (before.version if before else 0)
            row = await seal(keyring, alias, version, value, kept_form)
            move = PutCredential(row, next(self._ids), self._limits, keeps_previous=keeps_previous)
            try:
                state = await self._writer.submit(move)
            except VersionMismatch:  # another one was faster, so this is the version after it
                continue
            self._opener.forget(alias)
            return state

    async def _state_if_it_is(
        self, now: Credential, keyring: Keyring, value: str, form: CredentialForm
    ) -> CredentialState | None:
        """The state of a credential whose current value that is. Whoever puts or rotates once more
        because he got no answer must not lose the value before it."""
        from tape.wallet.envelope import is_value_of  # the same

        rows = await self._store.wallet.get_credential_versions(now.alias)
        if not rows or tuple(row.version for row in rows) != now.versions:
            return None
        try:
            if not await is_value_of(keyring, rows[0], value, form):
                return None
        except _BROKEN:  # what cannot be opened is replaced
            return None
        return credential_state(now, rows[0], rows[1] if rows[1:] else None)

    async def _version(self, alias: str) -> int:
        check_alias(alias, self._limits)
        row = await self._store.wallet.get_credential(alias)
        if row is None or row.deleted:
            raise no_credential(alias)
        return row.version

    async def _sealed(self, alias: str) -> Sequence[CredentialVersion]:
        check_alias(alias, self._limits)
        rows = await self._store.wallet.get_credential_versions(alias)
        if not rows:
            raise no_credential(alias)
        return rows

    async def _rewrap_all(self, keyring: Keyring, faults: list[TapeError]) -> int:
        """One pass in order; how many were rewrapped."""
        rewrapped, after = 0, ("", 0)
        newest = await keyring.newest()
        while True:
            rows = await self._store.wallet.list_versions_under_other_keys(
                newest, after, REWRAP_PAGE
            )
            for start in range(0, len(rows), REWRAP_AT_ONCE):
                group = rows[start : start + REWRAP_AT_ONCE]
                rewrapping = (self._rewrap(keyring, row, faults) for row in group)
                before = len(faults)
                rewrapped += sum(await asyncio.gather(*rewrapping))
                failed = faults[before:]
                if len(failed) == len(group) and all(map(_is_away, failed)):
                    return rewrapped  # the service is away, and each asks it for half a minute
            if len(rows) < REWRAP_PAGE:
                return rewrapped
            after = rows[-1][:2]

    async def _rewrap(
        self, keyring: Keyring, row: CredentialVersion, faults: list[TapeError]
    ) -> bool:
        from tape.wallet.envelope import rewrap  # the same

        try:
            now = await rewrap(keyring, row)
        except _BROKEN as fault:
            faults.append(fault)
            return False
        return await self._writer.submit(
            RewrapCredential(row.wrapped_key, now, next(self._ids), self._limits)
        )

    async def _add_openings(self, openings: Mapping[str, int]) -> None:
        await self._writer.submit(CountOpenings(openings))


def _is_away(fault: TapeError) -> bool:
    return isinstance(fault, WalletUnavailable)


def checked_form(value: str, form: str) -> CredentialForm:
    """The form of a value, or a refusal that repeats nothing of it."""
    size = utf8_length(value, "value")
    if not value:
        raise InvalidArgument("must not be empty", field="value")
    if size > VALUE_BYTES:
        raise TooLarge(f"{size} bytes, the limit is {VALUE_BYTES}", field="value")
    known = [each.value for each in CredentialForm]
    if form and form not in known:
        raise InvalidArgument(f"{form!r} is not one of {', '.join(known)}", field="form")
    if form == CredentialForm.TEXT:
        return CredentialForm.TEXT
    is_object = _is_object(value)
    if form == CredentialForm.OBJECT and not is_object:
        raise InvalidArgument("is not a JSON object", field="value")
    if not is_object and value.lstrip().startswith("{"):
        raise InvalidArgument(
            "begins as a JSON object and is none: correct it, or say that it is a text (--text)",
            field="value",
        )
    return CredentialForm.OBJECT if is_object else CredentialForm.TEXT


def _is_object(text: str) -> bool:
    try:
        return isinstance(orjson.loads(text), dict)
    except orjson.JSONDecodeError:
        return False
