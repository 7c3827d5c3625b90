"""A violation of every check, each planted where no other check finds anything."""

from typing import Any

from tape.model import subjects
from tape.model.run import Run
from tape.pipeline.jobs.audit.catalogue import CHECKS
from tape.pipeline.jobs.audit.check import RowRule
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
from tests.pipeline.audit.sowing import (
    chunk,
    outbox_row,
    promoted_row,
    published,
    repeated_row,
)
from tests.pipeline.audit.subscribed import ORIGIN, document

UNDONE = (granted(1), begun(), effect("confirmed"))
"""A run that has done something; what it owes for that comes next, as number 4."""
HOUR_MS = 3_600_000


def plant_rows(field: Field, runs: Driven) -> None:
    """Rows that say something else than the entries of runs that really happened."""

    def spoil(check: str, table: str, change: str, run: str = "") -> None:
        run_id = runs[run or check]
        field.sql(f"UPDATE {table} SET {change} WHERE run_id = ?", run_id)
        field.expect(check, run_id)

    spoil("run_row", "tape_runs", "fencing_token = 9")
    spoil("run_row", "tape_runs", "pool = 'elsewhere'", "other pool")
    spoil("run_row", "tape_runs", "app_version = 'v9'", "other version")
    spoil("run_row", "tape_runs", "cancel_reason = 'why not'", "reason of nobody")
    spoil("run_row", "tape_runs", "cancel_reason = ''", "reason forgotten")
    spoil("decision_row", "tape_decisions", "seq = 99 + decision_index")
    spoil("effect_row", "tape_effects", "status = 3")
    spoil("obligation_row", "tape_obligations", "attempts = 7")
    spoil("obligation_top", "tape_runs", "top_obligation = 77")
    spoil("gate_row", "tape_gates", "released = TRUE")
    spoil("timer_row", "tape_timers", "fired = TRUE")
    spoil("budget_row", "tape_budgets", "tokens_spent = 5")
    _untell_a_parent(field, runs)
    nobody = Run("no entries", "app", "", "", "no entries", "shared", 4, 3, "", "", 0, 1, 1, 2)
    field.row("tape_runs", **nobody._asdict())
    field.expect("run_row_journal", nobody.run_id)
    field.sql("UPDATE tape_values SET value_json = '9' WHERE key = 'a/b'")
    field.expect("value_row", "n s/a/b")
    field.sql("UPDATE tape_sessions SET event_count = 99 WHERE session_id = '_'")
    for check in ("session_row", "session_events"):
        field.expect(check, "app/~u%20ser%2A/%5F")


def _untell_a_parent(field: Field, runs: Driven) -> None:
    """The gate that a child's end has opened is closed again, without a trace."""
    parent, child = runs["run_parent_told"], runs["the child"]
    field.sql(
        "DELETE FROM tape_journal WHERE run_id = ? AND subject LIKE '/tape/gate/released/%'", parent
    )
    field.sql("UPDATE tape_runs SET seq_cursor = seq_cursor - 1 WHERE run_id = ?", parent)
    field.sql("UPDATE tape_gates SET released = FALSE WHERE run_id = ?", parent)
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

    def ended(
        check: str, reaction_id: str, source: int, shard: int = 0, status: int = 3, owner: str = "a"
    ) -> None:
        field.row(
            "tape_task_ended", reaction_id=reaction_id, shard=shard, source_global_seq=source,
            status=status, attempts=1, lease_owner=owner, last_error="", created_at_ms=1,
            completed_at_ms=2,
        )  # fmt: skip
        field.expect(check, f"{reaction_id}/{shard}/{source}")

    reaction("any", "/**")
    reaction("some", "/tape/event/recorded/some/**")
    reaction("few", "/tape/event/recorded/**", "payload.n >= 1")
    sources = [field.event(payload={"n": 0}) for _ in range(7)]
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
    ended("task_ended", "any", sources[6], owner="")
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
    field.expect("drainer_events", "d2")
    again = {"relay": "nats", "term": 3, "owner": "c", "session": ""}
    field.entry("relay", subjects.relay("elected", "nats"), again)
    field.expect("relay_terms", "nats")
    field.sql("DELETE FROM tape_reaction_cursors WHERE reaction_id = 'given up' AND shard = 1")
    field.expect("cursor_shards", "given up")
    field.sql("UPDATE tape_reaction_tallies SET queued = queued + 1 WHERE reaction_id = 'given up'")
    field.expect("reaction_tally", "given up")


