"""What happens on a pretended day: prices that walk, orders that come in waves and are filled."""

import math
import random
from collections.abc import Iterator
from decimal import Decimal

import tape

MIDNIGHT_MS = 1_772_409_600_000  # 2026-03-02T00:00:00Z
MINUTE_MS = 60_000
PRICES = {"BTCUSDT": 68_000_00, "ETHUSDT": 3_900_00, "SOLUSDT": 171_00}  # cents


def kline(symbol: str, minute: int, cents: tuple[int, int, int, int], volume: int) -> tape.NewEvent:
    """A closed minute; it is recorded again, with another volume, where the venue corrects it."""
    opened, highest, lowest, closed = (str(Decimal(price) / 100) for price in cents)
    open_time = MIDNIGHT_MS + minute * MINUTE_MS
    payload = {
        "schema_version": 1, "venue": "binance", "market": "spot", "symbol": symbol, "tf": "1m",
        "open_time": open_time, "open": opened, "high": highest, "low": lowest, "close": closed,
        "volume": str(Decimal(volume) / 1000), "closed": True,
    }  # fmt: skip
    return tape.event(
        f"market.klines.binance.spot.{symbol.lower()}.1m",
        payload,
        entity_type="kline",
        entity_id=f"{symbol}-{open_time}",
        occurred_at_ms=open_time + MINUTE_MS,
    )


def klines(rng: random.Random, minutes: int) -> list[tape.NewEvent]:
    """Of every symbol every minute, but one in two hundred; some come late and some twice."""
    made = []
    for symbol, start in PRICES.items():
        price = float(start)
        for minute in range(minutes):
            walk = [price * math.exp(rng.gauss(0, 0.0008)) for _ in range(4)]
            opened, closed, price = round(price), round(walk[-1]), walk[-1]
            cents = opened, max(opened, *map(round, walk)), min(opened, *map(round, walk)), closed
            if rng.random() < 0.995:
                made.append((minute, kline(symbol, minute, cents, rng.randrange(100, 90_000))))
    late = rng.sample(made, len(made) // 50)
    again = rng.sample(made, len(made) // 50)
    delayed = [(minute + rng.randrange(60), event) for minute, event in late + again]
    arrived = sorted([one for one in made if one not in late] + delayed, key=lambda one: one[0])
    return [event for _minute, event in arrived]


def orders(rng: random.Random, minutes: int) -> Iterator[tape.NewEvent]:
    """Placed in waves over the day, and filled after a while: the busier it is, the longer."""
    number = 0
    for minute in range(minutes):
        busy = 1 + math.sin(minute / minutes * 2 * math.pi - math.pi / 2)
        for _ in range(rng.randrange(2 + round(4 * busy))):
            number += 1
            placed = MIDNIGHT_MS + minute * MINUTE_MS + rng.randrange(MINUTE_MS)
            took = round(20 * (1 + 2 * busy) * math.exp(rng.gauss(0, 0.8)))
            for event_type, at in (("order.placed", placed), ("order.filled", placed + took)):
                yield tape.event(
                    event_type,
                    {"order": number, "symbol": rng.choice(list(PRICES))},
                    entity_type="order",
                    entity_id=str(number),
                    occurred_at_ms=at,
                )
