"""Which key-encryption keys this process has, by what the environment names:

    TAPE_WALLET_KMS=aws:KEY-ID-OR-ARN[,aws:OLDER]   in AWS KMS
    TAPE_WALLET_KEY_FILE=PATH                       lines of base64 in a file
    TAPE_WALLET_KEY=BASE64[,OLDER]                  in the environment itself
    TAPE_WALLET_SEAL_WITH=kms|file|environment      which of them wraps

Several of them may be set, so that a wallet can move from one to another: the first one in this
order that is set wraps, unless the last variable names another, and all of them unwrap. They are
read when they are first needed, and a key file again when it has changed, so a key that was added
is known at once. KMS beside others is asked when a key of it is needed: what is under another key
opens also while it is away.

What encrypts takes time to load, and most programs never open a credential: so it is loaded here
when a key is asked for.
"""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from tape.errors import WalletLocked
from tape.ports.keyring import Keyring, WrappedKey
from tape.wallet.kms import ID_PREFIX as KMS_PREFIX
from tape.wallet.kms import LateKms

if TYPE_CHECKING:
    from tape.wallet.key_file import Stamp
    from tape.wallet.local_keys import LocalKeyring

KMS_VARIABLE: Final = "TAPE_WALLET_KMS"
FILE_VARIABLE: Final = "TAPE_WALLET_KEY_FILE"
KEY_VARIABLE: Final = "TAPE_WALLET_KEY"
SEAL_VARIABLE: Final = "TAPE_WALLET_SEAL_WITH"
PLACES: Final = {"kms": KMS_VARIABLE, "file": FILE_VARIABLE, "environment": KEY_VARIABLE}
_FORMS: Final = "use aws:KEY-ID, aws:ARN or aws:alias/NAME"


class KnownKeyring(Keyring, Protocol):
    @property
    def shown(self) -> str:
        """Which keys it has."""

    def knows(self, key_id: str) -> bool:
        """Whether it has that key."""


class KeySource(Protocol):
    """Where a process has its keyring from."""

    async def keyring(self) -> Keyring:
        """As it is now. WalletLocked if this process has no key."""

    async def close(self) -> None: ...


class NoKeys:
    """That of a process which was given none."""

    async def keyring(self) -> Keyring:
        raise WalletLocked

    async def close(self) -> None:
        """There is nothing to let go of."""


NO_KEYS: Final = NoKeys()


class JoinedKeyrings:
    """Several keyrings as one. The first wraps, and whichever knows the key unwraps."""

    def __init__(self, keyrings: Sequence[KnownKeyring]) -> None:
        self._keyrings = keyrings

    async def newest(self) -> str:
        return await self._keyrings[0].newest()

    async def wrap(self, data_key: bytes, context: bytes) -> WrappedKey:
        return await self._keyrings[0].wrap(data_key, context)

    async def unwrap(self, key: WrappedKey, context: bytes) -> bytes:
        for keyring in self._keyrings:
            if keyring.knows(key.key_id):
                return await keyring.unwrap(key, context)
        names = ", ".join(keyring.shown for keyring in self._keyrings)
        raise WalletLocked(
            f"it is sealed under the key {key.key_id!r}, and this process has {names}: add that key"
        )

    async def close(self) -> None:
        for keyring in self._keyrings:
            await keyring.close()


class Keys:
    """The keyring of a process. Nothing is read, and nothing refused, before it is asked for."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._kms = environment.get(KMS_VARIABLE, "")
        self._file = environment.get(FILE_VARIABLE, "")
        self._key = environment.get(KEY_VARIABLE, "")
        self._seals_with = environment.get(SEAL_VARIABLE, "")
        self._opening = asyncio.Lock()
        self._of_kms: LateKms | None = None
        self._of_file: LocalKeyring | None = None
        self._of_key: LocalKeyring | None = None
        self._stamp: Stamp | None = None

    @property
    def is_named(self) -> bool:
        """Whether the environment names any key."""
        return bool(self._kms or self._file or self._key)

    async def keyring(self) -> Keyring:
        async with self._opening:
            keyrings: dict[str, KnownKeyring] = {}
            if self._kms:
                if self._of_kms is None:
                    self._of_kms = LateKms(_kms_names(self._kms), KMS_VARIABLE)
                keyrings["kms"] = self._of_kms
            if self._file:
                keyrings["file"] = await asyncio.to_thread(self._read_file)
            if self._key:
                keyrings["environment"] = self._read_variable()
        if not keyrings:
            raise WalletLocked
        first = self._sealing(keyrings)
        if len(keyrings) > 1:
            return JoinedKeyrings([first, *(one for one in keyrings.values() if one is not first)])
        # Alone it is asked at once: without it nothing opens.
        return await first.keyring() if isinstance(first, LateKms) else first

    async def close(self) -> None:
        if self._of_kms is not None:
            await self._of_kms.close()
            self._of_kms = None

    def _sealing(self, keyrings: Mapping[str, KnownKeyring]) -> KnownKeyring:
        if not self._seals_with:
            return next(iter(keyrings.values()))
        if self._seals_with not in PLACES:
            names = ", ".join(PLACES)
            raise WalletLocked(f"{SEAL_VARIABLE}: {self._seals_with!r} is not one of {names}")
        if self._seals_with not in keyrings:
            raise WalletLocked(
                f"{SEAL_VARIABLE} is {self._seals_with}, and {PLACES[self._seals_with]} is not set"
            )
        return keyrings[self._seals_with]

    def _read_variable(self) -> "LocalKeyring":
        if self._of_key is None:
            from tape.wallet.local_keys import read_keys

            texts = enumerate(self._key.split(","), 1)
            named = ((text.strip(), f"key {number}") for number, text in texts)
            self._of_key = read_keys(named, KEY_VARIABLE)
        return self._of_key

    def _read_file(self) -> "LocalKeyring":
        from tape.wallet.key_file import read_key_file, stamp_of

        path = Path(self._file)
        stamp = stamp_of(path, FILE_VARIABLE)
        if self._of_file is None or stamp != self._stamp:
            self._of_file = read_key_file(path, FILE_VARIABLE)
            self._stamp = stamp
        return self._of_file


def _kms_names(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if not name.startswith(KMS_PREFIX) or name == KMS_PREFIX:
            raise WalletLocked(f"{KMS_VARIABLE}: {name!r} names no key; {_FORMS}")
    return [name.removeprefix(KMS_PREFIX) for name in names]
