"""The same bars, computed by pandas and Python's decimals."""

import json
from collections.abc import Sequence
from decimal import Context, Decimal
from typing import cast

import pandas as pd

from tests.pipeline.rollup.arrivals import Arrival

IDENTITY = ["venue", "market", "symbol", "open_time"]
MINUTES = {"5m": 5, "15m": 15, "1h": 60, "1d": 1440}
EXACT = Context(prec=60)

Bar = tuple[str, str, str, str, int, Decimal, Decimal, Decimal, Decimal, Decimal, int, bool]


def bars_by_pandas(arrived: Sequence[Arrival], bad: Sequence[str]) -> set[Bar]:
    """From all that arrived, in the order of arrival, without what is known to be bad."""
    said = [
        json.loads(one.payload_json)
        for one in arrived
        if one.event_type != "order.placed" and one.payload_json not in bad
    ]
    frame = pd.DataFrame([one for one in said if one["closed"] and one["tf"] == "1m"])
    for name in ("open", "high", "low", "close", "volume"):
        frame[name] = frame[name].map(lambda said: Decimal(str(said)))
    frame["open_time"] = pd.to_datetime(frame["open_time"].astype("int64"), unit="ms", utc=True)
    kept = frame.drop_duplicates(IDENTITY, keep="last").sort_values("open_time")
    bars: set[Bar] = set()
    for tf, minutes in MINUTES.items():
        kept["bar"] = kept["open_time"].dt.floor(f"{minutes}min")
        for group, rows in kept.groupby(["venue", "market", "symbol", "bar"]):
            venue, market, symbol, at = cast("tuple[str, str, str, pd.Timestamp]", group)
            volume = Decimal(0)
            for one in rows["volume"]:
                volume = EXACT.add(volume, one)
            bars.add((
                venue, market, symbol, tf, int(at.timestamp() * 1000), rows["open"].iloc[0],
                max(rows["high"]), min(rows["low"]), rows["close"].iloc[-1], volume,
                len(rows), len(rows) == minutes,
            ))  # fmt: skip
    return bars
