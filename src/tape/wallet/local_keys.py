"""Key-encryption keys of 32 bytes that this process holds itself: of a file or the environment.

A key has an id that is made of it, so the same key has the same id wherever it is kept. The id
tells nothing of the key. Keys are written in base64, the newest first: that one wraps.
"""

import base64
import binascii
import hashlib
import os
from collections.abc import Iterable, Sequence
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from tape.errors import CredentialDamaged, WalletLocked
from tape.ports.keyring import WrappedKey
from tape.wallet.envelope import KEY_BYTES, NONCE_BYTES, REMEDY

ID_PREFIX: Final = "key-"
_PURPOSE: Final = b"tape/wallet/key/1/"


def key_id(key: bytes) -> str:
    """Of 64 bits of a digest: two keys of one wallet do not share it."""
    return ID_PREFIX + hashlib.sha256(_PURPOSE + key).hexdigest()[:16]


def new_key() -> bytes:
    return os.urandom(KEY_BYTES)


def written(key: bytes) -> str:
    return base64.b64encode(key).decode()


def read_keys(texts: Iterable[tuple[str, str]], source: str) -> "LocalKeyring":
    """The keyring of keys as they are written, each with words for where it is. WalletLocked, which
    repeats nothing of a key, if one is none or there is none."""
    keys: dict[bytes, None] = {}
    for text, where in texts:
        try:
            key = base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError):
            key = b""
        if len(key) != KEY_BYTES:
            raise WalletLocked(
                f"{source}: {where} is not {KEY_BYTES} bytes in base64; `tape wallet init` makes "
                "a key"
            )
        keys[key] = None
    if not keys:
        raise WalletLocked(f"{source} holds no key; `tape wallet init` makes one")
    return LocalKeyring(list(keys), source)


class LocalKeyring:
    """AES-256-GCM with a new nonce for each data key. `source` says where the keys are from."""

    def __init__(self, keys: Sequence[bytes], source: str) -> None:
        self._keys = {key_id(key): AESGCM(key) for key in keys}
        self._source = source
        self._newest = next(iter(self._keys))

    def __repr__(self) -> str:
        return f"LocalKeyring({self._source}: {', '.join(self._keys)})"

    @property
    def key_id(self) -> str:
        return self._newest

    @property
    def shown(self) -> str:
        return ", ".join(self._keys)

    async def newest(self) -> str:
        return self._newest

    @property
    def key_ids(self) -> list[str]:
        """Of all keys, the newest first."""
        return list(self._keys)

    def knows(self, key_id: str) -> bool:
        return key_id in self._keys

    async def wrap(self, data_key: bytes, context: bytes) -> WrappedKey:
        nonce = os.urandom(NONCE_BYTES)
        sealed = self._keys[self._newest].encrypt(nonce, data_key, _bound(self._newest, context))
        return WrappedKey(self._newest, nonce + sealed)

    async def unwrap(self, key: WrappedKey, context: bytes) -> bytes:
        opener = self._keys.get(key.key_id)
        if opener is None:
            raise WalletLocked(
                f"it is sealed under the key {key.key_id!r}, and {self._source} has "
                f"{', '.join(self._keys)}: add that key, the newest first"
            )
        nonce, sealed = key.wrapped[:NONCE_BYTES], key.wrapped[NONCE_BYTES:]
        try:
            return opener.decrypt(nonce, sealed, _bound(key.key_id, context))
        except (InvalidTag, ValueError):
            raise CredentialDamaged(f"its data key is not what was wrapped; {REMEDY}") from None

    async def close(self) -> None:
        """There is nothing to let go of."""


def _bound(key_id: str, context: bytes) -> bytes:
    return _PURPOSE + key_id.encode() + b"/" + context
