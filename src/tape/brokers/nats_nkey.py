"""NATS's own keys: an Ed25519 key, written as a seed `SU…`, that signs what a server asks.

A file of credentials holds such a seed beside a JWT that says who its owner is. The client's
library reads both with the help of another package; what it needs of that is here.
"""

import base64
import binascii
import re
from typing import Final, NamedTuple

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from tape.errors import InvalidArgument

_SEED: Final = 18 << 3  # the letter S
_USER: Final = 20 << 3  # the letter U
_PEM = re.compile(r"-{3,}BEGIN ([A-Z ]+)-{3,}\s+(\S+)\s+-{3,}END")


class NatsKey:
    """The key of a user. Nothing prints it."""

    def __init__(self, seed: str) -> None:
        self._key = Ed25519PrivateKey.from_private_bytes(_decoded_seed(seed.strip()))
        raw = self._key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
        self.public = _encoded(bytes([_USER]) + raw)

    def __repr__(self) -> str:
        return f"NatsKey({self.public})"

    def sign(self, nonce: str) -> bytes:
        return base64.b64encode(self._key.sign(nonce.encode()))


class NatsCredentials(NamedTuple):
    """What a file of credentials holds."""

    jwt: str
    key: NatsKey

    def __repr__(self) -> str:
        return f"NatsCredentials({self.key.public})"


def read_nats_credentials(text: str) -> NatsCredentials:
    found = dict(_PEM.findall(text))
    jwt, seed = found.get("NATS USER JWT"), found.get("USER NKEY SEED")
    if not jwt or not seed:
        raise InvalidArgument(
            "is not the text of a credentials file, with a NATS USER JWT and a USER NKEY SEED",
            field="creds",
        )
    return NatsCredentials(jwt, NatsKey(seed))


def _decoded_seed(seed: str) -> bytes:
    refused = InvalidArgument("is not the seed of a user's key (SU…)", field="nkey_seed")
    try:
        raw = base64.b32decode(seed + "=" * (-len(seed) % 8))
    except (binascii.Error, ValueError):
        raise refused from None
    kind = (raw[0] & 0x07) << 5 | raw[1] >> 3 if len(raw) == 36 else 0
    if kind != _USER or raw[0] & 0xF8 != _SEED or _checksum(raw[:-2]) != raw[-2:]:
        raise refused
    return raw[2:-2]


def _encoded(raw: bytes) -> str:
    return base64.b32encode(raw + _checksum(raw)).decode().rstrip("=")


def _checksum(raw: bytes) -> bytes:
    return binascii.crc_hqx(raw, 0).to_bytes(2, "little")
