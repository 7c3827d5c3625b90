"""The canonical subject of everything Tape writes down, one function per row of the table."""

from functools import lru_cache

from tape.model.subject import build_subject, encode_segment

SHOWN_SUBJECT = 128


@lru_cache(4096)
def _prefix(kind: str, verb: str, *dimensions: str) -> str:
    """For the hot ones: all but their last dimension are few and repeat."""
    return build_subject(kind, verb, *dimensions) + "/"


def run_status(status: str, app: str, user: str, session: str, run_id: str) -> str:
    """`status` is the run's in lower case, or cancel_requested."""
    return _prefix("run", status, app, user, session) + encode_segment(run_id)


def decision(verb: str, run_id: str, decision_index: int) -> str:
    """`verb` is recorded, drawn or failed."""
    return build_subject("decision", verb, run_id, str(decision_index))


def effect(verb: str, tool: str, run_id: str) -> str:
    """`verb` is pending, confirmed, failed, unknown, reconciled, claimed or attempted."""
    return _prefix("effect", verb, tool) + encode_segment(run_id)


def obligation(verb: str, kind: str, run_id: str) -> str:
    """`verb` is registered, or the status the obligation was resolved to."""
    return build_subject("obligation", verb, kind, run_id)


def gate_waiting(gate: str, run_id: str) -> str:
    return build_subject("gate", "waiting", gate, run_id)


def gate_released(gate: str, run_id: str) -> str:
    return build_subject("gate", "released", gate, run_id)


def value_changed(namespace: str, key: str) -> str:
    return build_subject("value", "changed", namespace, key)


def value_deleted(namespace: str, key: str) -> str:
    return build_subject("value", "deleted", namespace, key)


def session(verb: str, app: str, user: str, session_id: str) -> str:
    """`verb` is created or deleted; an appended event has a subject of its own."""
    return build_subject("session", verb, app, user, session_id)


def session_event_appended(app: str, user: str, session_id: str) -> str:
    return build_subject("event", "appended", app, user, session_id)


def event_recorded(event_type: str, entity_type: str, entity_id: str) -> str:
    return _prefix("event", "recorded", event_type, entity_type) + encode_segment(entity_id)


def task_subject(verb: str, reaction_id: str, task_id: str) -> str:
    """`verb` is dead_lettered, failed, replayed or dropped."""
    return build_subject("task", verb, reaction_id, task_id)


def drainer_halted(drainer: str) -> str:
    return build_subject("drainer", "halted", drainer)


def drainer_resumed(drainer: str) -> str:
    return build_subject("drainer", "resumed", drainer)


def drainer_skipped(drainer: str) -> str:
    return build_subject("drainer", "skipped", drainer)


def drainer_event_subscription(verb: str, drainer: str, subscription_id: str) -> str:
    """`verb` is subscribed or unsubscribed."""
    return build_subject("drainer", verb, drainer, subscription_id)


def subscription(verb: str, name: str) -> str:
    """Lifecycle, message and circuit events of a declared subscription."""
    return build_subject("subscription", verb, name)


def timer(verb: str, kind: str, run_id: str) -> str:
    """`verb` is set, fired or cancelled."""
    return build_subject("timer", verb, kind, run_id)


def budget(verb: str, run_id: str) -> str:
    """`verb` is set or charged."""
    return build_subject("budget", verb, run_id)


def relay(verb: str, relay_name: str) -> str:
    """`verb` is elected or resigned."""
    return build_subject("relay", verb, relay_name)


def wallet(verb: str, alias: str) -> str:
    """`verb` is put, rotated, retired, deleted or rewrapped."""
    return build_subject("wallet", verb, alias)


def outbox_skipped(bus_subject: str, row_id: int) -> str:
    """The row may be one that somebody put there by hand, with any text for a subject."""
    return build_subject("outbox", "skipped", bus_subject[:SHOWN_SUBJECT], str(row_id))
