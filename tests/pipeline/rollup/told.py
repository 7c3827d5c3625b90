"""Bars as the values that are set for them."""

from typing import Any

import tape
from tape.pipeline.jobs.rollup.klines import NUMBERS

Rows = set[tuple[Any, ...]]


def as_values(bars: Rows) -> dict[str, dict[str, Any]]:
    names = ("venue", "market", "symbol", "tf", "open_time", *NUMBERS, "klines", "complete")
    made = {}
    for bar in bars:
        said = dict(zip(names, bar, strict=True))
        said |= {name: f"{said[name]:f}".rstrip("0").rstrip(".") for name in NUMBERS}
        market = said["symbol"].replace("%", "%25").replace("/", "%2F")
        key = f"{said['venue']}/{said['market']}/{market}/{said['tf']}/{said['open_time']}"
        made[key] = said
    return made


def told(url: str) -> dict[str, dict[str, Any]]:
    with tape.connect(url) as client:
        return {value.key: value.value for value in client.list_values("bars")}
