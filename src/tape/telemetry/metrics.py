"""The metrics of this process, in a registry of their own.

Whoever has something to tell imports this module and says so: `metrics.MATCHES.labels(id).inc(n)`.
The only label with an open set of values is the reaction's id, so there are as many series as
reactions; `forget_reaction` ends those of one that is gone.

The gauges of what the store holds (the head, lag, tasks, dead letters) are true when they are
scraped: whoever serves them sets them first.
"""

from collections.abc import Iterator
from enum import StrEnum

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    PlatformCollector,
    ProcessCollector,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from tape.telemetry.written import WRITTEN

REGISTRY = CollectorRegistry()
ProcessCollector(registry=REGISTRY)
PlatformCollector(registry=REGISTRY)
GCCollector(registry=REGISTRY)

REACTION = ("reaction",)
SECONDS = (
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5,
    1, 2.5, 5, 10, 30, 60, 300, 1800,
)  # fmt: skip


class Outcome(StrEnum):
    """How an attempt at a task ended, for `TASK_ATTEMPTS`."""

    DONE = "done"
    RETRIED = "retried"
    DEAD_LETTERED = "dead_lettered"
    FAILED = "failed"  # given up for good, with no dead letter
    LOST = "lost"  # another dispatcher has the task: the lease ran out
    RELEASED = "released"  # given back unharmed, because the dispatcher ends


class _WrittenCollector(Collector):
    def collect(self) -> Iterator[Metric]:
        yield CounterMetricFamily(
            "tape_entries_appended",
            "Entries that this process has committed to the journal.",
            WRITTEN.entries,
        )
        yield CounterMetricFamily(
            "tape_append_batches",
            "Transactions by which this process committed entries.",
            WRITTEN.batches,
        )


REGISTRY.register(_WrittenCollector())

STORE_UP = Gauge(
    "tape_store_up",
    "1 if the store answered for this scrape; if 0, the gauges of what it holds are old.",
    registry=REGISTRY,
)
JOURNAL_HEAD = Gauge("tape_journal_head", "The global_seq of the newest entry.", registry=REGISTRY)

MATCHER_LEADING = Gauge(
    "tape_matcher_leading", "1 if this process matches entries to reactions.", registry=REGISTRY
)
MATCHER_POSITION = Gauge(
    "tape_matcher_position",
    "The global_seq up to which this process has matched.",
    registry=REGISTRY,
)
LAG = Gauge(
    "tape_reaction_lag_entries",
    "Entries between the reaction's cursor and the head.",
    REACTION,
    registry=REGISTRY,
)
MATCHES = Counter(
    "tape_reaction_matches_total",
    "Entries that matched the reaction.",
    REACTION,
    registry=REGISTRY,
)
COALESCED = Counter(
    "tape_reaction_coalesced_total",
    "Matches that debouncing laid into a task that waited already.",
    REACTION,
    registry=REGISTRY,
)
PREDICATE_ERRORS = Counter(
    "tape_reaction_predicate_errors_total",
    "Entries that were skipped because the predicate had no result.",
    REACTION,
    registry=REGISTRY,
)

TASKS_PENDING = Gauge(
    "tape_tasks_pending", "Tasks that wait for a dispatcher.", REACTION, registry=REGISTRY
)
TASKS_CLAIMED = Gauge(
    "tape_tasks_claimed", "Tasks that a dispatcher holds.", REACTION, registry=REGISTRY
)
DEAD_LETTERS = Gauge("tape_dead_letters", "Tasks that were given up.", REACTION, registry=REGISTRY)

TASK_ATTEMPTS = Counter(
    "tape_task_attempts_total",
    "Attempts at tasks that ended, by how.",
    (*REACTION, "outcome"),
    registry=REGISTRY,
)
TASK_WAIT = Histogram(
    "tape_task_wait_seconds",
    "From the recording of the entry to the start of the handler.",
    REACTION,
    buckets=SECONDS,
    registry=REGISTRY,
)
TASK_HANDLING = Histogram(
    "tape_task_handling_seconds",
    "How long handlers ran.",
    REACTION,
    buckets=SECONDS,
    registry=REGISTRY,
)
DISPATCHER_RUNNING = Gauge(
    "tape_dispatcher_running", "Handlers running in this process.", REACTION, registry=REGISTRY
)
DISPATCHER_LONGEST_RUNNING = Gauge(
    "tape_dispatcher_longest_running_seconds",
    "How long the oldest handler running in this process has been at it.",
    REACTION,
    registry=REGISTRY,
)

_BY_REACTION = (
    LAG, MATCHES, COALESCED, PREDICATE_ERRORS, TASKS_PENDING, TASKS_CLAIMED, DEAD_LETTERS,
    TASK_ATTEMPTS, TASK_WAIT, TASK_HANDLING, DISPATCHER_RUNNING, DISPATCHER_LONGEST_RUNNING,
)  # fmt: skip


def forget_reaction(reaction_id: str) -> None:
    """End the series of a reaction that is gone."""
    for metric in _BY_REACTION:
        metric.remove_by_labels({"reaction": reaction_id})


def render(accept: str = "") -> tuple[bytes, str]:
    """All of it as text, and its content type: OpenMetrics where `accept` asks for that."""
    encode, content_type = choose_encoder(accept)
    return encode(REGISTRY), content_type
