"""The values of a source's credential; what is wrong with them is the fault of the field `auth`."""

from collections.abc import Callable
from typing import TypeVar

from tape.brokers.credential_fields import CredentialFields, read_fields
from tape.errors import NoCredential, SourceRefused
from tape.ports.credentials import OpenedCredential

T = TypeVar("T")


def read_source_fields(
    credential: OpenedCredential | None, kind: str, read: Callable[[CredentialFields], T]
) -> list[T]:
    """Those that can be read, the current one first. SourceRefused if there is no credential, or
    none of its values is of that form."""
    if credential is None:
        raise SourceRefused(f"auth: a source of kind {kind} needs a credential; name its alias")
    try:
        return read_fields(credential, kind, read)
    except NoCredential as fault:
        raise SourceRefused(f"auth: {fault}") from None
