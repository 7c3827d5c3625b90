"""The metrics of this process.

Whoever has something to tell imports this module and says so: `metrics.MATCHES.labels(id).inc(n)`.
The only labels with an open set of values are the ids of reactions and of drainers, so there are as
many series as those; `forget_reaction` and `forget_drainer` end those of one that is gone. Of the
apps and pools whose runs wait there are no more series than RUNS_WAITING_SERIES, of pools with
runnable runs no more than RUNS_RUNNABLE_SERIES, of aliases of credentials no more than
WALLET_SERIES, and of declared subscriptions SUBSCRIPTION_SERIES have series of their own, which
`forget_subscription` ends. Neither the id of a run nor a trace is ever a label.

What becomes of runs is counted where it is committed: see `count_entries`.

The gauges of what the store holds (the head, lag, tasks, dead letters) are true when they are
scraped: whoever serves them sets them first.
"""

from collections.abc import Iterable
from enum import StrEnum
from typing import Any

from tape.model.entry import EntryDraft, Kind
from tape.telemetry.instruments import (
    Age,
    Counter,
    Family,
    Gauge,
    Histogram,
    S,
    SizeHistogram,
)

REACTION = ("reaction",)
DRAINER = ("drainer",)
SUBSCRIPTION = ("subscription",)
RUNS_WAITING_SERIES = 50
RUNS_RUNNABLE_SERIES = 50
WALLET_SERIES = 100
SUBSCRIPTION_SERIES = 500
FAMILIES: list[Family[Any]] = []


class AttemptOutcome(StrEnum):
    """How an attempt at a task ended, for `TASK_ATTEMPTS`."""

    DONE = "done"
    RETRIED = "retried"
    DEAD_LETTERED = "dead_lettered"
    FAILED = "failed"  # given up for good, with no dead letter
    LOST = "lost"  # another dispatcher has the task: the lease ran out
    RELEASED = "released"  # given back unharmed, because the dispatcher ends


class ExecuteOutcome(StrEnum):
    """What became of a request to execute, or of an item of a batch, for `EXECUTE_OUTCOMES`."""

    STARTED = "started"
    RESUMED = "resumed"  # the run was there by its name
    DUPLICATE = "duplicate"  # it was found by the key of the request
    REFUSED = "refused"
    UNAVAILABLE = "unavailable"  # the store is away or takes no more


class CutOff(StrEnum):
    """Why a connection or stream was cut off, for `CUT_OFF`."""

    HEAD = "head"  # of a request, did not come in time
    BODY = "body"  # of a request, did not come in time
    UNREAD = "unread"  # its reader takes nothing
    CROWDED = "crowded"  # there are too many, and it was the oldest without a whole request


def _family(
    kind: type[S], name: str, text: str, label_names: tuple[str, ...] = REACTION
) -> Family[S]:
    family = Family(kind, name, text, label_names)
    FAMILIES.append(family)
    return family


def _single(kind: type[S], name: str, text: str) -> S:
    return _family(kind, name, text, ()).labels()


ENTRIES_APPENDED = _single(
    Counter, "tape_entries_appended", "Entries that this process has committed to the journal."
)
APPEND_BATCHES = _single(
    Counter, "tape_append_batches", "Transactions in which this process committed entries."
)
JOURNAL_HEAD = _single(Gauge, "tape_journal_head", "The global_seq of the newest entry.")
STORE_UP = _single(
    Gauge,
    "tape_store_up",
    "1 if the store answered this scrape; if 0, the gauges of the store are out of date.",
)

MATCHER_LEADING = _single(
    Gauge, "tape_matcher_leading", "1 if this process matches entries to reactions."
)
MATCHER_POSITION = _single(
    Gauge, "tape_matcher_position", "The global_seq up to which this process has matched."
)
LAG = _family(
    Gauge,
    "tape_reaction_lag_entries",
    "Entries between the reaction's cursor and the newest entry.",
)
MATCHES = _family(Counter, "tape_reaction_matches", "Entries that matched the reaction.")
COALESCED = _family(
    Counter,
    "tape_reaction_coalesced",
    "Matches that debouncing merged into a task that was already waiting.",
)
PREDICATE_ERRORS = _family(
    Counter,
    "tape_reaction_predicate_errors",
    "Entries that were skipped because the predicate had no result.",
)

