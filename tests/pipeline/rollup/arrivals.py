"""Klines as they arrive in bad times: with gaps, late, again, corrected, and among other things."""

import json
import random
from decimal import Decimal
from typing import Any, NamedTuple

MINUTE_MS = 60_000
MIDNIGHT_MS = 1_772_323_200_000  # 2026-03-01T00:00:00Z
MARKETS = (("binance", "spot", "BTCUSDT"), ("binance", "perp", "BTCUSDT"), ("x", "spot", "A/B%"))


class Arrival(NamedTuple):
    event_type: str
    payload_json: str


def klines(rng: random.Random, minutes: int) -> list[dict[str, Any]]:
    """Around midnight, each once, one in ten missing."""
    made = []
    for venue, market, symbol in MARKETS:
        for minute in range(-minutes // 2, minutes // 2):
            if rng.random() < 0.1:
                continue
            low, high = sorted(_price(rng) for _ in range(2))
            made.append({
                "schema_version": 1, "venue": venue, "market": market, "symbol": symbol,
                "tf": "1m", "open_time": MIDNIGHT_MS + minute * MINUTE_MS,
                "open": str(rng.choice([low, high])), "high": str(high), "low": str(low),
                "close": str(rng.choice([low, high])), "volume": str(_price(rng)), "closed": True,
            })  # fmt: skip
    return made


def arrivals(rng: random.Random, minutes: int) -> tuple[list[Arrival], int]:
    """In any order; and how many of them are not klines although they say so."""
    good = klines(rng, minutes)
    again = rng.sample(good, len(good) // 8)
    corrected = [
        one | {"volume": str(_price(rng)), "close": one["low"]}
        for one in rng.sample(good, len(good) // 8)
    ]
    numbers = [one | {"open_time": str(one["open_time"]), "volume": 0.25} for one in good[:20]]
    beside = [one | {"closed": False, "volume": "1"} for one in good[:20]]
    beside += [one | {"tf": "5m", "volume": "1"} for one in good[:20]]
    said = [json.dumps(one) for one in [*good, *again, *corrected, *numbers, *beside]]
    bad = [json.dumps(good[0] | wrong) for wrong in WRONG] + ["[1, 2]"]
    made = [Arrival("market.klines.any", text) for text in said]
    made += [Arrival("market.klines.bad", text) for text in bad]
    made += [Arrival("order.placed", json.dumps(good[0])) for _ in range(10)]
    rng.shuffle(made)
    return made, len(bad)


WRONG: tuple[dict[str, Any], ...] = (
    {"venue": ""}, {"symbol": 7}, {"tf": None}, {"closed": "yes"},
    {"open_time": "soon"}, {"open_time": -60_000}, {"open_time": MIDNIGHT_MS + 1},
    {"open_time": 10**15 - 40_000},
    {"volume": "1.5d"}, {"volume": "-1"}, {"volume": "0." + "1" * 19}, {"volume": "9" * 16},
    {"volume": 1e15}, {"open": True}, {"high": "0"},
)  # fmt: skip


def _price(rng: random.Random) -> Decimal:
    return Decimal(rng.randrange(10**18)).scaleb(-rng.randrange(3, 19))
