"""What was taken under larger limits than the defaults is healthy."""

from typing import Any

import pyarrow as pa

from tape.model.entry import Entry
from tape.pipeline.jobs.audit.matching import without_match
from tape.pipeline.jobs.audit.recheck import reactions_not_compiling, subscriptions_not_compiling
from tape.settings import Limits

LONG = " || ".join(["payload.n >= 1"] * 400)
assert len(LONG) > Limits().predicate_bytes


def batch(**columns: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([columns])


def test_a_long_predicate_of_a_reaction_can_be_understood() -> None:
    rows = batch(reaction_id="r", subject_pattern="/**", predicate_cel=LONG)
    (found,) = reactions_not_compiling(iter([rows]))
    assert found.to_pylist() == []


def test_a_long_subscription_can_be_understood() -> None:
    mapper = '{"a": "literal:' + "x" * Limits().payload_bytes + '"}'
    glob = "a." * Limits().name_bytes + "b"
    rows = batch(subscription_id="s", event_type_glob=glob, filter_expr=LONG, input_mapper=mapper)
    (found,) = subscriptions_not_compiling(iter([rows]))
    assert found.to_pylist() == []


def test_a_long_predicate_is_held_to_the_entry_of_its_task() -> None:
    entry = dict.fromkeys(Entry._fields, "") | {
        "global_seq": 7, "seq": 0, "schema_version": 1, "ts_ms": 1, "occurred_at_ms": 1,
        "payload_json": '{"n": 1}', "subject": "/tape/event/recorded/a/_/_", "kind": "event",
    }  # fmt: skip
    rows = batch(**entry, task_id="r/0/7", predicate_cel=LONG)
    (found,) = without_match(iter([rows]))
    assert found.to_pylist() == []
