"""Numbers that a process keeps, until somebody asks for them.

Every program with a store in process keeps them too and hardly any of those is ever asked. What
turns them into text is therefore a module of its own, `exposition`, which only servers load.
"""

from bisect import bisect_left
from threading import Lock
from typing import Generic, TypeVar

# From 1 ms, where a handler is quick, to half an hour, where it is not.
SECONDS = (
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5,
    1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0,
)  # fmt: skip

_LOCK = Lock()  # each client without an event loop works on a thread of its own


class Counter:
    """Only grows."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0.0

    def inc(self, amount: float = 1) -> None:
        with _LOCK:
            self.value += amount


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


class Histogram:
    """How often a duration fell into each of the buckets that end at SECONDS, or beyond them."""

    __slots__ = ("counts", "sum")

    def __init__(self) -> None:
        self.counts = [0] * (len(SECONDS) + 1)
        self.sum = 0.0

    def observe(self, seconds: float) -> None:
        with _LOCK:
            self.counts[bisect_left(SECONDS, seconds)] += 1
            self.sum += seconds


S = TypeVar("S", Counter, Gauge, Histogram)


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
