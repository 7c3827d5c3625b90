"""The values of a credential, read without ever repeating one: for publishing and for sources.

A value that cannot be read is left out as long as another one is good: a mistake in the new value
of a rotation must not take away the value before it. The log says so, once.
"""

import logging
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, TypeVar

from tape.errors import NoCredential, TapeError
from tape.ports.credentials import OpenedCredential, SecretValue

log = logging.getLogger("tape.secrets")
T = TypeVar("T")


class CredentialFields:
    """`kind` is what the credential is used for, as refusals name it."""

    def __init__(self, alias: str, kind: str, fields: Mapping[str, Any]) -> None:
        self._alias = alias
        self._kind = kind
        self._fields = fields

    def __repr__(self) -> str:
        return f"CredentialFields({self._alias}: {', '.join(sorted(self._fields))})"

    @property
    def fields(self) -> Mapping[str, Any]:
        return self._fields

    def has(self, name: str) -> bool:
        return self._fields.get(name) is not None

    def value(self, name: str) -> Any:
        return self._fields.get(name)

    def text(self, name: str) -> str:
        found = self._fields.get(name)
        if not isinstance(found, str) or not found:
            raise self.refused(name, "is not a text")
        return found

    def texts(self, name: str) -> list[str]:
        found = self._fields.get(name)
        if isinstance(found, str):
            found = [found]
        if not isinstance(found, list) or not found or not all(isinstance(n, str) for n in found):
            raise self.refused(name, "is not a list of texts")
        return found

    def only(self, *names: str) -> None:
        """Refuse fields of any other name."""
        for name in self._fields:
            if name not in names:
                raise self.refused(name, f"is not a field of it; there are {', '.join(names)}")

    def refused(self, name: str, why: str) -> NoCredential:
        return NoCredential(f"{name} of the {self._kind} credential {self._alias} {why}")


def read_values(credential: OpenedCredential, read: Callable[[SecretValue], T]) -> list[T]:
    """Those that can be read, the current one first. The refusal of the first if none can."""
    found: list[T] = []
    refused: list[TapeError] = []
    for value in credential.values:
        try:
            found.append(read(value))
        except TapeError as error:
            refused.append(error)
    if refused and not found:
        raise refused[0]
    for refusal in refused:
        _warn_of_one_left_out(credential.alias, credential.version, str(refusal))
    return found


def read_fields(
    credential: OpenedCredential, kind: str, read: Callable[[CredentialFields], T]
) -> list[T]:
    """As `read_values`, of values that must be objects. NoCredential."""

    def read_object(value: SecretValue) -> T:
        if value.fields is None:
            raise NoCredential(
                f"the credential {credential.alias} is a text, and {kind} needs an object"
            )
        return read(CredentialFields(credential.alias, kind, value.fields))

    return read_values(credential, read_object)


@lru_cache(256)
def _warn_of_one_left_out(alias: str, version: int, why: str) -> None:
    log.warning(
        "credential %r, version %d: a value is left out, as another one is good: %s",
        alias, version, why,
    )  # fmt: skip