TASKS_PENDING = _family(Gauge, "tape_tasks_pending", "Tasks that wait for a dispatcher.")
TASKS_CLAIMED = _family(Gauge, "tape_tasks_claimed", "Tasks that a dispatcher has claimed.")
DEAD_LETTERS = _family(Gauge, "tape_dead_letters", "Tasks that are dead letters.")

TASK_ATTEMPTS = _family(
    Counter,
    "tape_task_attempts",
    "Attempts at tasks that ended, by outcome.",
    (*REACTION, "outcome"),
)
TASK_WAIT = _family(
    Histogram,
    "tape_task_wait_seconds",
    "Time from recording the entry to starting its handler.",
)
TASK_HANDLING = _family(Histogram, "tape_task_handling_seconds", "How long handlers ran.")
DISPATCHER_RUNNING = _family(Gauge, "tape_dispatcher_running", "Handlers running in this process.")
DISPATCHER_LONGEST_RUNNING = _family(
    Gauge,
    "tape_dispatcher_longest_running_seconds",
    "How long the oldest handler in this process has been running.",
)

DRAINER_LAG = _family(
    Gauge,
    "tape_drainer_lag_entries",
    "Entries between the drainer's cursor and the newest entry.",
    DRAINER,
)
DRAINER_HALTED = _family(
    Gauge, "tape_drainer_halted", "1 while the drainer is halted at an event that failed.", DRAINER
)
DRAINER_HALTED_SECONDS = _family(
    Gauge, "tape_drainer_halted_seconds", "How long the drainer has been halted.", DRAINER
)
DRAINER_WAITING_SECONDS = _family(
    Gauge,
    "tape_drainer_waiting_seconds",
    "How long the drainer has waited for the end of a run.",
    DRAINER,
)
DRAINED = _family(Counter, "tape_drainer_events", "Events that this process has drained.", DRAINER)

RUNS_WAITING = _family(
    Gauge,
    "tape_runs_waiting",
    "Runs that no worker has taken for 10 seconds, counted up to 10,000.",
    ("app", "pool"),
)
RUNS_WAITING_SECONDS = _family(
    Gauge,
    "tape_runs_waiting_seconds",
    "How long the oldest of these runs has waited.",
    ("app", "pool"),
)

RUNS_RUNNABLE = _family(
    Gauge,
    "tape_runs_runnable",
    "Runs that a worker could take now, counted up to 10,000 for each app.",
    ("pool",),
)