def plant_kept(field: Field, runs: Driven) -> None:
    """Rows that are gone, or that name what is not there."""
    field.sql("DELETE FROM tape_business_keys WHERE business_key = 'key of debit'")
    field.expect("effect_key_row", runs["unwound"])
    field.sql("DELETE FROM tape_session_events WHERE session_id = 'gone' AND id = 'e0'")
    field.expect("session_events", "app/u/gone")
    field.sql("UPDATE tape_relays SET term = 2, owner = 'b' WHERE relay = 'nats'")
    field.expect("relay_row", "nats")
    field.sql("DELETE FROM tape_task_ended WHERE reaction_id = 'r' AND status = 3")
    field.expect("task_kept", "r")
    drainer = "UPDATE tape_event_drain_state SET {} WHERE drainer_id = ?"
    field.sql(drainer.format("last_event_id = 'never'"), "gone on")
    field.sql(drainer.format("halted_on_event_id = 'never'"), "halted")
    for drainer_id in ("gone on", "halted"):
        field.expect("drainer_events", drainer_id)
    field.sql(drainer.format("halted_at_ms = 0"), "halted")
    field.expect("drainer_halt_whole", "halted")
    field.sql(drainer.format("waiting_on_run_id = 'a run'"), "gone on")
    field.expect("drainer_wait_whole", "gone on")


def plant_sequences(field: Field) -> None:
    last = int(field.one(f"SELECT max(id) FROM {field.outbox}"))
    for name, number in (("journal", field.before - 1), ("outbox", last - 1)):
        field.set_sequence(name, number)
        field.expect("sequence_ahead", name)


def plant_settings(field: Field) -> None:
    """What cannot be understood, or is set as nothing can be."""
    setting = "UPDATE tape_reactions SET {} WHERE reaction_id = ?"
    for reaction_id, change in (
        ("no pattern", "subject_pattern = 'orders'"), ("no cel", "predicate_cel = 'payload.n >'"),
    ):  # fmt: skip
        field.sql(setting.format(change), reaction_id)
        field.expect("reaction_compiles", reaction_id)
    field.sql(setting.format("handler_kind = 3"), "no target")
    field.expect("reaction_settings", "no target")
    field.sql("UPDATE tape_reaction_cursors SET predicate_errors = 4 WHERE reaction_id = 'no cel'")
    field.expect("cursor_errors", "no cel/0")
    subscription = "UPDATE tape_event_subscriptions SET {} WHERE subscription_id = ?"
    for subscription_id, change in (
        ("no glob", "event_type_glob = 'a..[b'"), ("no filter", "filter_expr = '1 +'"),
        ("no mapper", "input_mapper = '[]'"),
    ):  # fmt: skip
        field.sql(subscription.format(change), subscription_id)
        field.expect("event_subscription_compiles", subscription_id)
        field.expect("event_subscription_row", subscription_id)
    field.sql(subscription.format("pool = 'elsewhere'"), "moved")
    field.expect("event_subscription_row", "moved")


def plant_tasks_in_hand(field: Field) -> None:
    queued = "reaction_id = 'given up' AND status = 1"
    field.sql(f"UPDATE tape_task_queue SET status = 2 WHERE {queued}")
    source = field.one("SELECT max(source_global_seq) FROM tape_task_queue "
                       "WHERE reaction_id = 'given up' AND status = 2")  # fmt: skip
    field.expect("task_held", f"given up/0/{source}")
    field.expect("task_ended", f"given up/0/{source}")


