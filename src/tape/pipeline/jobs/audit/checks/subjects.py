"""Checks of subjects: their grammar, and that they say what their entry is about."""

from collections.abc import Iterable
from typing import Final

from pyspark.sql import DataFrame

from tape.model.entry import Kind
from tape.pipeline.jobs.audit.check import Check, RowRule, violation_rows
from tape.pipeline.jobs.audit.frames import (
    ALL_ENTRIES,
    ENTRY_COLUMNS,
    EVERY,
    LIFE_VERBS,
    STATUSES,
    Frames,
    decoded,
)
from tape.pipeline.jobs.audit.recheck import not_a_subject

_PLAIN: Final = r"^/tape/[a-z][a-z0-9_]*/[a-z][a-z0-9_]*(/[A-Za-z0-9._~-]+)*$"

_DIMENSIONS: Final = {
    Kind.RUN: (4, (*STATUSES, "cancel_requested")),
    Kind.DECISION: (2, ("recorded", "drawn", "failed")),
    Kind.EFFECT: (
        2,
        ("pending", "confirmed", "failed", "unknown", "reconciled", "claimed", "attempted",
         "stuck"),
    ),
    Kind.OBLIGATION: (2, ("registered", "committed", "attempted", "compensated", "stuck")),
    Kind.GATE: (2, ("waiting", "released")),
    Kind.VALUE: (2, ("changed", "deleted")),
    Kind.EVENT: (3, ("recorded", "appended")),
    Kind.SESSION: (3, ("created", "deleted")),
    Kind.TASK: (2, ("dead_lettered", "failed", "replayed", "dropped")),
    Kind.TIMER: (2, ("set", "fired", "cancelled")),
    Kind.BUDGET: (1, ("set", "charged")),
    Kind.RELAY: (1, ("elected", "resigned")),
    Kind.OUTBOX: (2, ("skipped",)),
    Kind.WALLET: (1, ("put", "rotated", "retired", "deleted", "rewrapped")),
    Kind.SUBSCRIPTION: (
        1,
        (*LIFE_VERBS, "message_received", "message_rejected", "message_directives_applied",
         "message_deduplicated", "message_spooled", "message_replayed", "message_dead_lettered",
         "message_dropped", "circuit_opened", "circuit_closed", "spool_draining", "rate_limited",
         "run_deduplicated"),
    ),
}  # fmt: skip
"""How many dimensions the subject of a kind has, and which verbs there are."""
_STOPPED: Final = ("halted", "resumed", "skipped")
_SUBSCRIBED: Final = ("subscribed", "unsubscribed")
"""Of drainers: what became of one, and of a subscription of it."""

# What a dimension must be, where the entry says it elsewhere, too.
_SAID: Final = {
    Kind.RUN: ("p.app_name", "p.user_id", "p.session_id", "run_id"),
    Kind.DECISION: ("run_id", "CAST(p.decision_index AS STRING)"),
    Kind.EFFECT: ("p.tool_name", "run_id"),
    Kind.OBLIGATION: ("p.kind", "run_id"),
    Kind.GATE: ("p.gate_name", "run_id"),
    Kind.VALUE: ("p.value.namespace", "p.value.key"),
    Kind.TASK: ("p.reaction_id", "p.task_id"),
    Kind.TIMER: ("p.kind", "run_id"),
    Kind.BUDGET: ("run_id",),
    Kind.RELAY: ("p.relay",),
    Kind.WALLET: ("p.alias",),
}


def broken_grammar(frames: Frames) -> DataFrame:
    odd = frames.entries.where(f"subject NOT RLIKE '{_PLAIN}' OR LENGTH(subject) > 2048")
    confirmed = odd.select("global_seq", "run_id", "subject").mapInArrow(
        not_a_subject, "global_seq BIGINT, run_id STRING, subject STRING, fault STRING"
    )
    return violation_rows(confirmed, "fault", key="subject")


def _other_kind() -> str:
    known = " ".join(
        f"WHEN kind = '{kind.value}' THEN SIZE(dims) = {count} AND verb IN ({_quoted(verbs)})"
        for kind, (count, verbs) in _DIMENSIONS.items()
    )
    known += f""" WHEN kind = 'drainer' THEN
        SIZE(dims) = 1 AND verb IN ({_quoted(_STOPPED)})
        OR SIZE(dims) = 2 AND verb IN ({_quoted(_SUBSCRIBED)})"""
    return f"""subject LIKE '/tape/%'
        AND (NOT COALESCE(CASE {known} END, FALSE) OR GET(SPLIT(subject, '/'), 2) <> kind)"""


def _named_otherwise() -> str:
    """What the entry is about, where its subject names something else; NULL elsewhere."""
    cases = [
        _unlike(f"kind = '{kind.value}'", columns) for kind, columns in _SAID.items()
    ]  # fmt: skip
    recorded = ("event_type", "entity_type", "entity_id")
    cases.append(_unlike("kind = 'event' AND verb = 'recorded'", recorded))
    cases.append(_unlike(f"kind = 'drainer' AND verb IN ({_quoted(_STOPPED)})", ("p.drainer",)))
    subscribed = f"kind = 'drainer' AND verb IN ({_quoted(_SUBSCRIBED)})"
    cases.append(_unlike(subscribed, ("p.drainer_id", "p.subscription_id")))
    lived = f"kind = 'subscription' AND verb IN ({_quoted(LIFE_VERBS)})"
    cases.append(_unlike(lived, ("p.name",)))
    return f"COALESCE({', '.join(cases)})"


def _unlike(condition: str, columns: tuple[str, ...]) -> str:
    """What the entry says, where its subject does not say the same."""
    differ = " OR ".join(
        f"NOT ({decoded(place)} <=> COALESCE({column}, ''))" for place, column in enumerate(columns)
    )
    sized = f"SIZE(dims) = {len(columns)}"
    said = f"CONCAT_WS(', ', {', '.join(columns)})"
    return f"CASE WHEN {condition} AND {sized} AND ({differ}) THEN {said} END"


def _quoted(words: Iterable[str]) -> str:
    return ", ".join(f"'{word}'" for word in words)


other_kind: Final = RowRule(
    ALL_ENTRIES, _other_kind(), "CONCAT('no subject of an entry of kind ', kind)", key="subject"
)
# What could not be parsed says nothing; another check tells of it.
about_something_else: Final = RowRule(
    ALL_ENTRIES,
    f"is_json AND {_named_otherwise()} IS NOT NULL",
    f"CONCAT('its entry is about ', {_named_otherwise()})",
    key="subject",
)

CHECKS: Final[tuple[Check, ...]] = (
    Check("subject_grammar", "A subject follows the grammar of subjects.", broken_grammar,
          reads={"journal": ENTRY_COLUMNS}, kinds=EVERY),
    Check(
        "subject_of_kind", "A subject has the kind of its entry, a verb of it, and its dimensions.",
        other_kind,
    ),
    Check(
        "subject_of_entry", "A subject names what its entry is about.", about_something_else,
        reads={"journal": "event_type entity_type entity_id"},
    ),
)  # fmt: skip
