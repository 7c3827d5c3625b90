"""Every table and column of the schema is looked at by a check, or says why not."""

import sqlite3
from collections.abc import Iterable

import psycopg
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from tape.pipeline.jobs.audit.catalogue import CHECKS
from tape.pipeline.jobs.audit.check import columns_read
from tape.pipeline.jobs.audit.checks.columns import CHECKS as COLUMN_CHECKS
from tape.pipeline.jobs.audit.finding import Violation, violations
from tape.pipeline.jobs.audit.frames import ENTRY_COLUMNS, AuditScope, Frames
from tape.pipeline.jobs.audit.small_tables import AGAIN, schema_of
from tape.stores.blocking import Stores
from tape.stores.postgres.bulk import RELATIONS as ON_POSTGRES
from tape.stores.sqlite.bulk import RELATIONS as ON_SQLITE

IN_STORE = {"tasks": ("tape_task_queue", "tape_task_ended"), "sequences": ("sqlite_sequence",)}
"""Tables that are read under another name: tasks as one view of two tables."""
WORDS = "words for people: nothing is decided by them"
ERROR = "words of an error: by them at most a report or a message that is sent again is known"
SEALED = "whether it was altered is seen by opening it, which takes the wallet's key"
CLAIM = "who works on it just now; nothing of it is on the journal"
EXCEPTIONS = {
    ("tape_migrations", "*"): "held to the migrations of the code whenever a store is opened",
    ("tape_schema_steps", "*"): "held to the steps of the code whenever a store is opened",
    ("tape_values", "request_id"): "tells a call that is sent again, and is not on the journal",
    ("tape_write_chunks", "body"): "checked when it was staged, and nobody reads it but its write",
    ("tape_runs", "reactor_name"): CLAIM,
    ("tape_effects", "scope external_ref"): WORDS,
    ("tape_effects", "last_dispatch_error"): ERROR,
    ("tape_effects", "dispatch_claimed_by"): CLAIM,
    ("tape_obligations", "last_error"): ERROR,
    ("tape_obligations", "claimed_by"): CLAIM,
    ("tape_reactions", "name"): WORDS,
    ("tape_reactions", "pool"): "any name is a pool, and blank is the default one",
    ("tape_reaction_cursors", "last_error"): WORDS,
    ("tape_task_queue", "last_error last_traceback"): ERROR,
    ("tape_task_ended", "last_error last_traceback"): ERROR,
    ("tape_matcher", "owner"): CLAIM,
    ("tape_session_events", "invocation_id author branch"): WORDS,
    ("tape_event_drain_state", "last_error"): ERROR,
    ("tape_event_drain_state", "lease_owner"): CLAIM,
    ("tape_credential_versions", "wrapped_key nonce ciphertext"): SEALED,
    ("tape_subscription_dead_letters", "body"): "the bytes of a message, as they came",
    ("tape_subscription_dead_letters", "message_id detail key source_subject"): WORDS,
    ("tape_listeners", "last_error"): ERROR,
}
TIME = "a time of the store's clock, which the journal has not or has in its entry"
CONTENT = "what a program has given or got: any JSON will do"
HELD = "a claim, a lease or a pause as it is just now; nothing of it is on the journal"
CHOSEN = "a setting of the reaction: any number will do"
DELIVERED = "counts what is not on the journal: messages that made no run and no entry"
COUNTED = "counts what is not on the journal: events that were passed"
FORM = {
    ("tape_runs", "lease_expires_at_ms"): HELD,
    ("tape_runs", "started_at_ms"): TIME,
    ("tape_runs", "outcome_json"): CONTENT,
    ("tape_effects", "request_json response_json error_json"): CONTENT,
    ("tape_effects", "ts_ms"): TIME,
    ("tape_effects", "dispatch_attempts next_dispatch_at_ms"): HELD,
    ("tape_effects", "dispatch_claim_expires_at_ms claim_token"): HELD,
    ("tape_obligations", "payload_json result_json"): CONTENT,
    ("tape_obligations", "ts_ms"): TIME,
    ("tape_obligations", "next_attempt_at_ms claim_expires_at_ms claim_token"): HELD,
    ("tape_gates", "payload_json resolution_json"): CONTENT,
    ("tape_timers", "payload_json"): CONTENT,
    ("tape_timers", "created_at_ms"): TIME,
    ("tape_values", "ts_ms"): TIME,
    ("tape_decisions", "ts_ms"): TIME,
    ("tape_reactions", "rate_limit_per_s debounce_ms retry_max retry_backoff_ms"): CHOSEN,
    ("tape_reactions", "dlq_after_n"): CHOSEN,
    ("tape_reactions", "created_at_ms"): TIME,
    ("tape_reaction_cursors", "last_processed_at_ms"): TIME,
    ("tape_reaction_tallies", "next_free_us"): HELD,
    ("tape_task_queue", "created_at_ms"): TIME,
    ("tape_task_ended", "created_at_ms"): TIME,
    ("tape_sessions", "state_json"): CONTENT,
    ("tape_sessions", "created_at_ms last_update_time_ms"): TIME,
    ("tape_session_events", "content_json actions_json"): CONTENT,
    ("tape_session_events", "timestamp_ms"): TIME,
    ("tape_matcher", "fencing_token expires_at_ms"): HELD,
    ("tape_event_drain_state", "last_drained_at_ms"): TIME,
    ("tape_event_drain_state", "events_processed_total dispatched_total"): COUNTED,
    ("tape_event_drain_state", "failed_total skipped_total"): COUNTED,
    ("tape_event_drain_state", "attempts_json next_try_at_ms"): HELD,
    ("tape_event_drain_state", "lease_expires_at_ms fencing_token"): HELD,
    ("tape_event_subscriptions", "created_at_ms"): TIME,
    ("tape_reaction_book", "name version resharded_at"): "counts changes of reactions",
    ("tape_write_chunks", "staged_at_ms"): TIME,
    ("tape_retention", "name pruned_through"): "where the audit itself begins",
    ("tape_relays", "elected_at_ms expires_at_ms"): HELD,
    ("tape_credentials", "created_at_ms changed_at_ms"): TIME,
    ("tape_credentials", "opened"): "counts what is not on the journal: openings",
    ("tape_credential_versions", "wrapped_at_ms"): TIME,
    ("tape_subscription_revisions", "created_at_ms"): TIME,
    ("tape_listeners", "fetched redelivered rejected spooled"): DELIVERED,
    ("tape_listeners", "backlog due_at_ms free_at_us throttled_at_ms"): HELD,
    ("tape_accepted_places", "accepted_at_ms"): TIME,
    ("tape_passed_positions", "reported_at_ms"): TIME,
    ("tape_subscription_dead_letters", "at_ms timestamp_ms"): TIME,
    ("tape_subscription_dead_letters", "headers_json"): CONTENT,
}
"""Columns of which an audit knows the form alone: a number that is not negative, or JSON."""


