"""A hold: a lease with a fencing token on a row, by which one instance works on it at a time.

It is granted if nobody else's is alive, with the next token. Each write under it is checked against
the row in the turn that writes. A token is stale from the takeover on, not from expiry, which is by
the store's clock; whoever let go of the lease has none.
"""

from typing import Any, Protocol, TypeVar, cast

from tape.errors import InvalidArgument, StaleLease
from tape.model.lease import MOST_TTL_MS


class HeldRow(Protocol):
    """A row that can be held: a named tuple with these fields."""

    @property
    def lease_owner(self) -> str: ...

    @property
    def lease_expires_at_ms(self) -> int: ...

    @property
    def fencing_token(self) -> int: ...


R = TypeVar("R", bound=HeldRow)


def check_ttl(ttl_ms: int) -> int:
    if not 0 < ttl_ms <= MOST_TTL_MS:
        raise InvalidArgument(f"{ttl_ms} is not in 1..{MOST_TTL_MS}", field="lease_ttl_ms")
    return ttl_ms


def is_held(row: HeldRow, now_ms: int) -> bool:
    """Whether somebody's lease is alive."""
    return bool(row.lease_owner) and row.lease_expires_at_ms > now_ms


def granted(row: R, owner: str, ttl_ms: int, now_ms: int) -> R:
    """The row with a new lease, whoever had the one before."""
    return _with(
        row,
        lease_owner=owner,
        lease_expires_at_ms=now_ms + ttl_ms,
        fencing_token=row.fencing_token + 1,
    )


def renewed(row: R, ttl_ms: int, now_ms: int) -> R:
    return _with(row, lease_expires_at_ms=now_ms + ttl_ms)


def let_go(row: R) -> R:
    """The row without a lease. Its token stays, so that the next one is higher."""
    return _with(row, lease_owner="", lease_expires_at_ms=0)


def check_held(row: R | None, fencing_token: int, *, what: str, who: str) -> R:
    """The row, if its lease was last granted with this token. `what` and `who` are for the words of
    the refusal, as `drainer 'd'` and `pass`."""
    if row is None or not row.lease_owner or row.fencing_token != fencing_token:
        now = row.fencing_token if row is not None else 0
        raise StaleLease(
            f"{what} is at fencing token {now}, this {who} has {fencing_token}: "
            "another instance has taken over"
        )
    return row


def _with(row: R, **fields: Any) -> R:
    return cast("R", cast("Any", row)._replace(**fields))