def plant_outbox(field: Field) -> None:
    def found(check: str, row: int) -> None:
        field.expect(check, str(row))

    found("outbox_states", outbox_row(field, 0, **published(field)))
    found("outbox_states", promoted_row(field, **published(field) | {"published_term": 0}))
    found("outbox_entry", outbox_row(field, 10**8, **published(field)))
    found("outbox_entry", promoted_row(field, payload_json='{"qty": 2}', **published(field)))
    found("outbox_entry", promoted_row(field, event_id=next(IDS)))
    found("outbox_entry", promoted_row(field, entity_id="other"))
    found("outbox_states", repeated_row(field, repeat_of=""))
    found("outbox_repeat", repeated_row(field, repeat_of=next(IDS)))
    promoted_row(field, idempotency_key="twice")
    found("outbox_key_once", promoted_row(field, idempotency_key="twice"))
    found("outbox_term", promoted_row(field, **published(field) | {"published_term": 9}))
    field.row(field.processed, consumer="", message_id="m2")
    field.expect("processed_row", "m2")


def plant_writes(field: Field) -> None:
    def write(write_id: str, chunks: int, recorded: int) -> None:
        field.row(
            "tape_writes", write_id=write_id, epoch=1, origin="batch", chunks=chunks,
            recorded=recorded, rows=1, duplicates=0, updated_at_ms=1,
        )  # fmt: skip

    def listed(write_id: str, parts: str) -> None:
        field.row("tape_write_lists", write_id=write_id, epoch=1, parts_json=parts)

    write("more", 2, 3)
    field.expect("write_counts", "more")
    write("unlisted", 2, 1)
    write("other list", 2, 2)
    listed("other list", '[["a", 5, 9]]')
    write("unstaged", 2, 1)
    listed("unstaged", '[["a", 2, 9]]')
    for write_id in ("unlisted", "other list", "unstaged"):
        field.expect("write_list", write_id)
    write("beyond", 1, 1)
    listed("beyond", '[["a", 1, 9]]')
    chunk(field, "beyond", 1, "a", 1)
    field.expect("write_chunks", "beyond/1")


def plant_credentials(field: Field) -> None:
    version = "UPDATE tape_credential_versions SET {} WHERE alias = ?"
    for number in (1, 3):
        put = {"alias": "leapt", "version": number, "previous_version": 0, "key_id": "key-1"}
        field.entry("wallet", subjects.wallet("put", "leapt"), put)
    field.expect("credential_versions", "leapt")
    field.row(
        "tape_credential_versions", alias="plain", version=9, form="text", key_id="key-1",
        wrapped_key=b"k", nonce=b"n", ciphertext=b"c", wrapped_at_ms=1,
    )  # fmt: skip
    field.expect("credential_entry", "plain/9")
    field.expect("credential_good", "plain")
    field.sql("DELETE FROM tape_credential_versions WHERE alias = 'torn'")
    field.expect("credential_good", "torn")
    # As if somebody had put back what was there before the rotation.
    field.sql("DELETE FROM tape_credential_versions WHERE alias = 'rewound' AND version = 2")
    field.sql(
        "UPDATE tape_credentials SET version = 1, previous_version = 0 WHERE alias = 'rewound'"
    )
    field.expect("credential_row", "rewound")
    field.sql(version.format("key_id = 'key-9'"), "another key")
    field.expect("credential_key", "another key/1")
    field.sql(version.format("form = ''"), "unsaid")
    field.expect("credential_form", "unsaid/1")