RUNS_ENDED = _family(
    Counter,
    "tape_runs_ended",
    "Runs whose end this process has committed, by status.",
    ("status",),
)
EFFECT_OUTCOMES = _family(
    Counter,
    "tape_effect_outcomes",
    "Outcomes of effects that this process has committed.",
    ("outcome",),
)
OBLIGATIONS_ENDED = _family(
    Counter,
    "tape_obligations_ended",
    "Obligations that this process has committed as compensated or stuck.",
    ("status",),
)
EFFECTS_UNCHECKED = _single(
    Gauge,
    "tape_effects_unchecked",
    "Unknown effects for which this process has no check, so that they stay unknown.",
)
REACTOR_WORK = _family(
    Counter, "tape_reactor_work", "Pieces of work that the reactor has taken.", ("reactor",)
)
REACTOR_IN_HAND = _family(
    Gauge, "tape_reactor_in_hand", "Pieces of work that the reactor is doing now.", ("reactor",)
)
LOOP_BLOCKS = _single(
    Counter, "tape_loop_blocks", "Times that a function blocked the event loop of this process."
)
LOOP_BLOCKED_SECONDS = _single(
    Counter, "tape_loop_blocked_seconds", "How long functions blocked the event loop, in all."
)
OUTBOX_WAITING = _single(
    Gauge, "tape_outbox_waiting", "Outbox rows that are not published, counted up to 100,000."
)
OUTBOX_UNPROMOTED = _single(
    Gauge,
    "tape_outbox_unpromoted",
    "Outbox rows that are not in the journal, counted up to 100,000.",
)
OUTBOX_OLDEST = _single(
    Gauge, "tape_outbox_oldest_seconds", "How long the oldest waiting outbox row has waited."
)
OUTBOX_FAILING = _single(
    Gauge, "tape_outbox_failing", "Outbox rows that the broker or the journal refused."
)
OUTBOX_PROMOTED = _single(
    Counter, "tape_outbox_promoted", "Outbox rows that this process has put into the journal."
)
OUTBOX_PUBLISHED = _single(
    Counter, "tape_outbox_published", "Outbox rows that this process has published."
)
OUTBOX_REPEATS = _single(
    Counter, "tape_outbox_repeats", "Outbox rows that repeat an event, found by this process."
)
OUTBOX_LEADING = _family(
    Gauge, "tape_outbox_leading", "1 if this process leads the relay.", ("relay",)
)
OUTBOX_HELD = _single(
    Gauge,
    "tape_outbox_held_subjects",
    "Subjects that this process holds because one of their rows was refused.",
)
EXECUTE_OUTCOMES = _family(
    Counter,
    "tape_execute_outcomes",
    "Requests to execute an app, and items of batches of them, by what became of them.",
    ("outcome",),
)
EXECUTE_BATCH_SIZE = _single(
    SizeHistogram, "tape_execute_batch_size", "How many items batches of requests to execute had."
)

SUBSCRIPTION_FETCHED = _family(
    Counter,
    "tape_subscription_messages_fetched",
    "Messages that this process has fetched, those that came again among them.",
    (*SUBSCRIPTION, "source"),
)
SUBSCRIPTION_MESSAGES = _family(
    Counter,
    "tape_subscription_messages",
    "Messages by what became of them, as the store counts them.",
    (*SUBSCRIPTION, "outcome"),
)
SUBSCRIPTION_BATCHES = _family(
    Counter,
    "tape_subscription_batch_dispatch",
    "Batches of messages that listeners of this process have had accepted.",
    SUBSCRIPTION,
)
SUBSCRIPTION_BATCH_MESSAGES = _family(
    Counter,
    "tape_subscription_batch_messages",
    "Messages in these batches.",
    SUBSCRIPTION,
)
SUBSCRIPTION_RATE_LIMITED = _family(
    Counter,
    "tape_subscription_rate_limited",
    "Times that the rate of a subscription made a listener of this process wait.",
    SUBSCRIPTION,
)
SUBSCRIPTION_LAG = _family(
    Age,
    "tape_subscription_lag_seconds",
    "How far a listener of this process is behind its source: the age of the message that it "
    "accepted last, until the source has no more.",
    SUBSCRIPTION,
)
SUBSCRIPTION_IN_FLIGHT = _family(
    Gauge,
    "tape_subscription_in_flight",
    "Messages that are fetched and not acknowledged.",
    SUBSCRIPTION,
)
SUBSCRIPTION_BACKLOG = _family(
    Gauge,
    "tape_subscription_backlog",
    "Messages that the source has and that are not acknowledged, as it last said.",
    SUBSCRIPTION,
)
SUBSCRIPTION_STALLED = _family(
    Gauge,
    "tape_subscription_stalled_seconds",
    "How long nothing has been accepted although the source has messages.",
    SUBSCRIPTION,
)
SUBSCRIPTION_DEAD_LETTERS = _family(
    Gauge,
    "tape_subscription_dead_letters",
    "Messages that are kept as dead letters, counted up to 10,000.",
    SUBSCRIPTION,
)
SUBSCRIPTION_STATE = _family(
    Gauge,
    "tape_subscription_state",
    "1 for the state that the subscription is in.",
    (*SUBSCRIPTION, "state"),
)
SUBSCRIPTION_HELD = _family(
    Gauge,
    "tape_subscription_held",
    "1 while a listener holds the subscription.",
    SUBSCRIPTION,
)
SUBSCRIPTION_SCALING = _family(
    Gauge,
    "tape_subscription_scaling",
    "What its document says under scaling.keda: min, max, lag_threshold.",
    (*SUBSCRIPTION, "setting"),
)
_NAMED: set[str] = set()
"""Subscriptions that have series of their own."""

