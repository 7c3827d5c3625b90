"""The key-encryption key in AWS KMS: it never leaves the service, which wraps and unwraps for us.

The keys are named by their ids, ARNs or aliases, the newest first: that one wraps. Only the keys
that are named unwrap: else whoever can write to the store could have us open what he sealed himself
under a key of his own. What a data key is for is its encryption context, which KMS binds to it and
writes into its own audit trail.

boto3 blocks, so every call is made in a thread. Its own retries, with growing pauses, take care of
throttling and of a service that is away for a moment; after that it is WalletUnavailable.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

from tape.errors import CredentialDamaged, TapeError, WalletLocked, WalletUnavailable
from tape.ports.keyring import WrappedKey
from tape.wire.loopback import is_loopback

T = TypeVar("T")

ID_PREFIX: Final = "aws:"
CONTEXT_NAME: Final = "tape"
CONNECT_S: Final = 3.0
ANSWER_S: Final = 5.0
ATTEMPTS: Final = 5
WRAPPED_MOST: Final = 6_144
_DAMAGED: Final = (
    "its data key is not what KMS wrapped; restore its row from a backup, or put the credential "
    "again"
)
_AWAY: Final = frozenset(
    {
        "ThrottlingException", "Throttling", "TooManyRequestsException", "LimitExceededException",
        "KMSInternalException", "DependencyTimeoutException", "KeyUnavailableException",
        "InternalFailure", "ServiceUnavailable", "RequestTimeout",
    }
)  # fmt: skip


class KmsKeyring:
    """Make it by `open`."""

    def __init__(self, client: Any, keys: Sequence[str]) -> None:
        self._client = client
        self._keys = list(keys)

    def __repr__(self) -> str:
        return f"KmsKeyring({', '.join(self._keys)})"

    @classmethod
    async def open(cls, names: Sequence[str], source: str) -> "KmsKeyring":
        """The keys with these names, which `source` gave. Their ARNs are asked for."""
        client = await asyncio.to_thread(_client, source)
        keys = []
        try:
            for name in names:
                found = await _ask(client.describe_key, source, KeyId=name)
                keys.append(ID_PREFIX + found["KeyMetadata"]["Arn"])
        except BaseException:
            client.close()
            raise
        return cls(client, keys)

    @property
    def key_id(self) -> str:
        return self._keys[0]

    async def newest(self) -> str:
        return self.key_id

    async def wrap(self, data_key: bytes, context: bytes) -> WrappedKey:
        found = await _ask(
            self._client.encrypt,
            self.key_id,
            KeyId=self.key_id.removeprefix(ID_PREFIX),
            Plaintext=data_key,
            EncryptionContext={CONTEXT_NAME: context.decode()},
        )
        return WrappedKey(self.key_id, found["CiphertextBlob"])

    async def unwrap(self, key: WrappedKey, context: bytes) -> bytes:
        if key.key_id not in self._keys:
            raise WalletLocked(
                f"it is sealed under the key {key.key_id!r}, and TAPE_WALLET_KMS names "
                f"{', '.join(self._keys)}: add that key, the newest first"
            )
        if not 0 < len(key.wrapped) <= WRAPPED_MOST:  # which the client would not even send
            raise CredentialDamaged(_DAMAGED)
        found = await _ask(
            self._client.decrypt,
            key.key_id,
            KeyId=key.key_id.removeprefix(ID_PREFIX),
            CiphertextBlob=key.wrapped,
            EncryptionContext={CONTEXT_NAME: context.decode()},
            damaged=("ValidationException",),
        )
        data_key: bytes = found["Plaintext"]
        return data_key

    async def close(self) -> None:
        self._client.close()


class LateKms:
    """The keys of KMS beside others: it is asked for their names once one of them is needed, so
    that what is under the others opens also while it is away."""

    def __init__(self, names: Sequence[str], source: str) -> None:
        self._names = names
        self._source = source
        self._opening = asyncio.Lock()
        self._opened: KmsKeyring | None = None

    @property
    def shown(self) -> str:
        return ", ".join(ID_PREFIX + name for name in self._names)

    def knows(self, key_id: str) -> bool:
        """Whether it is for it to say what becomes of that key."""
        return key_id.startswith(ID_PREFIX)

    async def newest(self) -> str:
        return await (await self.keyring()).newest()

    async def wrap(self, data_key: bytes, context: bytes) -> WrappedKey:
        return await (await self.keyring()).wrap(data_key, context)

    async def unwrap(self, key: WrappedKey, context: bytes) -> bytes:
        return await (await self.keyring()).unwrap(key, context)

    async def keyring(self) -> KmsKeyring:
        async with self._opening:
            if self._opened is None:
                self._opened = await KmsKeyring.open(self._names, self._source)
            return self._opened

    async def close(self) -> None:
        opened, self._opened = self._opened, None
        if opened is not None:
            await opened.close()


def _client(source: str) -> Any:
    try:
        import boto3  # type: ignore[import-untyped]  # an extra, which takes long to load
        from botocore.config import Config  # type: ignore[import-untyped]
        from botocore.exceptions import BotoCoreError  # type: ignore[import-untyped]
    except ModuleNotFoundError:
        raise WalletLocked(f'{source} needs boto3: pip install "tape-bus[kms]"') from None
    for name in ("boto3", "botocore"):
        # At DEBUG they log what is sent, which is a data key: also if somebody turns that on later.
        told = logging.getLogger(name)
        told.setLevel(max(told.getEffectiveLevel(), logging.INFO))
    settings = Config(
        connect_timeout=CONNECT_S,
        read_timeout=ANSWER_S,
        retries={"mode": "standard", "total_max_attempts": ATTEMPTS},
    )
    try:
        client = boto3.session.Session().client("kms", config=settings)
    except (BotoCoreError, ValueError) as error:
        raise WalletLocked(f"{source}: AWS is not set up here: {error}") from None
    address = urlsplit(client.meta.endpoint_url)
    if address.scheme != "https" and not is_loopback(address.hostname or ""):
        client.close()
        raise WalletLocked(
            f"{source}: AWS is set up to reach KMS at {address.scheme}://{address.hostname}, where "
            "others could read the data keys: use https"
        )
    return client


async def _ask(
    call: Callable[..., T], key: str, *, damaged: Collection[str] = (), **arguments: Any
) -> T:
    """What KMS answers; `key` is for the words of an error. By the codes `damaged` it says that it
    cannot have made what it is asked about."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        return await asyncio.to_thread(call, **arguments)
    except ClientError as error:
        told = error.response.get("Error", {})
        if told.get("Code") in damaged:
            raise CredentialDamaged(_DAMAGED) from None
        raise _refused(told, key) from None
    except BotoCoreError as error:
        kind = type(error).__name__
        if kind in ("NoCredentialsError", "PartialCredentialsError", "NoRegionError"):
            raise WalletLocked(f"{key}: AWS is not set up here: {error}") from None
        raise WalletUnavailable(f"{key}: KMS did not answer ({kind}): try again") from None


def _refused(error: dict[str, str], key: str) -> TapeError:
    code, said = error.get("Code", ""), error.get("Message", "")
    if code in _AWAY:
        return WalletUnavailable(f"{key}: KMS did not do it ({code}): try again")
    if code == "InvalidCiphertextException":
        return CredentialDamaged(_DAMAGED)
    return WalletLocked(f"{key}: KMS refuses ({code}{': ' + said if said else ''})")
