"""A violation of every check, each planted where no other check finds anything."""

from typing import Any

from tape.model import subjects
from tape.model.run import Run
from tests.pipeline.audit.healthy import Driven
from tests.pipeline.audit.planting import (
    IDS,
    Field,
    begun,
    budget,
    changed,
    decision,
    effect,
    gate,
    granted,
    owed,
    status,
    timer,
)

UNDONE = (granted(1), begun(), effect("confirmed"))
"""A run that has done something; what it owes for that comes next, as number 4."""
HOUR_MS = 3_600_000


def plant_rows(field: Field, runs: Driven) -> None:
    """Rows that say something else than the entries of runs that really happened."""

    def spoil(check: str, table: str, change: str) -> None:
        run_id = runs[check]
        field.sql(f"UPDATE {table} SET {change} WHERE run_id = ?", run_id)
        field.expect(check, run_id)

    spoil("run_row", "tape_runs", "fencing_token = 9")
    spoil("decision_row", "tape_decisions", "seq = 99 + decision_index")
    spoil("effect_row", "tape_effects", "status = 3")
    spoil("obligation_row", "tape_obligations", "attempts = 7")
    spoil("obligation_top", "tape_runs", "top_obligation = 77")
    spoil("gate_row", "tape_gates", "released = 1")
    spoil("timer_row", "tape_timers", "fired = 1")
    spoil("budget_row", "tape_budgets", "tokens_spent = 5")
    _untell_a_parent(field, runs)
    nobody = Run("no entries", "app", "", "", "no entries", "shared", 4, 3, "", "", 0, 1, 1, 2)
    field.row("tape_runs", **nobody._asdict())
    field.expect("run_row_journal", nobody.run_id)
    field.sql("UPDATE tape_values SET value_json = '9' WHERE key = 'a/b'")
    field.expect("value_row", "n s/a/b")
    field.sql("UPDATE tape_sessions SET event_count = 99 WHERE session_id = '_'")
    field.expect("session_row", "app/~u%20ser%2A/%5F")


def _untell_a_parent(field: Field, runs: Driven) -> None:
    """The gate that a child's end has opened is closed again, without a trace."""
    parent, child = runs["run_parent_told"], runs["the child"]
    field.sql(
        "DELETE FROM tape_journal WHERE run_id = ? AND subject LIKE '/tape/gate/released/%'", parent
    )
    field.sql("UPDATE tape_runs SET seq_cursor = seq_cursor - 1 WHERE run_id = ?", parent)
    field.sql("UPDATE tape_gates SET released = 0 WHERE run_id = ?", parent)
    field.expect("run_parent_told", child)


def plant_entries(field: Field) -> None:
    def found(check: str, identity: Any) -> None:
        field.expect(check, str(identity))

    twice = next(IDS)
    for _ in range(2):
        field.event(event_id=twice)
        field.event(idempotency_key="again")
    found("event_id_unique", twice)
    found("idempotency_key_unique", "again")
    field.event(event_id="no-ulid")
    found("event_id_ulid", "no-ulid")
    found("time_forward", field.event(ts_ms=field.now_ms - HOUR_MS))
    found("payload_json", field.event(payload='{"a":'))
    found("trace_hex", field.event(trace_id="XYZ"))
    found("columns_of_kind", field.event(""))
    field.event(caused_by="nobody")
    found("cause_exists", "nobody")
    odd = "/tape/event/recorded/a b/_/_"
    field.event("a b", subject=odd)
    found("subject_grammar", odd)
    odd = "/tape/event/renamed/x/_/_"
    field.entry("event", odd)
    found("subject_of_kind", odd)
    odd = "/tape/drainer/halted/d/more"
    field.entry("drainer", odd, {"drainer": "d"})
    found("subject_of_kind", odd)
    odd = "/tape/event/recorded/other/_/_"
    field.event(subject=odd)
    found("subject_of_entry", odd)
    odd = "/tape/drainer/resumed/d"
    field.entry("drainer", odd, {"drainer": "another"})
    found("subject_of_entry", odd)