def sqlite_columns(url: str) -> set[tuple[str, str]]:
    with sqlite3.connect(url.removeprefix("sqlite:")) as db:
        tables = db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()
        return {
            (table, column)
            for (table,) in tables
            for (_, column, *_rest) in db.execute(f"PRAGMA table_info({table})")
        }


def postgres_columns(url: str) -> set[tuple[str, str]]:
    query = """SELECT c.table_schema, c.table_name, c.column_name
        FROM information_schema.columns c JOIN information_schema.tables t
            USING (table_schema, table_name)
        WHERE t.table_type = 'BASE TABLE' AND c.table_schema IN ('public', 'bus')"""
    sequences = """SELECT schemaname, sequencename, 'last_value' FROM pg_sequences
        WHERE schemaname IN ('public', 'bus')"""
    with psycopg.connect(url) as db:
        rows = db.execute(f"{query} UNION ALL {sequences}").fetchall()
    return {(table if schema == "public" else f"{schema}.{table}", name)
            for schema, table, name in rows}  # fmt: skip


def looked_at(relations: dict[str, str], *, by_form: bool = False) -> set[tuple[str, str]]:
    """Columns that checks read: those of the form of columns, or all others."""
    of_form = {check.name for check in COLUMN_CHECKS}
    checks = {name: check for name, check in CHECKS.items() if (name in of_form) == by_form}
    found = set()
    for name, columns in columns_read(checks).items():
        plain = name.removesuffix(AGAIN)
        tables = IN_STORE.get(plain, (relations.get(plain, f"tape_{plain}"),))
        found |= {(table, column) for table in tables for column in columns}
    # What was given out last is read by a statement of each store.
    found |= {("sqlite_sequence", "name"), ("sqlite_sequence", "seq")}
    return found | {("tape_global_seq", "last_value"), ("bus.outbox_id_seq", "last_value")}


