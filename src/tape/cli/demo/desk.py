"""The desk's events, for the demo and for `examples/market_day`.

Keys come from the business, so that a retry has the key of the first try.
"""

import math
import random
from typing import Any

import orjson

from tape.client import event
from tape.model.event import NewEvent

SYMBOLS = {"BTCUSDT": 64_000.0, "ETHUSDT": 3_100.0, "SOLUSDT": 145.0, "XRPUSDT": 0.52}
TRADERS = ("ada", "grace", "katherine", "mary", "joan", "edith")
OPENS_MS = 1_767_600_000_000  # a Monday morning
MINUTE_MS = 60_000
LARGE = 250_000.0

Prices = tuple[float, float, float, float]
"""Of a minute: the first, the highest, the lowest and the last."""


def kline(symbol: str, open_time: int, prices: Prices, volume: float, key: str = "") -> NewEvent:
    payload = {
        "venue": "binance", "market": "spot", "symbol": symbol, "tf": "1m", "open_time": open_time,
        **dict(zip(("open", "high", "low", "close"), prices, strict=True)), "volume": volume,
    }  # fmt: skip
    return event(
        "market.klines.spot",
        payload,
        entity_type="instrument",
        entity_id=symbol,
        idempotency_key=key,
        source="exchange",
        occurred_at_ms=open_time + MINUTE_MS,
    )


def walk(rng: random.Random, price: float) -> Prices:
    """Move a price for a minute."""
    steps = [price, *(price * math.exp(rng.gauss(0, 0.0008)) for _ in range(4))]
    first, *_, last = steps = [round(step, 4) for step in steps]
    return first, max(steps), min(steps), last


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


def fill(rng: random.Random, placed: NewEvent, cause: str = "") -> NewEvent:
    """Fill an order. One in fifty is dealt by telephone and arrives without its notional."""
    payload = orjson.loads(placed.payload_json)
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