def plant_runs(field: Field) -> None:
    late = field.now_ms + HOUR_MS
    field.run("run_seq_contiguous", granted(1), timer("set"), seqs=(1, 3))
    field.run("run_seq_order", granted(1), gate("waiting"), timer("set"), seqs=(1, 3, 2))
    field.run("run_begins", decision(0), granted(1))
    field.run("run_moves", granted(1), status("terminal", fencing_token=1), status("runnable"))
    field.run("run_name", granted(1), name="misnamed")
    field.run("run_parent", granted(1, parent_run_id="nobody"))
    field.run("lease_token_next", granted(1), status("runnable", fencing_token=1), granted(3))
    field.run("lease_token_stale", granted(1), granted(2), status("waiting", fencing_token=1))
    field.run("lease_held", granted(1), status("runnable", fencing_token=1), decision(0))
    field.run("lease_takeover", granted(1, "a", late), granted(2, "b"))
    field.run("decision_once", granted(1), decision(0), decision(0))
    field.run("decision_contiguous", granted(1), decision(0), decision(2))
    field.run("gate_awaited_once", granted(1), gate("waiting"), gate("waiting"))
    field.run("gate_released_once", granted(1), gate("released"), gate("released"))
    field.run("timer_set_once", granted(1), timer("set"), timer("set"))
    field.run("timer_set_first", granted(1), timer("fired"))
    field.run("timer_once", granted(1), timer("set"), timer("fired"), timer("fired"))
    field.run("timer_not_early", granted(1), timer("set", late), timer("fired", late))
    field.run("budget_sums", granted(1), budget("charged", 5.0, usd=1.0))
    field.run(
        "budget_charged_once",
        granted(1), budget("charged", 1.0, "c", usd=1.0), budget("charged", 2.0, "c", usd=1.0),
    )  # fmt: skip
    field.run(
        "budget_cap",
        granted(1), budget("set", 0.0, cap=1.0), budget("charged", 2.0, "c1", 1.0, usd=2.0),
        budget("charged", 3.0, "c2", 1.0, usd=1.0),
    )  # fmt: skip


def plant_effects(field: Field) -> None:
    field.run("effect_begun_once", granted(1), begun(), begun())
    field.run("effect_begun_first", granted(1), effect("confirmed"))
    field.run("effect_confirmed_once", *UNDONE, effect("confirmed"))
    field.run("effect_settled", granted(1), begun(), effect("failed"), effect("confirmed"))
    field.run("effect_observed", granted(1), begun(), effect("unknown"), effect("confirmed"))
    field.run("effect_claimed", granted(1), begun(mode="outbox"), effect("attempted"))
    released = status("runnable", fencing_token=1)
    field.run("effect_under_lease", granted(1), begun(), released, effect("confirmed"))
    field.run("effect_by_outbox", granted(1), begun(semantics="non_idempotent"))
    field.run(
        "effect_not_repeated",
        granted(1), begun("k", "non_idempotent", "outbox"), effect("claimed"), effect("claimed"),
    )  # fmt: skip
    field.run(
        "effect_business_key",
        granted(1), begun("one", business_key="b"), begun("other", business_key="b"),
    )  # fmt: skip


def plant_obligations(field: Field) -> None:
    def stacked(run_id: str, number: int, kind: str, below: int) -> None:
        field.row(
            "tape_obligations", run_id=run_id, effect_key="k", kind=kind, seq=number,
            payload_json="null", status=1, ts_ms=1, compensator_ref=kind, max_attempts=5,
            below=below,
        )  # fmt: skip

    registered = owed("registered", 4)
    field.run("obligation_once", *UNDONE, registered, owed("registered", 5))
    field.run("obligation_registered", granted(1), owed("committed", 99))
    field.run("obligation_of_effect", granted(1), owed("registered", 2, "no effect"))
    field.run("obligation_moves", *UNDONE, registered, owed("compensated", 4))
    field.run(
        "obligation_resolved_once",
        *UNDONE, registered, owed("committed", 4), owed("compensated", 4), owed("committed", 4),
    )  # fmt: skip
    unwinding = status("compensating", ending="failed")
    run_id = field.run(
        "obligation_order",
        *UNDONE, registered, owed("registered", 5, kind="other"), unwinding, owed("committed", 4),
        owed("compensated", 4),
    )  # fmt: skip
    stacked(run_id, 4, "undo", 0)
    stacked(run_id, 5, "other", 4)
    stacked(field.run("obligation_when", *UNDONE, registered, owed("committed", 4)), 4, "undo", 0)
    failed = status("failed", fencing_token=1)
    stacked(field.run("obligation_unwound", *UNDONE, registered, failed), 4, "undo", 0)


