"""A run's journal in words: one line for each entry, with how long what it ends has taken.

An entry tells what happened and not since when: an effect's outcome does not say when the effect
was begun, nor a takeover how long the run had nobody. A `Timeline` remembers what it has seen, so
it is given a run's entries from the first one on.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import orjson

from tape.model.entry import Entry
from tape.model.run_end import child_gate
from tape.model.timer import REDRIVE, TIMED_OUT_JSON
from tape.runs.looking.entry_words import (
    EntryWords,
    Tone,
    anything_words,
    as_call,
    budget_words,
    decision_words,
    event_words,
    json_words,
    traceback_at,
    value_words,
)

_TIMED_OUT = orjson.loads(TIMED_OUT_JSON)
_CHILD_GATE = child_gate("")
_BY_OTHERS = frozenset({
    "effect claimed", "effect attempted", "effect reconciled", "effect stuck", "gate released",
    "timer fired", "run cancel_requested", "run runnable", "obligation committed",
    "obligation attempted", "obligation compensated", "obligation stuck",
})  # fmt: skip
"""What the holder of the lease does not write itself."""
_ENDS = {"terminal": "done", "failed": "failed", "cancelled": "cancelled", "stuck": "stuck"}


class TimelineLine(NamedTuple):
    """What an entry says. `detail` is what it carries, uncut: arguments, a result, an error.
    `traceback` is where that error was raised, if the program's own code did.
    """

    seq: int
    ts_ms: int
    since_ms: int
    what: str
    text: str
    detail: str = ""
    tone: Tone = ""
    traceback: str = ""


def timeline(entries: Iterable[Entry]) -> list[TimelineLine]:
    """A run's entries in words, in their order."""
    told = Timeline()
    return [told.add(entry) for entry in entries]


