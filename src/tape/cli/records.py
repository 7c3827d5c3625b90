"""The records of Tape as JSON objects: the same names everywhere, payloads as JSON and not text."""

from typing import Any

from tape.model.drainer import DrainerState, DrainReport
from tape.model.entry_json import entry_record, raw_json
from tape.model.event_subscription import EventSubscription
from tape.model.reaction import HandlerKind, Reaction, ReactionState
from tape.model.run import STATUS_WORDS, Run
from tape.model.session import Session, SessionEvent
from tape.model.task import Task, TaskStatus
from tape.model.value import Value, ValueChange
from tape.reactions.settings import shown_target


def value_record(value: Value) -> dict[str, Any]:
    record = value._asdict()
    record["value"] = raw_json(record.pop("value_json"))
    return record


def change_record(change: ValueChange) -> dict[str, Any]:
    """A value's record with what was there before it."""
    return value_record(change.value) | {
        "prev_version": change.prev_version,
        "prev_value": raw_json(change.prev_value_json),
    }


def session_record(session: Session) -> dict[str, Any]:
    record = session._asdict()
    record["state"] = raw_json(record.pop("state_json"))
    return record


def session_event_record(event: SessionEvent) -> dict[str, Any]:
    record = event._asdict()
    for name in ("content", "actions"):
        record[name] = raw_json(record.pop(f"{name}_json"))
    return record


def reaction_record(reaction: Reaction) -> dict[str, Any]:
    """Its kind by name, and its target without what may be a secret."""
    record = reaction._asdict()
    del record["deleted"]
    record["handler_kind"] = HandlerKind(reaction.handler_kind).name.lower()
    record["publish_target"] = shown_target(reaction.publish_target)
    return record


def reaction_state_record(state: ReactionState, head: int) -> dict[str, Any]:
    """With its progress, and how many entries it has yet to consider."""
    progress = state._asdict()
    record = reaction_record(progress.pop("reaction"))
    return record | progress | {"lag": max(0, head - state.position)}


def task_record(task: Task) -> dict[str, Any]:
    record: dict[str, Any] = task._asdict()
    record["status"] = TaskStatus(task.status).name.lower()
    record["entry"] = entry_record(task.entry)
    return record


def subscription_record(row: EventSubscription) -> dict[str, Any]:
    record: dict[str, Any] = row._asdict()
    record["input_mapper"] = raw_json(row.input_mapper)
    return record


def drainer_record(state: DrainerState) -> dict[str, Any]:
    progress = state._asdict()
    record: dict[str, Any] = progress.pop("drainer")._asdict()
    record["attempts"] = raw_json(record.pop("attempts_json"))
    return record | progress | {"failed_attempts": state.failed_attempts}


def report_record(report: DrainReport) -> dict[str, Any]:
    triggered = [run._asdict() for run in report.triggered]
    return report._asdict() | {"triggered": triggered}


def run_record(run: Run) -> dict[str, Any]:
    """Its statuses by name; `ending` is empty unless it is being unwound."""
    record: dict[str, Any] = run._asdict()
    record["status"] = STATUS_WORDS[run.status]
    record["ending"] = STATUS_WORDS.get(run.ending, "")
    record["outcome"] = raw_json(record.pop("outcome_json"))
    return record
