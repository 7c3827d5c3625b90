"""Minutes of a market that rises in its first half and falls in its second."""

import random
from collections.abc import Iterator

from examples.trading.data import TF
from examples.trading.events import KlineEvent

OPENING_MS = 1_790_000_000_000 // 60_000 * 60_000
FIRST_PRICES = {"BTCUSDT": 68_000.0, "ETHUSDT": 3_400.0}


def minutes(count: int, seed: int = 7) -> Iterator[list[KlineEvent]]:
    """One kline of each symbol for each minute."""
    rng = random.Random(seed)  # noqa: S311 - a pretended market
    prices = dict(FIRST_PRICES)
    for minute in range(count):
        direction = 1 if minute < count / 2 else -1
        klines = []
        for symbol, opened in prices.items():
            closed = round(opened * (1 + direction * rng.uniform(0.0001, 0.002)), 2)
            prices[symbol] = closed
            klines.append(
                KlineEvent(
                    symbol=symbol,
                    tf=TF,
                    open_time=OPENING_MS + minute * 60_000,
                    open=opened,
                    high=max(opened, closed),
                    low=min(opened, closed),
                    close=closed,
                    volume=round(rng.uniform(1, 50), 3),
                )
            )
        yield klines
