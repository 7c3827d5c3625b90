"""The desk's events. Keys come from the business, so that a retry has the key of the first try."""

import random
from typing import Any

from tape.client import event
from tape.model.event import NewEvent

SYMBOLS = {"BTCUSDT": 64_000.0, "ETHUSDT": 3_100.0, "SOLUSDT": 145.0, "XRPUSDT": 0.52}
TRADERS = ("ada", "grace", "katherine", "mary", "joan", "edith")
OPENS_MS = 1_767_600_000_000  # a Monday morning
LARGE = 250_000.0


def kline(rng: random.Random, symbol: str, minute: int) -> NewEvent:
    opened = SYMBOLS[symbol] * (1 + rng.gauss(0, 0.01))
    closed = opened * (1 + rng.gauss(0, 0.002))
    payload = {
        "symbol": symbol,
        "interval": "1m",
        "open": round(opened, 4),
        "high": round(max(opened, closed) * 1.001, 4),
        "low": round(min(opened, closed) * 0.999, 4),
        "close": round(closed, 4),
        "volume": round(rng.expovariate(0.02), 3),
    }
    return event(
        "market.kline",
        payload,
        entity_type="instrument",
        entity_id=symbol,
        idempotency_key=f"kline:{symbol}:{minute}",
        source="exchange",
        occurred_at_ms=OPENS_MS + minute * 60_000,
    )


def order(rng: random.Random, trader: str, number: int) -> NewEvent:
    symbol = rng.choice(list(SYMBOLS))
    price = round(SYMBOLS[symbol] * (1 + rng.gauss(0, 0.005)), 4)
    payload = {
        "symbol": symbol,
        "side": rng.choice(("buy", "sell")),
        "price": price,
        "quantity": round(rng.lognormvariate(10.5, 1.1) / price, 4),
        "trader": trader,
    }
    return _about_order("order.placed", f"{trader}-{number}", payload, source="desk")


def fill(rng: random.Random, placed: NewEvent, payload: dict[str, Any], cause: str) -> NewEvent:
    """One in fifty is dealt by telephone and arrives without its notional."""
    filled = {name: payload[name] for name in ("symbol", "side", "price", "quantity")}
    if rng.random() > 0.02:
        filled["notional"] = round(payload["price"] * payload["quantity"], 2)
    return _about_order("order.filled", placed.entity_id, filled, source="exchange", cause=cause)


def breach(order_id: str, notional: float, cause: str) -> NewEvent:
    payload = {"notional": notional, "limit": LARGE}
    return _about_order("risk.breached", order_id, payload, source="risk", cause=cause)


def approval(order_id: str, cause: str) -> NewEvent:
    payload = {"by": "head of desk"}
    return _about_order("risk.approved", order_id, payload, source="desk", cause=cause)


def cleared(number: int) -> NewEvent:
    payload = {"trade": number, "house": "clearing house"}
    return event(
        "trade.cleared",
        payload,
        entity_type="trade",
        entity_id=str(number),
        idempotency_key=f"trade.cleared:{number}",
        source="clearing",
    )


def _about_order(
    event_type: str, order_id: str, payload: dict[str, Any], *, source: str, cause: str = ""
) -> NewEvent:
    return event(
        event_type,
        payload,
        entity_type="order",
        entity_id=order_id,
        idempotency_key=f"{event_type}:{order_id}",
        source=source,
        caused_by=cause,
    )
