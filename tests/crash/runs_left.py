"""What errands have left behind, read from the database and the counterparty's book, and judged.

None of the code that made it is used: the rules that a run's journal must keep are written here
anew. A run has one writer at a time: between a grant of its lease and the next, everything that its
driver wrote bears the mark of that grant's owner.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from tests.crash.book import Noted
from tests.crash.errands import Errand, child_of
from tests.crash.watching import query

TERMINAL, CONFIRMED = 4, 2
RUNS = """
SELECT run_id, invocation_id, status, seq_cursor, fencing_token, lease_owner, parent_run_id,
  outcome_json FROM tape_runs
"""
ENTRIES = """
SELECT run_id, global_seq, seq, ts_ms, subject, payload_json FROM tape_journal
WHERE run_id IS NOT NULL ORDER BY global_seq
"""
LEFT_OVER = """
SELECT (SELECT count(*) FROM tape_runs WHERE status <> 4 OR lease_owner <> ''),
  (SELECT count(*) FROM tape_effects WHERE status <> 2 OR dispatch_claimed_by <> ''),
  (SELECT count(*) FROM tape_timers WHERE NOT fired AND NOT cancelled),
  (SELECT count(*) FROM tape_gates WHERE NOT released)
"""
BY_DRIVER = {"decision recorded", "decision drawn", "gate waiting", "timer set"}
OUTCOMES = {"confirmed", "failed", "unknown"}


class Line(NamedTuple):
    """An entry of a run's journal; `what` is its kind and verb."""

    global_seq: int
    seq: int
    ts_ms: int
    what: str
    payload: Any


class Left(NamedTuple):
    run_id: str
    invocation_id: str
    status: int
    seq_cursor: int
    fencing_token: int
    lease_owner: str
    parent_run_id: str
    outcome: Any
    journal: Sequence[Line] = ()

    def those(self, *whats: str) -> list[Line]:
        return [line for line in self.journal if line.what in whats]


class Holder(NamedTuple):
    owner: str
    token: int
    until_ms: int
    """At the earliest: renewals are not on the journal."""


def read_runs(url: str) -> list[Left]:
    lines = defaultdict(list)
    for run_id, global_seq, seq, ts_ms, subject, payload in query(url, ENTRIES):
        what = " ".join(subject.split("/")[2:4])
        lines[run_id].append(Line(global_seq, seq, ts_ms, what, json.loads(payload)))
    return [
        Left(*row)._replace(outcome=json.loads(row[-1] or "null"), journal=lines[row[0]])
        for row in query(url, RUNS)
    ]


def check_legal(run: Left) -> int:
    """Numbers without a gap, one writer at a time, one outcome for each effect, one end; how often
    the run was taken from a driver that had not let go of it.
    """
    lines = run.journal
    assert [line.seq for line in lines] == list(range(1, run.seq_cursor + 1)), "a gap"
    takeovers = check_one_writer(run)
    _check_effects(run)
    for what, name in (("gate waiting", "gate_name"), ("gate released", "gate_name"),
                       ("timer set", "timer_id"), ("timer fired", "timer_id")):  # fmt: skip
        names = [line.payload[name] for line in run.those(what)]
        assert len(names) == len(set(names)), f"{what} twice: {names}"
    ends = run.those("run terminal", "run failed", "run cancelled", "run stuck")
    assert [end.what for end in ends] == ["run terminal"], f"{run.run_id}: {ends}"
    assert lines[-1] == ends[0], f"after the end of {run.run_id}: {lines[-1]}"
    return takeovers


def check_one_writer(run: Left) -> int:
    """See the top of this module; how many takeovers there were."""
    holder: Holder | None = None
    token = takeovers = 0
    outbox = _in_outbox(run)
    for line in run.journal:
        payload = line.payload
        if line.what == "run running":
            if holder is not None:
                early = line.ts_ms < holder.until_ms and payload["owner"] != holder.owner
                assert not early, f"taken at {line.ts_ms} from {holder}"
                takeovers += 1
            assert payload["fencing_token"] == token + 1, f"{line} after token {token}"
            token += 1
            holder = Holder(payload["owner"], token, payload["lease_expires_at_ms"])
        elif line.what in ("run waiting", "run runnable", "run terminal"):
            if "fencing_token" in payload:
                assert holder is not None, f"released by nobody: {line}"
                assert payload["fencing_token"] == holder.token, f"{holder} has not written {line}"
                holder = None
        elif _is_drivers(line, outbox):
            assert holder is not None, f"nobody held the lease when {line} was written"
            by = _mark(line)
            assert by in ("", holder.owner), f"{by} has written {line} under the lease of {holder}"
    assert token == run.fencing_token
    assert (holder, run.lease_owner) == (None, ""), f"the lease is still held by {holder}"
    return takeovers


def _is_drivers(line: Line, outbox: set[str]) -> bool:
    kind, verb = line.what.split(" ")
    if kind != "effect":
        return line.what in BY_DRIVER
    if "request" in line.payload:
        return True
    return verb in OUTCOMES and line.payload["idempotency_key"] not in outbox


