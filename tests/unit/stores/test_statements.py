"""The two dialects say the same things: same names, each with its purpose."""

import re

import pytest

from tape.model.move import KNOWN
from tape.model.outbox import OUTBOX_IDS, OUTBOX_KEYS
from tape.model.task import SOURCES
from tape.stores.rows import TABLES
from tape.stores.sqlite.connection import _widened
from tape.stores.statements import PREDICATE, load_statements

SQLITE = load_statements("tape.stores.sqlite")
POSTGRES = load_statements("tape.stores.postgres")

ONLY_POSTGRES = {
    "hold_pruning": "in SQLite whoever writes is alone",
    "extend_runs": "one round trip less matters only where there are round trips",
    "accept_remembered": "the same",
    "make_incoming": "SQLite has no COPY, and nobody to wait for while one goes on",
    "append_incoming": "the same",
    "find_committed": "a commit to a local file has an outcome; one over a network may not",
    "claim_tasks": "one round trip to a function; SQLite has no functions and no round trips",
    "make_step": "the same",
    "measure_rows": "a part of scan_packed",
    "scan_packed": "a field costs much on its way out of another process, and little within one",
    "queue_tasks": "the same",
    "hold_processed": "in SQLite whoever makes a table is alone",
    "create_processed_schema": "SQLite has no schemas",
    "read_clock": "a SQLite store goes by the clock of its process",
    "take_lead": "in SQLite the lead is a lease in the row of the relay",
    "take_pruning": "in SQLite whoever prunes has the file's one write lock",
}
ONLY_SQLITE = {
    "advance_runs": "Postgres sees for itself that a column in an index is as it was",
    "find_claimable": "a part of claim_tasks",
    "read_room": "a part of claim_tasks",
    "read_due_tasks": "a part of claim_tasks",
    "read_shards": "a part of claim_tasks",
    "claim_due_tasks": "a part of claim_tasks",
    "read_fresh_shards": "a part of claim_tasks",
    "read_fresh_tasks": "a part of claim_tasks",
    "claim_fresh_tasks": "a part of claim_tasks",
    "count_claimed": "a part of claim_tasks",
    "check_matcher": "a part of make_step",
    "advance_matcher": "a part of make_step",
    "advance_cursors": "a part of make_step",
    "find_known_tasks": "a part of make_step",
    "find_superseded_tasks": "a part of make_step",
    "count_coalesced": "a part of make_step",
    "find_moved_cursors": "a part of queue_tasks",
    "find_overtaken_tasks": "a part of queue_tasks",
    "count_matched": "a part of queue_tasks",
    "count_tasks": "a part of make_step and, in SQLite, of complete_tasks",
}
# Both are entries: keys that were used are written with them, sources are only read.
NOT_SAVED = (KNOWN, SOURCES, OUTBOX_IDS, OUTBOX_KEYS)


def test_both_dialects_have_the_same_statements() -> None:
    assert set(POSTGRES) - set(SQLITE) == set(ONLY_POSTGRES)
    assert set(SQLITE) - set(POSTGRES) == set(ONLY_SQLITE)


@pytest.mark.parametrize("dialect", [SQLITE, POSTGRES], ids=["sqlite", "postgres"])
def test_each_statement_says_what_it_is_for(dialect: dict[str, str]) -> None:
    for name, text in dialect.items():
        purpose, _, statement = text.partition("\n")
        assert re.fullmatch(r"-- [A-Z].*[.]", purpose), f"{name} has no purpose: {purpose}"
        assert statement.count(";") == 1, f"{name} is not one statement"
        assert statement.rstrip().endswith(";")


@pytest.mark.parametrize("dialect", [SQLITE, POSTGRES], ids=["sqlite", "postgres"])
def test_every_table_a_move_may_touch_can_be_loaded_and_saved(dialect: dict[str, str]) -> None:
    for table in TABLES:
        assert f"load_{table.name}" in dialect
        if table not in NOT_SAVED:
            assert f"save_{table.name}" in dialect
    for child in TABLES:
        if child.parent is not None:
            assert f"delete_{child.parent.name}" in dialect


@pytest.mark.parametrize("dialect", [SQLITE, POSTGRES], ids=["sqlite", "postgres"])
def test_a_predicate_has_one_place_to_go(dialect: dict[str, str]) -> None:
    places = {name: text.count(PREDICATE) for name, text in dialect.items() if PREDICATE in text}
    names = ("read_entries", "scan_entries", "scan_packed")
    assert places == {name: 1 for name in names if name in dialect}


@pytest.mark.parametrize(
    "name",
    ["append_entries", "recall_entries", *sorted(n for n in SQLITE if n.startswith("save_"))],
)
def test_an_insert_takes_many_rows(name: str) -> None:
    """A statement that could not be widened would take the values of the first row and fail."""
    parameters = SQLITE[name].count("?")
    assert parameters
    assert _widened(SQLITE[name], 3).count("?") == 3 * parameters
    assert _widened(SQLITE[name], 1) == SQLITE[name]