def plant_subscriptions(field: Field) -> None:
    def told(verb: str, name: str, **payload: Any) -> None:
        said = {"name": name, "revision": 1, "state": "registered"} | payload
        field.entry("subscription", subjects.subscription(verb, name), said)

    def spoil(check: str, table: str, change: str, name: str) -> None:
        field.sql(f"UPDATE tape_{table} SET {change} WHERE name = ?", name)
        field.expect(check, name)

    told("registered", "leapt")
    told("resumed", "leapt", before="registered", state="active")
    field.expect("subscription_moves", "leapt")
    told("registered", "skipped")
    told("registered", "skipped", revision=3)
    told("rate_limited", "nobody")
    field.expect("subscription_moves", "nobody")
    field.expect("subscription_revision", "skipped")
    spoil("subscription_row", "subscriptions", "state = 'paused'", "unlike")
    field.sql("DELETE FROM tape_subscription_revisions WHERE name = 'torn' AND revision = 1")
    field.expect("subscription_revisions", "torn")
    other = document("altered", runtime={"pool": "nobody's"}).document_json
    field.sql(
        "UPDATE tape_subscription_revisions SET document_json = ? "
        "WHERE name = 'altered' AND revision = 1",
        other,
    )
    field.expect("subscription_document", "altered/1")
    spoil("subscription_columns_read", "subscriptions", "listener_pool = 'x'", "misread")
    field.sql("DELETE FROM tape_gateway_paths WHERE name = 'pathless'")
    field.expect("subscription_path", "pathless")
    spoil("listener_row", "listeners", "fencing_token = 1", "old-token")
    spoil("listener_hold", "listeners", "in_flight = 5", "in-nobodys-hands")
    spoil("subscription_drains", "subscriptions", "changed_at_ms = 1", "drains")
    field.sql("UPDATE tape_listeners SET lease_expires_at_ms = 1 WHERE name = 'drains'")


def plant_accepted(field: Field) -> None:
    place = f"{ORIGIN}/1"

    def spoil(check: str, change: str, name: str, positions: tuple[int, ...] = (1,)) -> None:
        for position in positions:
            key = f"{ORIGIN}/{position}"
            field.sql(
                f"UPDATE tape_accepted_places SET {change} WHERE subscription = ? AND place = ?",
                name, key,
            )  # fmt: skip
            run_id = field.one(
                f"SELECT run_id FROM tape_accepted_places WHERE subscription = '{name}' "
                f"AND place = '{key}'"
            )
            field.expect(check, run_id if check != "accepted_place" else f"{name}/{key}")

    spoil("accepted_place", "number = 99", "another-number")
    spoil("accepted_run", "run_id = 'nobody'", "no-run")
    shared = field.one(
        f"SELECT run_id FROM tape_accepted_places WHERE subscription = 'one-run' "
        f"AND place = '{place}'"
    )
    spoil("accepted_once", f"run_id = '{shared}'", "one-run", (2,))
    for name, change in (("count", "dead_lettered = 0"), ("too-many", "accepted = 3")):
        field.sql(f"UPDATE tape_listeners SET {change} WHERE name = ?", name)
        field.expect("accepted_counts", name)
    field.row(
        "tape_passed_positions", subscription="of nobody", origin=ORIGIN, reader="r", position=1,
        reported_at_ms=1,
    )  # fmt: skip
    field.expect("accepted_left", "of nobody")
    field.row(
        "tape_passed_positions", subscription="events", origin="elsewhere", reader="r", position=1,
        reported_at_ms=1,
    )  # fmt: skip
    field.expect("passed_position", "events/elsewhere")
    field.sql("UPDATE tape_seen_keys SET run_id = 'nobody' WHERE subscription = 'keyless'")
    field.expect("seen_key", "nobody")
    verb = subjects.subscription("message_deduplicated", "events")
    field.entry("subscription", verb, {"place": f"{ORIGIN}/77", "run_id": "never begun"})
    field.expect("message_run", "never begun")
    field.sql("DELETE FROM tape_subscription_dead_letters WHERE subscription = 'letterless'")
    field.expect("message_letter", "letterless")
    field.sql(
        f"UPDATE tape_subscription_dead_letters SET place = '{ORIGIN}/5', position = '5' "
        "WHERE subscription = 'other-letter'"
    )
    letter = field.one(
        "SELECT letter_id FROM tape_subscription_dead_letters WHERE subscription = 'other-letter'"
    )
    field.expect("dead_letter_row", f"other-letter/{letter}")
    applied = [{"header": "x-route", "controls": "dispatch.playbook", "effective_value": "evil"}]
    verb = subjects.subscription("message_directives_applied", "events")
    for position, check, said, playbook in (
        (1, "directives_route", [], "other"), (9, "directives_allowed", applied, None),
    ):  # fmt: skip
        run_id = field.one(
            "SELECT run_id FROM tape_accepted_places WHERE subscription = 'events' "
            f"AND place = '{ORIGIN}/{position}'"
        )
        override = {"playbook": playbook, "pool": None}
        payload = {"run_id": run_id, "applied": said, "route_override": override}
        field.entry("subscription", verb, payload)
        field.expect(check, run_id)


