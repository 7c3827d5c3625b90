"""Numbers that a process keeps, until somebody asks for them.

Every program with a store in process keeps them too and hardly any of those is ever asked. What
turns them into text is therefore a module of its own, `exposition`, which only servers load.
"""

import time
from bisect import bisect_left
from threading import Lock
from typing import ClassVar, Generic, TypeVar

# From 1 ms, where a handler is quick, to half an hour, where it is not.
SECONDS = (
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5,
    1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0,
)  # fmt: skip

SIZES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)

_LOCK = Lock()  # each client without an event loop works on a thread of its own


class Counter:
    """Only grows."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0.0

    def inc(self, amount: float = 1) -> None:
        with _LOCK:
            self.value += amount

    def restate(self, value: float) -> None:
        """Take over a count that is kept elsewhere, such as on a row."""
        self.value = value


class Gauge:
    """Goes up and down."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0.0

    def set(self, value: float) -> None:
        self.value = value

    def inc(self, amount: float = 1) -> None:
        with _LOCK:
            self.value += amount

    def dec(self, amount: float = 1) -> None:
        self.inc(-amount)


class Age:
    """How many seconds ago something was, whenever that is asked; 0 while there is nothing."""

    __slots__ = ("since",)

    def __init__(self) -> None:
        self.since: float | None = None
        """In seconds since 1970."""

    @property
    def value(self) -> float:
        since = self.since
        return 0.0 if since is None else max(0.0, time.time() - since)


class Histogram:
    """How often a duration fell into each of the buckets that end at `bounds`, or beyond them."""

    __slots__ = ("counts", "sum")
    bounds: ClassVar[tuple[float, ...]] = SECONDS

    def __init__(self) -> None:
        self.counts = [0] * (len(self.bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        with _LOCK:
            self.counts[bisect_left(self.bounds, value)] += 1
            self.sum += value


class SizeHistogram(Histogram):
    """How often a size fell into each bucket."""

    __slots__ = ()
    bounds = SIZES


S = TypeVar("S", Counter, Gauge, Age, Histogram, SizeHistogram)


class Family(Generic[S]):
    """The series of one metric, by the values of its labels."""

    def __init__(self, kind: type[S], name: str, text: str, label_names: tuple[str, ...]) -> None:
        self.name = name
        self.text = text
        self.label_names = label_names
        self.kind: type[S] = kind
        self._series: dict[tuple[str, ...], S] = {}

    def labels(self, *values: str) -> S:
        """The series of these values; a new one begins at nothing."""
        found = self._series.get(values)
        if found is None:
            if len(values) != len(self.label_names):
                raise ValueError(f"{self.name} has the labels {self.label_names}, not {values}")
            with _LOCK:
                found = self._series.setdefault(values, self.kind())
        return found

    def series(self) -> dict[tuple[str, ...], S]:
        with _LOCK:
            return dict(self._series)

    def forget(self, first: str) -> None:
        """End the series whose first label has that value."""
        with _LOCK:
            for values in [values for values in self._series if values[0] == first]:
                del self._series[values]
