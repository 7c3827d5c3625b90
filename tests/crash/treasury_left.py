"""What a treasury run has left behind, read from its database and its counterparties, and judged.

None of the code that made it is used: the rules that its journal must keep are written here anew.
"""

import json
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any, NamedTuple
from urllib.request import urlopen

import psycopg

from tape.stores.by_url import sqlite_path

TERMINAL, FAILED = 4, 5
CONFIRMED, COMPENSATED, ALONE = 2, 3, -1
ROUTES = {"sweep": "bank.wire", "hedge": "broker.order", "pay_fee": "bank.plain_wire",
          "post_ledger": "ledger.batch"}  # fmt: skip
BY_DRIVER = {
    "decision recorded",
    "decision drawn",
    "gate waiting",
    "timer set",
    "value changed",
    "event recorded",
}
SETTLES = {"confirmed", "failed", "unknown"}


class Line(NamedTuple):
    """An entry of the run's journal; `what` is its kind and verb."""

    global_seq: int
    seq: int
    ts_ms: int
    what: str
    payload: Any


class Left(NamedTuple):
    run_id: str
    status: int
    seq_cursor: int
    fencing_token: int
    lease_owner: str
    outcome: Any
    journal: Sequence[Line]
    effects: dict[str, int]
    """The status of each, by its key."""
    obligations: Sequence[tuple[str, int, int]]
    """Kind, status and what lies below, oldest first."""
    books: dict[str, list[Any]]
    calls: Sequence[dict[str, Any]]
    balances: dict[str, int]

    def __str__(self) -> str:
        """Its journal and the calls, for whoever looks into what is wrong."""
        told = ("tool_name", "owner", "claimer", "attempt", "status", "fencing_token", "kind")
        lines = [
            f"{line.seq} {line.ts_ms % 100_000} {line.what} "
            + " ".join(f"{name}={line.payload[name]}" for name in told if name in line.payload)
            for line in self.journal
        ]
        return "\n".join([*lines, f"outcome {self.outcome}", *map(str, self.calls)])

    def those(self, *whats: str) -> list[Line]:
        return [line for line in self.journal if line.what in whats]


Look = Callable[[str], list[tuple[Any, ...]]]
"""What a statement finds."""


@contextmanager
def looking(url: str) -> Iterator[Look]:
    """At a database, over one connection: a new one for each look costs more than the look."""
    if url.startswith("postgres"):
        with psycopg.connect(url, autocommit=True) as postgres:
            yield lambda statement: postgres.execute(statement.encode()).fetchall()
    else:
        with closing(sqlite3.connect(sqlite_path(url), timeout=30)) as db:
            yield lambda statement: db.execute(statement).fetchall()


def read_left(look: Look, treasury_url: str) -> Left:
    ((run_id, status, seq_cursor, token, lease_owner, outcome),) = look(
        "SELECT run_id, status, seq_cursor, fencing_token, lease_owner, outcome_json "
        "FROM tape_runs",
    )
    entries = look(
        "SELECT global_seq, seq, ts_ms, subject, payload_json FROM tape_journal "
        "WHERE run_id IS NOT NULL ORDER BY seq",
    )
    effects = look("SELECT idempotency_key, status FROM tape_effects")
    obligations = look("SELECT kind, status, below FROM tape_obligations ORDER BY seq")
    return Left(
        run_id, status, seq_cursor, token, lease_owner, json.loads(outcome or "null"),
        [Line(global_seq, seq, ts_ms, " ".join(subject.split("/")[2:4]), json.loads(payload))
         for global_seq, seq, ts_ms, subject, payload in entries],
        dict(effects),
        [(kind, status, below) for kind, status, below in obligations],
        _got(treasury_url, "books"), _got(treasury_url, "calls"),
        _got(treasury_url, "bank/balances"),
    )  # fmt: skip


def _got(treasury_url: str, path: str) -> Any:
    with urlopen(f"{treasury_url}/{path}", timeout=30) as answer:
        return json.load(answer)