COLUMNS = {
    "runs": "started_at_ms", "effects": "next_dispatch_at_ms",
    "obligations": "next_attempt_at_ms", "timers": "created_at_ms", "values": "ts_ms",
    "decisions": "ts_ms", "reactions": "created_at_ms", "reaction_cursors": "last_processed_at_ms",
    "reaction_tallies": "next_free_us", "sessions": "created_at_ms", "matcher": "expires_at_ms",
    "event_drain_state": "last_drained_at_ms", "event_subscriptions": "created_at_ms",
    "session_events": "timestamp_ms", "reaction_book": "version", "task_queue": "debounce_until_ms",
    "writes": "updated_at_ms", "write_chunks": "staged_at_ms", "relays": "elected_at_ms",
    "credentials": "opened", "credential_versions": "wrapped_at_ms",
    "subscriptions": "changed_at_ms", "subscription_revisions": "created_at_ms",
    "listeners": "due_at_ms", "accepted_places": "accepted_at_ms",
    "passed_positions": "reported_at_ms", "seen_keys": "seen_at_ms",
    "subscription_dead_letters": "at_ms",
}  # fmt: skip
"""A number of each table that no other check looks at."""


def plant_columns(field: Field, runs: Driven) -> None:
    """A number, a time or a JSON of each table that can be none."""

    def spoil(name: str, change: str, where: str = "TRUE") -> None:
        rule = CHECKS[f"{name}_columns"].find
        assert isinstance(rule, RowRule)
        named = rule.key.removeprefix("CONCAT_WS('/', ").removesuffix(")")
        field.sql(f"UPDATE tape_{name} SET {change} WHERE {where}")
        rows = field.db.execute(f"SELECT {named} FROM tape_{name} WHERE {where}")
        for row in rows.fetchall():
            field.expect(f"{name}_columns", "/".join(map(str, row)))

    for name, column in COLUMNS.items():
        spoil(name, f"{column} = -1")
    field.sql("UPDATE tape_gates SET payload_json = '{'")
    for row in field.db.execute("SELECT run_id, gate_name FROM tape_gates").fetchall():
        field.expect("json_columns", "/".join(("gates", *row)))
    field.sql("UPDATE tape_task_ended SET created_at_ms = -1 WHERE reaction_id = 'some'")
    task = "SELECT reaction_id || '/' || shard || '/' || source_global_seq FROM tape_task_ended"
    task_id = field.one(f"{task} WHERE reaction_id = 'some'")
    field.expect("tasks_columns", f"{task_id}/some")
    spoil("budgets", "usd_cap = -1.0", f"run_id = '{runs['budget_row']}'")
    field.row("tape_write_lists", write_id="torn", epoch=9, parts_json="[")
    field.expect("json_columns", "write_lists/torn/9")
    field.row("tape_write_lists", write_id="before", epoch=-1, parts_json="[]")
    field.expect("write_lists_columns", "before/-1")
    field.row("tape_retention", name="other", pruned_through=-1)
    field.expect("retention_columns", "other/-1")


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
    plant_kept(field, runs)
    plant_settings(field)
    plant_tasks_in_hand(field)
    plant_outbox(field)
    plant_writes(field)
    plant_credentials(field)
    plant_subscriptions(field)
    plant_accepted(field)
    plant_columns(field, runs)
    to_double = field.event()
    field.expect("global_seq_unique", str(to_double))
    # The last, or all that come later would seem to be recorded too early.
    last = field.event(ts_ms=field.now_ms + 240 * HOUR_MS)
    field.expect("time_plausible", str(last))
    plant_sequences(field)
    return to_double
