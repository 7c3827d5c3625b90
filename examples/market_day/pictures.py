"""What the day looked like. Each function makes a figure of a small pandas frame."""

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure

NUMBERS = ("open", "high", "low", "close", "volume")
UP, DOWN = "#2a7f62", "#b5423c"


def events_over_time(counts: pd.DataFrame) -> Figure:
    """Columns window_start, event_type, entries."""
    figure, axes = _empty("Events per quarter of an hour")
    table = counts.pivot_table(index="window_start", columns="event_type", values="entries")
    below = pd.Series(0.0, index=table.index)
    for name in table.columns:
        height = table[name].fillna(0.0)
        axes.fill_between(_times(table.index.to_series()), below, below + height, label=name)
        below = below + height
    axes.legend(loc="upper left", frameon=False)
    return figure


def latencies(rows: pd.DataFrame) -> Figure:
    """Columns window_start, p50_ms, p90_ms, p99_ms."""
    figure, axes = _empty("From order to fill, milliseconds")
    rows = rows.sort_values("window_start")
    for name in ("p50_ms", "p90_ms", "p99_ms"):
        axes.plot(_times(rows["window_start"]), rows[name], label=name.removesuffix("_ms"))
    axes.set_yscale("log")
    axes.legend(loc="upper left", frameon=False)
    return figure


def candles(bars: pd.DataFrame, title: str) -> Figure:
    """Columns open_time, open, high, low, close, volume, complete; bars with gaps are pale."""
    figure = Figure(figsize=(10, 5), layout="constrained")
    prices, volumes = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    bars = bars.sort_values("open_time")
    times = _times(bars["open_time"])
    width = (times.iloc[1] - times.iloc[0]) * 0.7 if len(times) > 1 else pd.Timedelta("5min")
    numbers = {name: bars[name].astype(float) for name in NUMBERS}
    rose = (numbers["close"] >= numbers["open"]).tolist()
    colours = [UP if up else DOWN for up in rose]
    alphas = [1.0 if complete else 0.4 for complete in bars["complete"]]
    faces = list(zip(colours, alphas, strict=True))
    prices.vlines(times, numbers["low"], numbers["high"], colors=colours, linewidth=1)
    body = (numbers["close"] - numbers["open"]).abs()
    bottom = numbers["open"].where(numbers["open"] < numbers["close"], numbers["close"])
    prices.bar(times, body, width, bottom, color=faces)
    volumes.bar(times, numbers["volume"], width, color=faces)
    prices.set_title(title, loc="left")
    volumes.set_ylabel("volume")
    _date(volumes)
    return figure


def _empty(title: str) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(10, 4), layout="constrained")
    axes = figure.subplots()
    axes.set_title(title, loc="left")
    _date(axes)
    return figure, axes


def _date(axes: Axes) -> None:
    locator = AutoDateLocator()  # type: ignore[no-untyped-call]  # matplotlib has not typed it
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def _times(ms: "pd.Series[int]") -> "pd.Series[pd.Timestamp]":
    return pd.to_datetime(ms, unit="ms", utc=True)