def listed(reasons: Iterable[tuple[str, str]]) -> set[tuple[str, str]]:
    return {(table, column) for table, columns in reasons for column in columns.split()}


def excepted(pairs: Iterable[tuple[str, str]]) -> set[tuple[str, str]]:
    named = listed(EXCEPTIONS)
    return {pair for pair in pairs if pair in named or (pair[0], "*") in named}


@pytest.mark.parametrize("kind", ["sqlite", "migrated_postgres"])
def test_every_column_of_the_schema_is_looked_at(kind: str, request: pytest.FixtureRequest) -> None:
    url: str = request.getfixturevalue(f"{kind}_url")

    async def migrated(_store: object) -> None:
        """Opening it was enough."""

    Stores().store(url, creating=True)(migrated)
    there = sqlite_columns(url) if kind == "sqlite" else postgres_columns(url)
    read = looked_at(ON_SQLITE if kind == "sqlite" else ON_POSTGRES)
    unseen = there - read - listed(FORM) - excepted(there)
    assert not unseen, (
        f"no check of the audit looks at {sorted(unseen)}. Give the table a row in "
        "tape.ports.bulk_tables.SIDE_TABLES (a NamedTuple of its columns; the form of whole "
        "numbers, times and JSON is then looked at by itself) and name the column in the `reads` "
        "of a check in tape/pipeline/jobs/audit/checks; or add it to FORM here if nothing but its "
        "form can be wrong, or to EXCEPTIONS, with the reason"
    )


def test_exceptions_are_few_have_reasons_and_are_no_lies() -> None:
    read = looked_at(ON_SQLITE)
    assert len(EXCEPTIONS) < 25
    for (table, columns), reason in EXCEPTIONS.items():
        assert len(reason) > 20
        assert not {(table, column) for column in columns.split()} & read, table


def test_what_is_listed_for_its_form_is_looked_at_for_nothing_else() -> None:
    assert listed(FORM) <= looked_at(ON_SQLITE, by_form=True)
    assert not listed(FORM) & looked_at(ON_SQLITE)
    assert not listed(FORM) & listed(EXCEPTIONS)


class Watched(Frames):
    """Frames without rows that have what a check says it reads, and note of which kinds it asks."""

    kinds: set[str]

    def of(self, kind: str) -> DataFrame:
        self.kinds.add(kind)
        return super().of(kind)

    def entries_of(self, kind: str) -> DataFrame:
        self.kinds.add(kind)
        return super().entries_of(kind)


def without_rows(spark: SparkSession, name: str, missing: tuple[str, str] = ("", "")) -> Watched:
    """What a check says it reads, but for one column of a table."""
    read = columns_read({name: CHECKS[name]})
    columns = dict.fromkeys([*ENTRY_COLUMNS.split(), *read.pop("journal", ())])
    tables = {
        table: spark.createDataFrame(
            [], schema_of(table, [c for c in listed if (table, c) != missing])
        )
        for table, listed in read.items()
    }
    journal = spark.createDataFrame([], schema_of("journal", columns))
    frames = Watched(journal, tables, AuditScope(0, 0), keep_local=lambda frame: frame)
    frames.kinds = set()
    return frames


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", CHECKS)
def test_a_check_looks_at_no_more_than_it_says(spark: SparkSession, name: str) -> None:
    frames = without_rows(spark, name)
    assert violations(frames, [CHECKS[name]]).columns == ["check", *Violation._fields]
    assert frames.kinds <= {*CHECKS[name].inputs.kinds}


def needs(spark: SparkSession, name: str, table: str, column: str) -> bool:
    try:
        violations(without_rows(spark, name, (table, column)), [CHECKS[name]])
    except AnalysisException:
        return True
    return False


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("table", [name for name in columns_read(CHECKS) if name != "journal"])
def test_what_is_said_to_be_read_some_check_cannot_do_without(
    spark: SparkSession, table: str
) -> None:
    for column in columns_read(CHECKS)[table]:
        sayers = [
            name
            for name, check in CHECKS.items()
            if column in check.inputs.reads.get(table, "").split()
        ]
        assert any(needs(spark, name, table, column) for name in sayers), (column, sayers)
