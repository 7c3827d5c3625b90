"""Short names for what is said: equal values have equal ones, and others have others."""

import hashlib
from base64 import b32hexencode
from collections.abc import Sequence
from typing import Final

import orjson

BYTES: Final = 10


def short_digest(values: Sequence[str | int | None]) -> str:
    found = hashlib.sha256(orjson.dumps([*values])).digest()[:BYTES]
    return b32hexencode(found).decode().lower()
