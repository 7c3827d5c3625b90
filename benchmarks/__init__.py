"""Ours beside the raw limit and beside peers, measured in one run on one machine.

Absolute figures depend on the machine; ratios travel better. Within a repetition both sides take
turns, and the reported figures are medians over the repetitions.
"""

from collections.abc import Callable, Iterator

from benchmarks import append, decide, doors, follow, growth
from benchmarks.result import Result

AREAS: dict[str, Callable[[], Iterator[Result]]] = {
    "append": append.run,
    "follow": follow.run,
    "grpc": doors.run,
    "decide": decide.run,
    "growth": growth.run,
}


def run(area: str) -> Iterator[Result]:
    """The results of one area, or of all, as they come."""
    for name in AREAS if area == "all" else [area]:
        yield from AREAS[name]()