def elapsed(ms: int) -> str:
    """A length of time, as exact as somebody would say it."""
    ms = max(0, ms)
    if ms < 1_000:
        return f"{ms} ms"
    if ms < 60_000:
        return f"{ms / 1000:.1f} s"
    minutes, seconds = divmod(ms // 1000, 60)
    if minutes < 60:
        return f"{minutes}m {seconds}s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h {minutes}m" if hours < 48 else f"{hours // 24}d {hours % 24}h"


class _Lease(NamedTuple):
    owner: str
    expires_at_ms: int


@dataclass(slots=True)
class _Act:
    """An effect that was begun. `in_doubt` while nobody knows whether it happened."""

    seq: int
    ts_ms: int
    dispatches: int = 0
    in_doubt: bool = False


class Timeline:
    """Tells one entry after the other, for whoever follows a run."""

    def __init__(self) -> None:
        self._began_ms: int | None = None
        self._now_ms = 0
        self._lease: _Lease | None = None
        self._free_since_ms: int | None = None
        self._driver_wrote_ms = 0
        self._acts: dict[str, _Act] = {}
        self._awaited_ms: dict[str, int] = {}
        self._opened_ms: dict[str, int] = {}
        self._claimed_ms: dict[int, int] = {}
        self._tellers: dict[str, Callable[[str, Any, Entry], EntryWords]] = {
            "run": self._run,
            "decision": decision_words,
            "effect": self._effect,
            "obligation": self._obligation,
            "gate": self._gate,
            "timer": self._timer,
            "value": value_words,
            "event": event_words,
            "budget": budget_words,
        }

    def add(self, entry: Entry) -> TimelineLine:
        self._now_ms = entry.ts_ms
        if self._began_ms is None:
            self._began_ms = entry.ts_ms
        _root, _tape, kind, verb, *_dims = entry.subject.split("/", 4)
        told = self._tellers.get(kind, anything_words)(verb, entry.payload, entry)
        what = f"{kind} {verb}"
        if what not in _BY_OTHERS:
            self._driver_wrote_ms = entry.ts_ms
        since_ms = max(0, entry.ts_ms - self._began_ms)
        traceback = traceback_at(kind, verb, entry.payload)
        return TimelineLine(entry.seq, entry.ts_ms, since_ms, what, *told, traceback)

    def _after(self, then_ms: int | None) -> str:
        return "" if then_ms is None else f" after {elapsed(self._now_ms - then_ms)}"

    def _run(self, verb: str, payload: Any, entry: Entry) -> EntryWords:
        if entry.seq == 1:
            return self._began(payload)
        match verb:
            case "running":
                return self._granted(payload)
            case "runnable" | "compensating" if "because" in payload:
                self._note_lease_end()
                return EntryWords(f"{verb} again: {payload['because']}")
            case "runnable" | "waiting":
                return self._released(verb, payload)
            case "cancel_requested":
                return EntryWords(f"cancellation requested: {payload['reason']}", tone="warning")
        return self._over(verb, payload)

    def _over(self, verb: str, payload: Any) -> EntryWords:
        self._note_lease_end()
        if verb == "compensating":
            text = f"will end as {payload['ending']}: its effects are undone first"
            return EntryWords(text, json_words(payload["detail"]), "warning")
        text = _ENDS.get(verb, verb) + self._after(self._began_ms)
        return EntryWords(
            text, json_words(payload.get("detail")), "good" if verb == "terminal" else "bad"
        )

    def _began(self, payload: Any) -> EntryWords:
        text = f"begun: {payload['app_name']}"
        if payload.get("app_version"):
            text += f" version {payload['app_version']}"
        text += f" in pool {payload['pool']}"
        if payload.get("parent_run_id"):
            text += f", child of {payload['parent_run_id']}"
        if payload.get("owner"):
            text += f", {self._granted(payload).text}"
        else:
            self._note_lease_end()
        return EntryWords(text, json_words(payload.get("input")))

    def _granted(self, payload: Any) -> EntryWords:
        """A lease, and how long there was none before it."""
        before, now = self._lease, self._now_ms
        free_since, self._free_since_ms = self._free_since_ms, None
        owner = payload["owner"]
        self._lease = _Lease(owner, payload["lease_expires_at_ms"])
        whose = f"{owner} ({payload['reactor']}) with token {payload['fencing_token']}"
        if before is None:
            alone = (
                f", {elapsed(now - free_since)} without a holder" if free_since is not None else ""
            )
            return EntryWords(f"lease granted to {whose}{alone}")
        if before.owner == owner:
            return EntryWords(f"lease granted again to {whose}")
        # Renewals are not on the journal; it had its holder until then at least.
        held_until = max(before.expires_at_ms, self._driver_wrote_ms)
        return EntryWords(
            f"taken over from {before.owner} by {whose}: {before.owner} last wrote "
            f"{elapsed(now - self._driver_wrote_ms)} before, and nobody held it for "
            f"{elapsed(now - held_until)} at most",
            tone="warning",
        )

    def _note_lease_end(self) -> None:
        if self._lease is not None or self._free_since_ms is None:
            self._lease, self._free_since_ms = None, self._now_ms

    def _released(self, verb: str, payload: Any) -> EntryWords:
        owner = self._lease.owner if self._lease else "its driver"
        self._note_lease_end()
        waits_for = payload["waiting_on"]
        if verb == "waiting":
            return EntryWords(f"waits for {waits_for}, released by {owner}")
        if waits_for:
            return EntryWords(f"no longer had to wait for {waits_for}; released by {owner}")
        return EntryWords(f"released by {owner}")

    def _effect(self, verb: str, payload: Any, entry: Entry) -> EntryWords:
        key, tool = payload["idempotency_key"], payload["tool_name"]
        if verb == "pending" and "request" in payload:
            self._acts[key] = _Act(entry.seq, entry.ts_ms)
            outbox = " for the outbox" if payload["dispatch_mode"] == "outbox" else ""
            business = payload["business_key"]
            named = f", business key {business}" if business else ""
            return EntryWords(f"effect {tool} begun{outbox}{named}", as_call(payload["request"]))
        act = self._acts.setdefault(key, _Act(entry.seq, entry.ts_ms))
        name = f"effect {tool} ({act.seq})"
        match verb:
            case "claimed":
                return EntryWords(f"{name} claimed by {payload['claimer']}, {_why(act, payload)}")
            case "attempted":
                known = "is still unknown" if act.in_doubt else "was not done"
                return EntryWords(f"{name} {known}, it is tried again", payload["error"], "warning")
            case "stuck":
                text = f"{name} is stuck: its outcome could not be determined"
                return EntryWords(text, json_words(payload["error"]), "bad")
        return self._outcome(verb, name, act, payload)

    def _outcome(self, verb: str, name: str, act: _Act, payload: Any) -> EntryWords:
        status, after = payload["status"], self._after(act.ts_ms)
        found = f"{name} is found to be {status}" if verb == "reconciled" else f"{name} {status}"
        again = f", dispatched {act.dispatches} times" if act.dispatches > 1 else ""
        act.in_doubt = status == "unknown"
        if status == "confirmed":
            ref = f", reference {payload['external_ref']}" if payload["external_ref"] else ""
            return EntryWords(
                f"{found}{after}{again}{ref}", json_words(payload["response"]), "good"
            )
        if status == "pending":
            return EntryWords(f"{name} did not happen and will be executed{after}", tone="warning")
        error = json_words(payload["error"])
        if status == "unknown":
            return EntryWords(f"{found}{after}: it may have happened", error, "warning")
        return EntryWords(f"{found}{after}{again}", error, "bad")

    def _obligation(self, verb: str, payload: Any, _entry: Entry) -> EntryWords:
        kind, seq = payload["kind"], payload["obligation_seq"]
        if verb == "registered":
            act = self._acts.get(payload["effect_key"])
            undone = f"effect {act.seq}" if act else payload["effect_key"]
            return EntryWords(f"obligation: {kind} undoes {undone}")
        name = f"compensation {kind} ({seq})"
        after = self._after(self._claimed_ms.get(seq))
        match verb:
            case "committed":
                self._claimed_ms[seq] = self._now_ms
                return EntryWords(f"{name} begun by {payload['claimed_by']}, {_nth(payload)}")
            case "attempted":
                text = f"{name} failed{after}, {_nth(payload)}: it is tried again"
                return EntryWords(text, payload["last_error"], "warning")
            case "compensated":
                return EntryWords(f"{name} done{after}", json_words(payload["result"]), "good")
        error = payload["last_error"] or json_words(payload["result"])
        return EntryWords(f"{name} is {verb}, {_nth(payload)}", error, "bad")

    def _gate(self, verb: str, payload: Any, _entry: Entry) -> EntryWords:
        name = payload["gate_name"]
        waited, opened = self._awaited_ms.get(name), self._opened_ms.get(name)
        child = name.removeprefix(_CHILD_GATE) if name.startswith(_CHILD_GATE) else ""
        what = f"the end of run {child}" if child else f"gate {name}"
        if verb == "waiting":
            self._awaited_ms[name] = self._now_ms
            early = "" if opened is None else f", open for {elapsed(self._now_ms - opened)}"
            does = "waits for" if child else "reaches"
            return EntryWords(f"{does} {what}{early}", json_words(payload["payload"]))
        self._opened_ms[name] = self._now_ms
        if payload["resolution"] == _TIMED_OUT:
            return EntryWords(f"{what} timed out{self._after(waited)}", tone="warning")
        after = " before it was asked for" if waited is None else self._after(waited)
        came = f"run {child} ended" if child else f"{what} opened"
        return EntryWords(f"{came}{after}", json_words(payload["resolution"]))

    def _timer(self, verb: str, payload: Any, _entry: Entry) -> EntryWords:
        kind, left = payload["kind"], payload["fire_at_ms"] - self._now_ms
        name = f"timer {payload['timer_id']}" + ("" if kind == REDRIVE else f" ({kind})")
        match verb:
            case "set":
                return EntryWords(
                    f"{name} set, due in {elapsed(left)}", json_words(payload["payload"])
                )
            case "fired":
                return EntryWords(f"{name} fired, {elapsed(-left)} after it was due")
        return EntryWords(f"{name} {verb}")


def _why(act: _Act, payload: Any) -> str:
    if act.in_doubt or not payload["attempt"]:
        return "to find out its outcome"
    act.dispatches = payload["attempt"]
    return f"dispatch {act.dispatches}"


def _nth(payload: Any) -> str:
    return f"attempt {payload['attempts']}"
