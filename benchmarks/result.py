"""A measurement: ours against theirs, as a ratio, with the bar it has to meet."""

import statistics
from collections.abc import Sequence
from typing import NamedTuple


class Result(NamedTuple):
    """`ratio` is ours ÷ theirs, so for a latency or a cost smaller is better."""

    bench: str
    unit: str
    ours: float
    against: str
    theirs: float
    ratio: float
    n: int
    spread: float
    bar: str
    met: bool


def compare(
    bench: str,
    unit: str,
    ours: Sequence[float],
    against: str,
    theirs: Sequence[float],
    *,
    n: int,
    at_least: float | None = None,
    at_most: float | None = None,
    absolute: bool = False,
) -> Result:
    """Medians of both sides. The bar is on the ratio, or (absolute) on our own figure."""
    mine, other = statistics.median(ours), statistics.median(theirs)
    ratio = mine / other
    judged, unit_of_bar = (mine, f" {unit}") if absolute else (ratio, " x")
    bar, met = "", True
    if at_least is not None:
        bar, met = f">= {at_least:,.10g}{unit_of_bar}", judged >= at_least
    elif at_most is not None:
        bar, met = f"<= {at_most:,.10g}{unit_of_bar}", judged <= at_most
    spread = (max(ours) - min(ours)) / mine
    return Result(bench, unit, mine, against, other, ratio, n, spread, bar, met)
