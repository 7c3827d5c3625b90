"""NATS servers that ask who one is, in each way there is, and what lets one in.

Accounts, users and their JWTs are made here as NATS's own tools make them, with keys of their own.
"""

import base64
import binascii
import json
import uuid
from typing import Any, NamedTuple

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

_KINDS = {"O": 14 << 3, "A": 0, "U": 20 << 3}


class Key:
    """A key of an operator (O), an account (A) or a user (U)."""

    def __init__(self, kind: str) -> None:
        self._key = Ed25519PrivateKey.generate()
        letter = _KINDS[kind]
        raw = self._key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
        self.public = _encoded(bytes([letter]) + raw)
        secret = self._key.private_bytes(Encoding.Raw, PrivateFormat.Raw, NoEncryption())
        self.seed = _encoded(bytes([18 << 3 | letter >> 5, (letter & 31) << 3]) + secret)

    def jwt(self, subject: "Key", name: str, **claims: Any) -> str:
        body = {
            "jti": uuid.uuid4().hex, "iat": 1_700_000_000, "iss": self.public, "name": name,
            "sub": subject.public, "nats": {"version": 2, **claims},
        }  # fmt: skip
        signed = f"{_part({'typ': 'JWT', 'alg': 'ed25519-nkey'})}.{_part(body)}"
        return f"{signed}.{_base64(self._key.sign(signed.encode()))}"


class NatsLogin(NamedTuple):
    """`config` makes a server ask for it, `credential` lets one in, and `wrong` does not."""

    config: str
    credential: dict[str, str]
    wrong: dict[str, str]


def password_login() -> NatsLogin:
    return NatsLogin(
        'authorization { user: tape, password: "hunter2" }',
        {"user": "tape", "password": "hunter2"},
        {"user": "tape", "password": "wrong-one"},
    )


def token_login() -> NatsLogin:
    return NatsLogin(
        'authorization { token: "hunter2-token" }',
        {"token": "hunter2-token"},
        {"token": "wrong-one"},
    )


def nkey_login() -> NatsLogin:
    user = Key("U")
    return NatsLogin(
        f"authorization {{ users: [ {{ nkey: {user.public} }} ] }}",
        {"nkey_seed": user.seed},
        {"nkey_seed": Key("U").seed},
    )


def creds_login() -> NatsLogin:
    """An operator, an account with JetStream, and a user of it with a file of credentials."""
    operator, system, account, user, stranger = Key("O"), Key("A"), Key("A"), Key("U"), Key("U")
    told = {
        key.public: operator.jwt(key, name, type="account", limits=_limits(storage))
        for key, name, storage in ((account, "desk", -1), (system, "system", 0))
    }
    preload = "\n".join(f"  {public}: {jwt}" for public, jwt in told.items())
    everything = {"pub": {}, "sub": {}, "subs": -1, "data": -1, "payload": -1, "type": "user"}
    return NatsLogin(
        f"operator: {operator.jwt(operator, 'tape', type='operator')}\n"
        f"system_account: {system.public}\nresolver: MEMORY\n"
        f"resolver_preload: {{\n{preload}\n}}",
        {"creds": _creds(account.jwt(user, "tape", **everything), user.seed)},
        {"creds": _creds(account.jwt(user, "tape", **everything), stranger.seed)},
    )


def _limits(storage: int) -> dict[str, Any]:
    """`storage` of 0 is no JetStream, which the account of the system may not have."""
    names = ("subs", "data", "payload", "imports", "exports", "conn", "leaf", "streams", "consumer")
    stores = {"mem_storage": storage, "disk_storage": storage}
    return {**dict.fromkeys(names, -1), **stores, "wildcards": True}


def _creds(jwt: str, seed: str) -> str:
    return (
        f"-----BEGIN NATS USER JWT-----\n{jwt}\n------END NATS USER JWT------\n\n"
        "************************* IMPORTANT *************************\n\n"
        f"-----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
    )


def _encoded(raw: bytes) -> str:
    return (
        base64.b32encode(raw + binascii.crc_hqx(raw, 0).to_bytes(2, "little")).decode().rstrip("=")
    )


def _part(value: dict[str, Any]) -> str:
    return _base64(json.dumps(value).encode())


def _base64(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")
