"""Writes entries and rows past all rules, by SQL, into a store of either kind."""

import json
import sqlite3
from itertools import count
from typing import Any

import psycopg

from tape.journal.ids import UlidFactory
from tape.model import subjects
from tape.model.entry import Entry
from tape.model.run import RunName

IDS = UlidFactory()
APP = "planted"
COLUMNS = ", ".join(Entry._fields)
Line = tuple[str, str, dict[str, Any]]
"""Kind, subject with `{run}` for the run's id, payload."""


class Field:
    """The store, and what should be found in it by the time all is planted."""

    def __init__(self, url: str, now_ms: int) -> None:
        self.is_sqlite = url.startswith("sqlite:")
        self.db: Any
        if self.is_sqlite:
            self.db = sqlite3.connect(url.removeprefix("sqlite:"), isolation_level=None)
        else:
            self.db = psycopg.connect(url, autocommit=True)
        self.outbox = "bus_outbox" if self.is_sqlite else "bus.outbox"
        self.processed = "bus_processed" if self.is_sqlite else "bus.processed"
        for index in ("tape_journal_run", "tape_journal_key", f"{self.outbox}_entry_key"):
            self.db.execute(f"DROP INDEX {index}")
        self.now_ms = now_ms
        self.head: int
        (self.head,) = self.db.execute("SELECT max(global_seq) FROM tape_journal").fetchone()
        self.before = self.head
        self.expected: dict[str, set[str]] = {}

    def expect(self, check: str, identity: str) -> None:
        self.expected.setdefault(check, set()).add(identity)

    def sql(self, text: str, *params: Any) -> None:
        if not self.is_sqlite and params:
            text = text.replace("%", "%%").replace("?", "%s")
        changed = self.db.execute(text, params if params or self.is_sqlite else None).rowcount
        assert changed > 0, (text, params)

    def one(self, text: str) -> Any:
        """The first column of the first row."""
        return self.db.execute(text).fetchone()[0]

    def set_sequence(self, name: str, last: int) -> None:
        """Say that this was the last number given out: `journal` or `outbox`."""
        if self.is_sqlite:
            table = {"journal": "tape_journal", "outbox": "bus_outbox"}[name]
            self.sql("UPDATE sqlite_sequence SET seq = ? WHERE name = ?", last, table)
        else:
            sequence = {"journal": "tape_global_seq", "outbox": "bus.outbox_id_seq"}[name]
            self.sql("SELECT setval(?, ?)", sequence, last)

    def entry(self, kind: str, subject: str, payload: Any = None, **columns: Any) -> int:
        self.head += 1
        text = payload if isinstance(payload, str) else json.dumps(payload)
        row = dict.fromkeys(Entry._fields, "") | {
            "global_seq": self.head, "run_id": None, "seq": None, "kind": kind,
            "subject": subject, "payload_json": text, "schema_version": 1, "ts_ms": self.now_ms,
            "event_id": next(IDS), "occurred_at_ms": self.now_ms, "idempotency_key": None,
        } | columns  # fmt: skip
        marks = ", ".join("?" * len(row))
        self.sql(f"INSERT INTO tape_journal ({COLUMNS}) VALUES ({marks})", *row.values())
        return self.head

    def event(self, event_type: str = "planted", **columns: Any) -> int:
        subject = subjects.event_recorded(event_type, "", "")
        return self.entry(
            "event", columns.pop("subject", subject), columns.pop("payload", None),
            event_type=event_type, **columns,
        )  # fmt: skip

    def run(self, check: str, *lines: Line, seqs: tuple[int, ...] = (), name: str = "") -> str:
        """A run with these lines, in which just that check finds something."""
        run_id = name or RunName(APP, "", "", check).run_id
        self.expect(check, run_id)
        numbers = iter(seqs or count(1))
        for kind, subject, payload in lines:
            own = {"invocation_id": check} if kind == "run" else {}
            self.entry(
                kind, subject.replace("%7Brun%7D", run_id), own | payload,
                run_id=run_id, seq=next(numbers),
            )  # fmt: skip
        return run_id

    def row(self, table: str, **columns: Any) -> None:
        marks = ", ".join("?" * len(columns))
        self.sql(f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks})", *columns.values())


RUN = "{run}"


def status(verb: str, **details: Any) -> Line:
    payload = {"app_name": APP, "user_id": "", "session_id": "", "pool": "shared", **details}
    return "run", subjects.run_status(verb, APP, "", "", RUN), payload


def granted(token: int, owner: str = "a", until_ms: int = 0, **details: Any) -> Line:
    lease = {"owner": owner, "fencing_token": token, "lease_expires_at_ms": until_ms}
    return status("running", **lease, **details)


def decision(index: int) -> Line:
    return "decision", subjects.decision("recorded", RUN, index), {"decision_index": index}


def effect(verb: str, key: str = "k", **details: Any) -> Line:
    payload = {"idempotency_key": key, "tool_name": "tool", "decision_index": 0, **details}
    return "effect", subjects.effect(verb, "tool", RUN), payload


def begun(key: str = "k", semantics: str = "idempotent", mode: str = "inline", **rest: Any) -> Line:
    terms = {"semantics": semantics, "dispatch_mode": mode, "connector": "tool", **rest}
    return effect("pending", key, **terms)


def owed(verb: str, number: int, effect_key: str = "k", kind: str = "undo") -> Line:
    payload = {"obligation_seq": number, "effect_key": effect_key, "kind": kind, "attempts": 0}
    return "obligation", subjects.obligation(verb, kind, RUN), payload


def gate(verb: str) -> Line:
    named = subjects.gate_waiting if verb == "waiting" else subjects.gate_released
    return "gate", named("g", RUN), {"gate_name": "g"}


def timer(verb: str, fire_at_ms: int = 1) -> Line:
    payload = {"timer_id": "t", "kind": "redrive", "fire_at_ms": fire_at_ms}
    return "timer", subjects.timer(verb, "redrive", RUN), payload


def budget(verb: str, spent: float, charge: str = "", cap: float = 0.0, usd: float = 0.0) -> Line:
    payload = {"usd_cap": cap, "token_cap": 0, "usd_spent": spent, "tokens_spent": 0,
               "last_charge": charge, "usd": usd, "tokens": 0}  # fmt: skip
    return "budget", subjects.budget(verb, RUN), payload


def changed(key: str, version: int, value: str, prev: str, **fields: Any) -> Line:
    new = {"namespace": "p", "key": key, "value_json": value, "version": version, "ts_ms": 1,
           "writer": "", "deleted": False, **fields}  # fmt: skip
    payload = {"value": new, "prev_version": version - 1, "prev_value_json": prev}
    return "value", subjects.value_changed("p", key), payload
