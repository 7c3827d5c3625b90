"""A credential that was opened for use. It is kept in memory, and its repr shows no secret."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol


class SecretValue:
    """A text, or an object of fields. Nothing prints it."""

    __slots__ = ("_value",)

    def __init__(self, value: str | Mapping[str, Any]) -> None:
        self._value = value

    def __repr__(self) -> str:
        return "SecretValue(…)"

    @property
    def text(self) -> str | None:
        return self._value if isinstance(self._value, str) else None

    @property
    def fields(self) -> Mapping[str, Any] | None:
        return None if isinstance(self._value, str) else self._value


class OpenedCredential(NamedTuple):
    """`values` are those that are good now: the current one first, then, after a rotation, the one
    before it."""

    alias: str
    version: int
    values: Sequence[SecretValue]

    @property
    def revision(self) -> tuple[int, int]:
        """It is another one once a change has made other values good."""
        return self.version, len(self.values)

    @property
    def current(self) -> SecretValue:
        return self.values[0]


class OpenCredential(Protocol):
    async def __call__(self, alias: str, *, counts: bool = True) -> OpenedCredential:
        """NoCredential if there is none by that alias, WalletLocked without the key. Who only looks
        whether it has changed does not have it counted."""