def plant_values_and_sessions(field: Field) -> None:
    for kind, subject, payload in (
        changed("skipped", 1, "1", ""), changed("skipped", 3, "3", "2"),
        changed("another", 1, "1", ""), changed("another", 2, "2", "9"),
        changed("deleted", 1, "", "", deleted=True),
    ):  # fmt: skip
        field.entry(kind, subject, payload)
    field.expect("value_versions", "p/skipped")
    field.expect("value_previous", "p/another")
    field.expect("value_deleted", "p/deleted")
    appended = {"event": {"id": "e"}}
    field.entry("event", subjects.session_event_appended("app", "u", "nobody"), appended)
    field.expect("session_moves", "app/u/nobody")
    field.entry("session", subjects.session("created", "app", "u", "twice"), {})
    for _ in range(2):
        field.entry("event", subjects.session_event_appended("app", "u", "twice"), appended)
    field.expect("session_event_once", "app/u/twice")


def plant_tasks(field: Field) -> None:
    def reaction(reaction_id: str, pattern: str, cel: str = "") -> None:
        """One that is gone, so that it has no cursors; and nobody counts its tasks."""
        field.row(
            "tape_reactions", reaction_id=reaction_id, name="", subject_pattern=pattern,
            predicate_cel=cel, handler_kind=2, created_at_ms=1, deleted=1,
        )  # fmt: skip

    def ended(check: str, reaction_id: str, source: int, shard: int = 0, status: int = 3) -> None:
        field.row(
            "tape_task_ended", reaction_id=reaction_id, shard=shard, source_global_seq=source,
            status=status, attempts=1, lease_owner="a", last_error="", created_at_ms=1,
            completed_at_ms=2,
        )  # fmt: skip
        field.expect(check, f"{reaction_id}/{shard}/{source}")

    reaction("any", "/**")
    reaction("some", "/tape/event/recorded/some/**")
    reaction("few", "/tape/event/recorded/**", "payload.n >= 1")
    sources = [field.event(payload={"n": 0}) for _ in range(6)]
    ended("task_source", "any", 10**8)
    ended("task_once", "any", sources[0])
    field.row(
        "tape_task_queue", reaction_id="any", shard=0, source_global_seq=sources[0], status=1,
        created_at_ms=1,
    )  # fmt: skip
    ended("task_reaction", "nobody's", sources[1])
    ended("task_shard", "r2", sources[2], shard=5)
    ended("task_pattern", "some", sources[3])
    ended("task_predicate", "few", sources[4])
    ended("task_row", "any", sources[5], status=5)
    task = {"task_id": "any/0/1", "reaction_id": "any", "shard": 0, "source_global_seq": 1}
    field.entry("task", subjects.task_subject("replayed", "any", "any/0/1"), task)
    field.expect("task_moves", "any/0/1")


def plant_cursors(field: Field) -> None:
    cursor = "UPDATE tape_reaction_cursors SET last_global_seq = ? WHERE reaction_id = ?"
    field.sql(cursor, 10**9, "r2")
    field.expect("cursor_ahead", "r2/0")
    field.expect("cursor_pruned", "elsewhere/0")
    field.sql("UPDATE tape_matcher SET position = ?", 10**9)
    field.expect("matcher_ahead", "matcher")
    field.sql(
        "UPDATE tape_event_drain_state SET last_global_seq = ? WHERE drainer_id = 'd/1'", 10**9
    )
    field.expect("drainer_ahead", "d/1")
    field.sql("UPDATE tape_event_drain_state SET halted_on_global_seq = 1 WHERE drainer_id = 'd2'")
    field.expect("drainer_halted", "d2")
    again = {"relay": "nats", "term": 3, "owner": "c", "session": ""}
    field.entry("relay", subjects.relay("elected", "nats"), again)
    field.expect("relay_terms", "nats")
    field.sql("DELETE FROM tape_reaction_cursors WHERE reaction_id = 'given up' AND shard = 1")
    field.expect("cursor_shards", "given up")
    field.sql("UPDATE tape_reaction_tallies SET queued = queued + 1 WHERE reaction_id = 'given up'")
    field.expect("reaction_tally", "given up")


def plant_everything(field: Field, runs: Driven) -> int:
    """One of each but of `global_seq_unique`, for which there is the entry that is returned."""
    plant_rows(field, runs)
    plant_entries(field)
    plant_runs(field)
    plant_effects(field)
    plant_obligations(field)
    plant_values_and_sessions(field)
    plant_tasks(field)
    plant_cursors(field)
    to_double = field.event()
    field.expect("global_seq_unique", str(to_double))
    # The last, or all that come later would seem to be recorded too early.
    last = field.event(ts_ms=field.now_ms + 240 * HOUR_MS)
    field.expect("time_plausible", str(last))
    return to_double
