"""A run as somebody at a terminal sees it: how it stands, what to do about it, what happened."""

import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import orjson
from rich.console import Console
from rich.text import Text

from tape.cli.output import abridged, date_time, printable, span
from tape.cli.records import run_record
from tape.model.entry import Entry, Kind
from tape.model.error_record import error_words, is_error, traceback_in
from tape.model.run import SHOWN_WORDS, Run, RunStatus
from tape.runs.looking.timeline import TimelineLine, elapsed, timeline

CUT = 100  # characters of a payload, unless all is asked for
_BELOW = 17 * " "  # what comes before the text of a line
_STYLES = {"good": "green", "warning": "yellow", "bad": "red"}
STATUS_STYLES = {RunStatus.STUCK: "red"}


class RunWithJournal(NamedTuple):
    """A run with its whole journal and the runs that it started."""

    run: Run
    entries: Sequence[Entry]
    children: Sequence[Run]

    @property
    def budget(self) -> dict[str, Any] | None:
        """As its newest entry about it says."""
        budgets = [entry for entry in self.entries if entry.kind == Kind.BUDGET]
        if not budgets:
            return None
        names = ("usd_cap", "token_cap", "usd_spent", "tokens_spent")
        return {name: budgets[-1].payload[name] for name in names}


def children_of(entries: Sequence[Entry]) -> list[str]:
    """The ids of the runs that a run has started, as its own decisions tell."""
    decisions = (entry.payload for entry in entries if entry.kind == Kind.DECISION)
    return [made["response"] for made in decisions if made["model"].startswith("start/")]


def seen_record(seen: RunWithJournal) -> dict[str, Any]:
    """All of it as one object."""
    return run_record(seen.run) | {
        "budget": seen.budget,
        "children": [run_record(child) for child in seen.children],
        "next": next_steps(seen.run, seen.entries),
        "traceback": traceback_of_run(seen.run, seen.entries),
        "timeline": [line_record(line) for line in timeline(seen.entries)],
    }


def line_record(line: TimelineLine) -> dict[str, Any]:
    return line._asdict()


def print_head(out: Console, seen: RunWithJournal, *, full: bool) -> None:
    style = STATUS_STYLES.get(RunStatus(seen.run.status), "")
    for name, text in _head(seen):
        shown = printable(text) if full else abridged(text, 2 * CUT)
        red = style if name in ("status", "error", "next") else ""
        out.print(Text(f"{name:10}  {shown}", style=red))


def _head(seen: RunWithJournal) -> Iterator[tuple[str, str]]:
    run = seen.run
    yield "run", run.run_id
    yield "app", app_words(run)
    for name in ("user_id", "session_id", "invocation_id"):
        if getattr(run, name):
            yield name.removesuffix("_id"), getattr(run, name)
    yield "status", _status(run)
    yield "lease", lease_words(run)
    yield "started", date_time(run.started_at_ms)
    if run.ended_at_ms:
        yield "ended", f"{date_time(run.ended_at_ms)}, after {lifetime(run)}"
    if run.parent_run_id:
        yield "parent", run.parent_run_id
    for child in seen.children:
        yield "child", f"{child.run_id} {app_words(child)}: {SHOWN_WORDS[child.status]}"
    if seen.budget is not None:
        yield "budget", _budget_words(**seen.budget)
    if run.cancel_reason:
        yield "cancel", run.cancel_reason
    if run.outcome_json:
        succeeded = run.status == RunStatus.TERMINAL
        yield "result" if succeeded else "error", outcome_words(run)
    for step in next_steps(run, seen.entries):
        yield "next", step


def app_words(run: Run) -> str:
    version = f" version {run.app_version}" if run.app_version else ""
    return f"{run.app_name}{version} in pool {run.pool}"


def _status(run: Run) -> str:
    if run.waiting_on:
        return f"{SHOWN_WORDS[run.status]} for {run.waiting_on}"
    ending = f", then {SHOWN_WORDS[run.ending]}" if run.ending else ""
    return SHOWN_WORDS[run.status] + ending