def _mark(line: Line) -> str:
    """Who has written it, if it says so."""
    response = line.payload.get("response")
    return response.get("by", "") if isinstance(response, dict) else ""


def _in_outbox(run: Left) -> set[str]:
    return {
        line.payload["idempotency_key"]
        for line in run.those("effect pending")
        if line.payload["dispatch_mode"] == "outbox"
    }


def _check_effects(run: Left) -> None:
    by_key = defaultdict(list)
    for line in run.journal:
        if line.what.startswith("effect "):
            by_key[line.payload["idempotency_key"]].append(line)
    for key, lines in by_key.items():
        _check_effect(key, lines)


def _check_effect(key: str, lines: Sequence[Line]) -> None:
    """Begun once, then doubt perhaps and its end, then confirmed once, and nothing behind it. What
    comes of a claim bears the mark of the claimer.
    """
    state = claimer = ""
    dispatched = False
    for line in lines:
        verb = line.what.split(" ")[1]
        assert state != "confirmed", f"{key}: {line} after its outcome"
        if verb == "pending":
            assert state == "", f"{key}: begun while {state}"
            state = "pending"
        elif verb == "claimed":
            assert not (dispatched and state == "pending"), f"{key}: dispatched again unseen"
            claimer, dispatched = line.payload["claimer"], state == "pending"
        elif verb == "attempted":
            dispatched = False  # whoever says so has not begun with it
        elif verb == "reconciled":
            assert state == "unknown", f"{key}: {line} while {state}"
            state, dispatched = line.payload["status"], False
        elif verb in OUTCOMES:
            assert state == "pending", f"{key}: {line} while {state}"
            state = verb
        if claimer:
            assert _mark(line) in ("", claimer), f"{line} under the claim of {claimer}"
    assert state == "confirmed", f"{key} is left {state}"


def check_asked(runs: Iterable[Left], book: Iterable[Noted]) -> int:
    """Each act took effect once. One that is recognised by its key was asked for by each driver
    that found it open once at most; another once, or again after it was seen to be absent. How many
    acts there were.
    """
    noted = defaultdict(list)
    for line in book:
        noted[line.key].append(line)
    acts = 0
    for run in runs:
        outbox = _in_outbox(run)
        for begun in run.those("effect pending"):
            key = begun.payload["idempotency_key"]
            lines = noted.pop(key, [])
            acts += 1
            if key in outbox:
                _check_paid(run, key, lines)
            else:
                asked, at_most = _count(lines, "asked"), _drivers_of(run, begun)
                assert 1 <= asked <= at_most, f"by {at_most} drivers: {_story(run, key, lines)}"
    assert not noted, f"acts of nobody: {list(noted)[:5]}"
    return acts


def _check_paid(run: Left, key: str, lines: Sequence[Noted]) -> None:
    assert _count(lines, "did") == 1, (
        f"done {_count(lines, 'did')} times: {_story(run, key, lines)}"
    )
    in_doubt = False
    for line in lines:
        if line.word == "asked":
            assert not in_doubt, f"asked for again blindly: {_story(run, key, lines)}"
            in_doubt = True
        elif line.word == "absent":
            in_doubt = False


def _count(lines: Iterable[Noted], word: str) -> int:
    return sum(line.word == word for line in lines)


def _story(run: Left, key: str, lines: Iterable[Noted]) -> str:
    """All that the book and the journal say of an act, in the order of time."""
    said = [(line.at_ms, f"{line.word} {line.by}") for line in lines]
    for line in run.journal:
        about = line.payload.get("idempotency_key") == key
        if about or line.what.startswith("run "):
            said.append((line.ts_ms, f"{line.what} {json.dumps(line.payload)[:200]}"))
    return "\n".join([key, *(f"{at_ms} {words}" for at_ms, words in sorted(said))])


def _drivers_of(run: Left, begun: Line) -> int:
    """How many held the lease from when this effect was begun until it was confirmed."""
    key = begun.payload["idempotency_key"]
    (confirmed,) = (
        line for line in run.those("effect confirmed", "effect reconciled")
        if line.payload["idempotency_key"] == key and line.payload["status"] == "confirmed"
    )  # fmt: skip
    return 1 + sum(begun.seq < line.seq < confirmed.seq for line in run.those("run running"))


def check_results(runs: Iterable[Left], errands: Iterable[Errand]) -> None:
    """There is a run for each errand and its child, and no other; all came to what they must."""
    wanted = {str(errand.number): errand.result for errand in errands}
    children = {str(e.number): child_of(e.number) for e in errands if e.waits_for == "child"}
    names = {run.run_id: run.invocation_id for run in runs}
    found: dict[str, Any] = {}
    for run in runs:
        assert run.status == TERMINAL, f"{run.invocation_id} has status {run.status}"
        if run.parent_run_id:
            child = children.pop(names[run.parent_run_id])
            assert run.outcome == child.result, f"child {child}: {run.outcome}"
        else:
            found[run.invocation_id] = run.outcome
    assert found == wanted
    assert not children, f"children that never were: {children}"
