"""Signatures of webhooks, as Standard Webhooks lays down: HMAC-SHA256 over `id.timestamp.body`.

Pure functions on bytes: who publishes signs by them, and who receives verifies by them.
"""

import base64
import binascii
import hashlib
import hmac
from typing import Final

from tape.errors import InvalidArgument

SECRET_PREFIX: Final = "whsec_"  # noqa: S105 - what the specification puts before one
SECRET_LEAST: Final = 24
SECRET_MOST: Final = 64


def secret_key(secret: str) -> bytes:
    """The key of a secret `whsec_<base64>`; another text is taken as it is."""
    key = secret.encode()
    if secret.startswith(SECRET_PREFIX):
        try:
            key = base64.b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)
        except binascii.Error:
            raise InvalidArgument("the text after whsec_ is not base64", field="secret") from None
    if not SECRET_LEAST <= len(key) <= SECRET_MOST:
        raise InvalidArgument(
            f"has {len(key)} bytes; a secret has {SECRET_LEAST} to {SECRET_MOST}", field="secret"
        )
    return key


def signature(key: bytes, message_id: str, timestamp: str, body: bytes) -> str:
    """The parts of what is signed are told apart by dots: the id must hold none."""
    signed = f"{message_id}.{timestamp}.".encode() + body
    return "v1," + base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()