def check_journal(left: Left) -> None:
    """Numbers without a gap, one writer at a time, one outcome for each effect, an end."""
    lines = left.journal
    assert [line.seq for line in lines] == list(range(1, left.seq_cursor + 1)), "a gap"
    numbers = [line.global_seq for line in lines]
    assert numbers == sorted(set(numbers)), "the run's order is not the journal's"
    _check_leases(left)
    inline = {}
    for line in left.those("effect pending"):
        if "request" in line.payload:
            key = line.payload["idempotency_key"]
            assert key not in inline, f"{key} was begun twice"
            inline[key] = line.payload["dispatch_mode"] == "inline"
    assert inline.keys() == left.effects.keys()
    for key in inline:
        _check_effect(key, [line for line in lines if line.payload.get("idempotency_key") == key])
    for what in ("gate waiting", "gate released", "timer set", "timer fired"):
        assert len(left.those(what)) == 1, what
    _check_obligations(left)


class _Holder(NamedTuple):
    owner: str
    token: int
    until_ms: int
    """At the earliest: renewals are not on the journal."""


def _check_leases(left: Left) -> None:
    """Whatever a driver writes lies between a grant and the next, under that grant's token."""
    holder: _Holder | None = None
    last = 0
    owners: list[str] = []
    inline = {
        line.payload["idempotency_key"]
        for line in left.those("effect pending")
        if line.payload.get("dispatch_mode") == "inline"
    }
    for line in left.journal:
        payload = line.payload
        if line.what == "run running":
            token = payload["fencing_token"]
            assert token == last + 1, f"token {token} comes after {last}"
            if holder is not None and holder.owner != payload["owner"]:
                assert line.ts_ms >= holder.until_ms, f"taken at {line.ts_ms} from {holder}"
            holder = _Holder(payload["owner"], token, payload["lease_expires_at_ms"])
            last = token
            owners.append(holder.owner)
        elif line.what in ("run waiting", "run runnable") and "waiting_on" in payload:
            assert holder is not None, f"released by nobody: {line}"
            assert payload["fencing_token"] == holder.token, f"{holder} and {line}"
            holder = None
        elif line.what in ("run terminal", "run compensating"):
            assert holder is not None, f"ended by nobody: {line}"
            assert payload.get("fencing_token", holder.token) == holder.token
            holder = None
        elif line.what in BY_DRIVER or _is_drivers(line, inline):
            assert holder is not None, f"nobody held the lease when {line} was written"
    assert last == left.fencing_token
    assert (holder, left.lease_owner) == (None, ""), "the lease is still held"
    assert owners == sorted(owners), f"a worker that was dead has had the lease: {owners}"


def _is_drivers(line: Line, inline: set[str]) -> bool:
    kind, verb = line.what.split(" ")
    if kind != "effect" or "request" in line.payload:
        return kind == "effect"
    return verb in SETTLES and line.payload["idempotency_key"] in inline


def _check_effect(key: str, lines: Sequence[Line]) -> None:
    """pending, then doubt perhaps and its end, then one outcome and nothing behind it."""
    state = ""
    unsafe = lines[0].payload["semantics"] == "non_idempotent"
    dispatched = False
    for line in lines:
        verb = line.what.split(" ")[1]
        assert state not in ("confirmed", "failed"), f"{key}: {line} after its outcome"
        if verb == "pending":
            assert state == "", f"{key}: begun while {state}"
            state = "pending"
        elif verb == "claimed":
            again = unsafe and dispatched and state == "pending"
            assert not again, f"{key} was dispatched a second time unseen: {line}"
            dispatched = state == "pending"
        elif verb == "attempted":
            dispatched = False  # nothing was done under that claim
        elif verb == "reconciled":
            assert state == "unknown", f"{key}: {line} while {state}"
            state, dispatched = line.payload["status"], False
        elif verb in SETTLES:
            assert state == "pending", f"{key}: {line} while {state}"
            state = verb
    assert state in ("confirmed", "failed"), f"{key} is left {state}"


def _check_obligations(left: Left) -> None:
    """Registered in the transaction that confirmed the effect: no entry of others in between."""
    for line in left.those("obligation registered"):
        before = left.journal[: line.seq - 1]
        while before[-1].what in ("obligation registered", "run runnable"):
            before = before[:-1]
        assert before[-1].what in ("effect confirmed", "effect reconciled"), line
        assert before[-1].payload["idempotency_key"] == line.payload["effect_key"], line
    undone = [
        line.payload["obligation_seq"]
        for line in left.those("obligation compensated")
        if not line.payload["kind"].startswith("duplicate:")
    ]
    assert undone == sorted(undone, reverse=True), f"not undone newest first: {undone}"
    assert len(undone) == len(set(undone)), f"undone twice: {undone}"