def lease_words(run: Run) -> str:
    """Who drives it and for how long yet, as far as this clock knows."""
    if not run.lease_owner:
        return f"free; the last token was {run.fencing_token}" if run.fencing_token else "none"
    left = run.lease_expires_at_ms - _now_ms()
    lease = f"{span(left)} left" if left > 0 else f"the lease expired {span(-left)} ago"
    return f"{run.lease_owner} ({run.reactor_name}) with token {run.fencing_token}, {lease}"


def lifetime(run: Run) -> str:
    return elapsed((run.ended_at_ms or _now_ms()) - run.started_at_ms)


def outcome_words(run: Run) -> str:
    """What it returned, or why it did not; empty while neither is known."""
    outcome = orjson.loads(run.outcome_json) if run.outcome_json else None
    return error_words(outcome) if is_error(outcome) else run.outcome_json


def _budget_words(*, usd_cap: float, token_cap: int, usd_spent: float, tokens_spent: int) -> str:
    usd = f"{usd_spent:g} of {usd_cap:g} USD" if usd_cap > 0 else f"{usd_spent:g} USD"
    tokens = f"{tokens_spent} of {token_cap}" if token_cap > 0 else str(tokens_spent)
    return f"{usd} and {tokens} tokens are spent"


def next_steps(run: Run, entries: Sequence[Entry]) -> list[str]:
    """What an operator does about a run that is stuck; nothing for any other."""
    if run.status != RunStatus.STUCK:
        return []
    resume = f"then: tape runs resume {run.run_id}"
    cancel = f"or give it up and undo what it did: tape runs cancel {run.run_id}"
    if run.ending:
        undone = _newest(entries, "obligation/stuck")
        what = f"{undone['kind']} of {undone['effect_key']}" if undone else "its compensation"
        return [f"find out why {what} keeps failing, and mend it; {resume}"]
    outcome = orjson.loads(run.outcome_json or "null")
    if isinstance(outcome, dict) and outcome.get("type") == "Diverged":
        version = f" (it was begun by version {run.app_version})" if run.app_version else ""
        return [
            f"see where the code and the journal part: tape replay {run.run_id} -m MODULE",
            f"run workers with code that does what the journal records{version}; {resume}",
            cancel,
        ]
    doubtful = _newest(entries, "effect/stuck")
    if doubtful is not None:
        asked = f"find out what became of {doubtful['idempotency_key']}, and mend its status check"
        return [f"{asked}; {resume}", cancel]
    return [f"mend what its error names; {resume}", cancel]


def traceback_of_run(run: Run, entries: Sequence[Entry]) -> str:
    """Where the code raised that a run did not succeed for, or that it is stuck for."""
    if run.status == RunStatus.TERMINAL:
        return ""
    if run.status == RunStatus.STUCK and run.ending:
        undone = _newest(entries, "obligation/stuck") or {}
        return str(undone.get("traceback", ""))
    return traceback_in(orjson.loads(run.outcome_json or "null"))


def _newest(entries: Sequence[Entry], what: str) -> Any:
    found = (entry for entry in reversed(entries) if entry.subject.startswith(f"/tape/{what}/"))
    entry = next(found, None)
    return None if entry is None else entry.payload


def print_line(out: Console, line: TimelineLine, *, full: bool) -> None:
    shown = Text(f"{line.seq:>5} ", style="cyan")
    shown.append(f"{'+' + elapsed(line.since_ms):>9}  ", style="dim")
    shown.append(printable(line.text), style=_STYLES.get(line.tone, ""))
    if line.detail:
        shown.append("  " + (printable(line.detail) if full else abridged(line.detail, CUT)))
    out.print(shown)
    if full and line.traceback:
        for text in line.traceback.split("\n"):
            out.print(Text(_BELOW + printable(text)))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
