"""Seals a value, and opens it: AES-256-GCM under a data key of its own.

Every version of every credential gets a new data key and a new nonce. The data key is wrapped by
the key-encryption key of a keyring. Both are bound to where they belong: alias, version, form, and
the version of this format are the associated data of the value and the context of the data key.
So nothing that is stored can stand in another's place: not a value, not a data key, not a row.

A row that was there before opens again if somebody puts it back: nothing in it says that it is old.
The audit finds that, by the entries of the journal.
"""

import hmac
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import orjson
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from tape.errors import CredentialDamaged, TapeError
from tape.model.credential import CredentialForm, CredentialVersion
from tape.model.subject import encode_segment
from tape.ports.credentials import SecretValue
from tape.ports.keyring import Keyring, WrappedKey

FORMAT: Final = "tape/wallet/1"
KEY_BYTES: Final = 32
NONCE_BYTES: Final = 12
REMEDY: Final = "restore its row from a backup, or put the credential again"


def context_of(alias: str, version: int, form: str) -> bytes:
    """What a sealed value and its data key are for. An alias is encoded, so none of the parts can
    be taken for another."""
    return f"{FORMAT}/{encode_segment(alias)}/{version}/{form}".encode()


async def seal(
    keyring: Keyring, alias: str, version: int, value: str, form: CredentialForm
) -> CredentialVersion:
    """A value as it is stored under this alias and version, and nowhere else."""
    context = context_of(alias, version, form)
    data_key = AESGCM.generate_key(8 * KEY_BYTES)
    nonce = os.urandom(NONCE_BYTES)
    ciphertext = AESGCM(data_key).encrypt(nonce, value.encode(), context)
    wrapped = await keyring.wrap(data_key, context)
    return CredentialVersion(
        alias, version, form.value, wrapped.key_id, wrapped.wrapped, nonce, ciphertext
    )


async def open_version(keyring: Keyring, row: CredentialVersion) -> SecretValue:
    """The value of a row, whose alias is the one that was asked for.

    CredentialDamaged if anything of it was altered, WalletLocked without its key-encryption key.
    """
    clear = await _clear(keyring, row)
    try:
        text = clear.decode()
        value = orjson.loads(text) if row.form == CredentialForm.OBJECT else text
    except ValueError:
        raise _damaged(row) from None
    return SecretValue(value)


async def is_value_of(
    keyring: Keyring, row: CredentialVersion, value: str, form: CredentialForm
) -> bool:
    """Whether that is what was sealed in a row. Errors as those of `open_version`."""
    clear = await _clear(keyring, row)
    return row.form == form and hmac.compare_digest(clear, value.encode())


async def _clear(keyring: Keyring, row: CredentialVersion) -> bytes:
    context = _context_of_row(row)
    with _naming(row):
        data_key = await keyring.unwrap(WrappedKey(row.key_id, row.wrapped_key), context)
    try:
        return AESGCM(data_key).decrypt(row.nonce, row.ciphertext, context)
    except (InvalidTag, ValueError):
        raise _damaged(row) from None


async def rewrap(keyring: Keyring, row: CredentialVersion) -> CredentialVersion:
    """The same value, its data key under the keyring's newest key."""
    context = _context_of_row(row)
    with _naming(row):
        data_key = await keyring.unwrap(WrappedKey(row.key_id, row.wrapped_key), context)
    wrapped = await keyring.wrap(data_key, context)
    return row._replace(key_id=wrapped.key_id, wrapped_key=wrapped.wrapped)


def _context_of_row(row: CredentialVersion) -> bytes:
    try:
        return context_of(*row[:3])
    except UnicodeEncodeError:  # what was altered may be no text any more
        raise _damaged(row) from None


def _damaged(row: CredentialVersion) -> CredentialDamaged:
    return CredentialDamaged(f"{_named(row)} is not what was sealed there; {REMEDY}")


@contextmanager
def _naming(row: CredentialVersion) -> Iterator[None]:
    """A keyring does not know whose data key it is asked for."""
    try:
        yield
    except TapeError as error:
        error.args = (f"{_named(row)}: {error}",)
        raise


def _named(row: CredentialVersion) -> str:
    return f"credential {row.alias!r}, version {row.version}"
