"""The key-encryption key: it wraps the data keys of credentials, and never leaves its provider.

Providers are a file, the environment, and a key management service. A keyring may know several
keys: it wraps with the newest, and unwraps with whichever wrapped.
"""

from typing import NamedTuple, Protocol


class WrappedKey(NamedTuple):
    """A data key under the key-encryption key with this id."""

    key_id: str
    wrapped: bytes


class Keyring(Protocol):
    async def newest(self) -> str:
        """The id of the key that wraps now."""

    async def wrap(self, data_key: bytes, context: bytes) -> WrappedKey:
        """`context` says what the data key is for; it unwraps only with the same."""

    async def unwrap(self, key: WrappedKey, context: bytes) -> bytes:
        """WalletLocked if the keyring lacks the key; CredentialDamaged if it does not fit."""

    async def close(self) -> None: ...
