"""Which login of a credential a source is opened with, while it is being changed."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from tape.errors import BrokerUnavailable, SourceRefused, SourceUnavailable, TapeError

Login = TypeVar("Login")
Opened = TypeVar("Opened")


async def open_with_first(
    logins: Sequence[Login],
    open_with: Callable[[Login], Awaitable[Opened]],
    refusal: type[TapeError] = SourceRefused,
) -> Opened:
    """With the current one; with the one before if that is refused, or nobody is where it leads.
    If none gets in, what may pass is told rather than a `refusal`."""
    failures: list[TapeError] = []
    for login in logins:
        try:
            return await open_with(login)
        except (SourceRefused, SourceUnavailable, BrokerUnavailable) as failure:
            failures.append(failure)
    if not failures:
        raise SourceUnavailable("the credential has no value")
    raise next((one for one in failures if not isinstance(one, refusal)), failures[0])
