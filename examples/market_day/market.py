"""What happens on a pretended day: prices that walk, orders that come in waves and are filled.

The events are those of the desk that `tape demo` shows.
"""

import math
import random
from collections.abc import Iterator

import tape
from tape.cli.demo import desk

MIDNIGHT_MS = 1_772_409_600_000  # 2026-03-02T00:00:00Z
HOUR_MS = 60 * desk.MINUTE_MS


def kline(symbol: str, minute: int, prices: desk.Prices, volume: float) -> tape.NewEvent:
    """Make a closed minute; the venue corrects one by another with the same minute."""
    return desk.kline(symbol, MIDNIGHT_MS + minute * desk.MINUTE_MS, prices, volume)


def klines(rng: random.Random, minutes: int) -> list[tape.NewEvent]:
    """Of every symbol every minute, but one in two hundred; some come late and some twice."""
    made = []
    for symbol, first in desk.SYMBOLS.items():
        price = first
        for minute in range(minutes):
            prices = desk.walk(rng, price)
            price = prices[-1]
            if rng.random() < 0.995:
                made.append((minute, kline(symbol, minute, prices, rng.randrange(90_000) / 1000)))
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
            placed_ms = MIDNIGHT_MS + minute * desk.MINUTE_MS + rng.randrange(desk.MINUTE_MS)
            took_ms = round(20 * (1 + 2 * busy) * math.exp(rng.gauss(0, 0.8)))
            placed = desk.order(rng, "desk", number)
            yield placed._replace(occurred_at_ms=placed_ms)
            yield desk.fill(rng, placed)._replace(occurred_at_ms=placed_ms + took_ms)
