"""Everything the counterparties can be asked, each described once and sent by either client."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, Literal, TypeVar
from urllib.parse import quote as quoted

from examples.treasury.records import (
    Batch,
    Books,
    Call,
    Do,
    Hook,
    Line,
    Order,
    Quote,
    Route,
    Side,
    Status,
    Wire,
)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Ask(Generic[T]):
    """A request that is answered with a `T`."""

    method: Literal["GET", "POST", "DELETE"]
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Mapping[str, object] | None = None


def balances() -> Ask[dict[str, int]]:
    """The cents on each account."""
    return Ask("GET", "/bank/balances")


def wire(key: str, from_account: str, to_account: str, cents: int) -> Ask[Wire]:
    """Move money, once for each key."""
    body = {"from": from_account, "to": to_account, "cents": cents}
    return Ask("POST", "/bank/wires", headers=_keyed(key), body=body)


def wire_status(key: str) -> Ask[Status[Wire]]:
    return Ask("GET", "/bank/wires", query={"key": key})


def plain_wire(reference: str, from_account: str, to_account: str, cents: int) -> Ask[Wire]:
    """Move money, at every call again. Look at `plain_wires` before you call a second time."""
    body = {"reference": reference, "from": from_account, "to": to_account, "cents": cents}
    return Ask("POST", "/bank/plain-wires", body=body)


def plain_wires(reference: str) -> Ask[list[Wire]]:
    """Every plain wire with this reference."""
    return Ask("GET", "/bank/plain-wires", query={"reference": reference})


def reverse(wire_id: str) -> Ask[Wire]:
    """Move a wire's money back, once."""
    return Ask("POST", f"/bank/wires/{quoted(wire_id, safe='')}/reverse")


def quote(pair: str) -> Ask[Quote]:
    """The price now; another one at the next call."""
    return Ask("GET", "/broker/price", query={"pair": pair})


def order(key: str, pair: str, side: Side, cents: int) -> Ask[Order]:
    """Buy or sell at the price now, once for each key."""
    body = {"pair": pair, "side": side, "cents": cents}
    return Ask("POST", "/broker/orders", headers=_keyed(key), body=body)


def order_status(key: str) -> Ask[Status[Order]]:
    return Ask("GET", "/broker/orders", query={"key": key})


def cancel(order_id: str) -> Ask[Order]:
    return Ask("POST", f"/broker/orders/{quoted(order_id, safe='')}/cancel")


def post(key: str, lines: Sequence[Line]) -> Ask[Batch]:
    """Post lines that add up to zero, once for each key."""
    return Ask("POST", "/ledger/batches", headers=_keyed(key), body={"lines": list(lines)})


def batch_status(key: str) -> Ask[Status[Batch]]:
    return Ask("GET", "/ledger/batches", query={"key": key})


def set_hook(route: Route, do: Do, times: int = 1) -> Ask[Hook]:
    """Let something go wrong at the next requests to a route."""
    return Ask("POST", "/hooks", body={"route": route, "do": do, "times": times})


def clear_hooks() -> Ask[object]:
    return Ask("DELETE", "/hooks")


def calls() -> Ask[list[Call]]:
    """Every request to act so far, in order."""
    return Ask("GET", "/calls")


def books() -> Ask[Books]:
    return Ask("GET", "/books")


def _keyed(key: str) -> dict[str, str]:
    if not key or not key.isascii() or not key.isprintable() or key != key.strip():
        raise ValueError(f"a key travels as a header, in printable ASCII: {key!r} cannot")
    return {"idempotency-key": key}
