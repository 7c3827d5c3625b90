"""Ours beside the raw limit and beside peers, measured in one run on one machine.

Absolute figures depend on the machine; ratios travel better. Within a repetition both sides take
turns, and the reported figures are medians over the repetitions.
"""

from collections.abc import Callable, Iterator
from importlib import import_module

from benchmarks import (
    accept,
    append,
    decide,
    doors,
    follow,
    growth,
    listen,
    listen_beside,
    matching,
    outbox,
    runs,
    runs_taken_over,
    sources,
    tasks_age,
    tasks_drain,
    tasks_latency,
)
from benchmarks.result import Result


def _on_spark(module: str) -> Callable[[], Iterator[Result]]:
    """Loaded when it runs: Spark takes longer to load than some benchmarks take."""

    def results() -> Iterator[Result]:
        yield from import_module(f"benchmarks.{module}").run()

    return results


AREAS: dict[str, Callable[[], Iterator[Result]]] = {
    "append": append.run,
    "follow": follow.run,
    "grpc": doors.run,
    "decide": decide.run,
    "growth": growth.run,
    "matcher": matching.run,
    "tasks.drain": tasks_drain.run,
    "tasks.latency": tasks_latency.run,
    "tasks.age": tasks_age.run,
    "runs.rates": runs.run,
    "runs.taken_over": runs_taken_over.run,
    "outbox": outbox.run,
    "accept": accept.run,
    "sources": sources.run,
    "listen": listen.run,
    "listen.beside": listen_beside.run,
    "pipeline.read": _on_spark("pipeline_read"),
    "pipeline.match": _on_spark("pipeline_match"),
    "pipeline.predicate": _on_spark("pipeline_predicate"),
}


def run(area: str) -> Iterator[Result]:
    """The results of one area, of those under one name, or of all, as they come."""
    for name, results in AREAS.items():
        if area in ("all", name, name.partition(".")[0]):
            yield from results()
