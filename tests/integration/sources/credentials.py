"""Opened credentials, as the wallet hands them out."""

from typing import Any

from tape.ports.credentials import OpenedCredential, SecretValue


def opened(*values: Any, alias: str = "desk") -> OpenedCredential:
    """The value that is good now, then those before it."""
    return OpenedCredential(alias, 1, [SecretValue(value) for value in values])
