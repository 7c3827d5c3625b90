"""Decisions: what a run chose or drew, replayed by ordinal and never made twice.

The subject tells them apart: `recorded` is what somebody decided, `failed` that nobody could be
had to decide, and `drawn` what Tape itself has written down to answer alike in every replay: the
time, chance, a sample, what a value was, that a child was started.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

import orjson

from tape.errors import InvalidArgument
from tape.model.entry import Kind
from tape.model.json_text import check_json, to_json
from tape.model.move import Need, Reading, Table, save
from tape.model.names import check_name
from tape.model.run import Run
from tape.model.run_write import RunEntryDraft, RunWriteResult, raw
from tape.model.subjects import decision
from tape.settings import Limits


class DecisionPlace(NamedTuple):
    """Where in its run's journal a decision is; the journal holds the rest."""

    run_id: str
    decision_index: int
    seq: int
    ts_ms: int


DECISIONS = Table("decisions", DecisionPlace, lambda row: (row.run_id, row.decision_index))


RECORDED: Final = "recorded"
DRAWN: Final = "drawn"
FAILED: Final = "failed"


class RecordDecision(NamedTuple):
    """`model` names what decided: a model, or `sample`, `now`, `patched/<name>` and the like."""

    decision_index: int
    model: str
    request_json: str = "null"
    response_json: str = "null"
    rationale: str = ""
    policy_version: str = ""
    verb: str = RECORDED

    def checked(self, limits: Limits) -> "RecordDecision":
        if not 0 <= self.decision_index < 2**31:
            raise InvalidArgument("must be in 0..2^31-1", field="decision_index")
        if self.verb not in ("", RECORDED, DRAWN, FAILED):
            known = f"{RECORDED}, {DRAWN} or {FAILED}"
            raise InvalidArgument(f"{self.verb!r} is not {known}", field="verb")
        check_name(self.model, limits, field="model")
        check_name(self.policy_version, limits, field="policy_version")
        to_json(self.rationale, limits, field="rationale")
        return self._replace(
            request_json=check_json(self.request_json, limits, field="request_json"),
            response_json=check_json(self.response_json, limits, field="response_json"),
            verb=self.verb or RECORDED,
        )

    def needs(self, run_id: str) -> Iterable[Need]:
        yield Need(DECISIONS, (run_id, self.decision_index))

    @property
    def size(self) -> int:
        return len(self.request_json) + len(self.response_json) + len(self.rationale)

    def write(self, state: Reading, run: Run) -> RunWriteResult:
        known = state.get(DECISIONS, (run.run_id, self.decision_index))
        if known is not None:
            return RunWriteResult(run, known)
        place = DecisionPlace(run.run_id, self.decision_index, run.seq_cursor + 1, state.now_ms)
        payload = {
            "decision_index": self.decision_index,
            "model": self.model,
            "request": raw(self.request_json),
            "response": raw(self.response_json),
            "rationale": self.rationale,
            "policy_version": self.policy_version,
        }
        line = RunEntryDraft(
            Kind.DECISION.value,
            decision(self.verb, run.run_id, self.decision_index),
            orjson.dumps(payload).decode(),
        )
        return RunWriteResult(run, place, [line], [save(DECISIONS, place)])