WALLET_OPENED = _family(
    Counter,
    "tape_wallet_opened",
    "Openings of credentials in this process; of most aliases after the first 100 together.",
    ("alias",),
)
POLLED_MESSAGES = _family(
    Counter,
    "tape_polled_messages",
    "Messages that apps of this process have polled and recorded, by the kind of source.",
    ("source",),
)
STREAMS_OPEN = _single(Gauge, "tape_streams_open", "Streams that this process sends on.")
CUT_OFF = _family(
    Counter,
    "tape_cut_off",
    "Connections and streams that this process has cut off, by reason.",
    ("why",),
)
PIPELINE_ROWS = _family(
    Counter, "tape_pipeline_rows", "Rows that pipeline jobs have counted.", ("job", "count")
)
PIPELINE_SECONDS = _family(
    Counter, "tape_pipeline_seconds", "How long jobs of the pipeline took.", ("job",)
)
PIPELINE_RUNS = _family(
    Counter, "tape_pipeline_runs", "Jobs of the pipeline that ended.", ("job", "outcome")
)


def forget_reaction(reaction_id: str) -> None:
    """End the series of a reaction that is gone."""
    _forget(REACTION, reaction_id)


def forget_drainer(drainer_id: str) -> None:
    """End the series of a drainer that has no subscription any more."""
    _forget(DRAINER, drainer_id)


def subscription_label(name: str) -> str:
    """The name of a subscription as a label: empty, for all together, if others have taken up what
    there may be."""
    if name in _NAMED or len(_NAMED) < SUBSCRIPTION_SERIES:
        _NAMED.add(name)
        return name
    return ""


def named_subscriptions() -> set[str]:
    """Those that have series of their own."""
    return {*_NAMED}


def forget_subscription(name: str) -> None:
    """End the series of a declared subscription that is gone."""
    _NAMED.discard(name)
    _forget(SUBSCRIPTION, name)


def count_opening(alias: str) -> None:
    """Count an opening under its alias, or under none if there are enough of those."""
    series = WALLET_OPENED.series()
    known = (alias,) in series or len(series) < WALLET_SERIES
    WALLET_OPENED.labels(alias if known else "").inc()


def forget_credential(alias: str) -> None:
    """End the series of a credential that is gone."""
    WALLET_OPENED.forget(alias)


def _forget(label: tuple[str, ...], value: str) -> None:
    for family in FAMILIES:
        if family.label_names[:1] == label:
            family.forget(value)


_COUNTED: dict[str, tuple[Family[Counter], frozenset[str]]] = {
    Kind.RUN.value: (RUNS_ENDED, frozenset({"terminal", "failed", "cancelled", "stuck"})),
    Kind.EFFECT.value: (
        EFFECT_OUTCOMES,
        frozenset({"confirmed", "failed", "unknown", "reconciled", "stuck"}),
    ),
    Kind.OBLIGATION.value: (OBLIGATIONS_ENDED, frozenset({"compensated", "stuck"})),
}


def count_entries(entries: Iterable[EntryDraft]) -> None:
    """Count what becomes of runs, by the entries that this process commits."""
    for entry in entries:
        counted = _COUNTED.get(entry.kind)
        if counted is not None:
            family, verbs = counted
            verb = entry.subject.split("/", 4)[3]
            if verb in verbs:
                family.labels(verb).inc()