def check_ended(left: Left, what: str) -> None:
    """That is the last entry, but for what stands alone, and there is no other end."""
    ends = ("run terminal", "run failed", "run cancelled", "run stuck")
    (end,) = left.those(*ends)
    assert end.what == what, end
    behind = [line.what for line in left.journal[end.seq :]]
    alone = any(below == ALONE for _kind, _status, below in left.obligations)
    allowed = {"obligation committed", "obligation compensated"} if alone else set()
    assert set(behind) <= allowed, f"after the end: {behind}"


def check_done_once(left: Left) -> None:
    """However often each was asked for, it was done once; the fee was asked for once."""
    for tool, route in ROUTES.items():
        (key,) = (key for key in left.effects if f"/{tool}/" in key)
        outcomes = Counter(
            call["outcome"] for call in left.calls if (call["route"], call["key"]) == (route, key)
        )
        if left.effects[key] == CONFIRMED:
            assert outcomes["did"] == 1, f"{tool}: {outcomes}"
        else:
            assert outcomes["did"] == 0, f"{tool}: {outcomes}"
        if tool == "pay_fee":
            assert outcomes.total() == 1, f"the fee was asked for again: {outcomes}"
    did = Counter((call["route"], call["key"]) for call in left.calls if call["outcome"] == "did")
    assert max(did.values()) == 1, f"done more than once: {did}"


def check_settled(left: Left, cents: int, fee_cents: int, *, twice: bool = False) -> None:
    """One wire, one hedge, one fee and one batch; a second fee has gone back."""
    check_ended(left, "run terminal")
    assert left.status == TERMINAL
    assert set(left.effects.values()) == {CONFIRMED}, left.effects
    sweep, fee, *others = left.books["wires"]
    assert (sweep["cents"], sweep["to"], sweep["reversed"]) == (cents, "reserve", False)
    assert (fee["cents"], fee["to"], fee["reversed"]) == (fee_cents, "supplier", False)
    assert [(wire["cents"], wire["reversed"]) for wire in others] == [(fee_cents, True)] * twice
    (order,), (batch,) = left.books["orders"], left.books["batches"]
    assert (order["cents"], order["cancelled"]) == (cents, False)
    assert {line["account"]: line["cents"] for line in batch["lines"]} == {
        "reserve": cents, "fees": fee_cents, "operating": -cents - fee_cents,
    }  # fmt: skip
    assert left.outcome == {
        "swept_cents": cents, "wire": sweep["id"], "order": order["id"], "fee": fee["id"],
        "batch": batch["id"],
    }  # fmt: skip
    for what in ("event recorded", "value changed"):
        assert len(left.those(what)) == 1, what
    alone = [(kind, status) for kind, status, below in left.obligations if below == ALONE]
    assert alone == [("duplicate:return_second_fee", COMPENSATED)] * twice
    _check_balances(left, cents, fee_cents)


def check_undone(left: Left, cents: int, fee_cents: int) -> None:
    """One wire, one hedge and one fee, each taken back once, and no batch."""
    check_ended(left, "run failed")
    assert left.status == FAILED
    sweep, fee = left.books["wires"]
    assert (sweep["cents"], sweep["reversed"]) == (cents, True)
    assert (fee["cents"], fee["reversed"]) == (fee_cents, True)
    (order,) = left.books["orders"]
    assert order["cancelled"]
    assert left.books["batches"] == []
    assert [status for _kind, status, _below in left.obligations] == [COMPENSATED] * 3
    assert [line.payload["kind"] for line in left.those("obligation compensated")] == [
        "return_fee", "cancel_hedge", "reverse_wire",
    ]  # fmt: skip
    _check_balances(left, 0, 0)


def _check_balances(left: Left, cents: int, fee_cents: int) -> None:
    assert left.balances == {
        "operating": 5_000_000_00 - cents - fee_cents,
        "reserve": 1_000_000_00 + cents,
        "supplier": fee_cents,
    }
