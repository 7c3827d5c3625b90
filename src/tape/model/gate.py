"""Gates: where a run waits for a word from outside. A word that comes early is kept."""

from collections.abc import Iterable
from typing import NamedTuple

import orjson

from tape.model.entry import Kind
from tape.model.json_text import check_json
from tape.model.move import Need, Reading, RowChange, Table, save
from tape.model.names import check_name
from tape.model.run import Run
from tape.model.run_write import RunEntryDraft, RunWriteResult, raw, woken
from tape.model.subjects import gate_released, gate_waiting
from tape.settings import Limits


class Gate(NamedTuple):
    """`awaited` once the run has come to it, `released` once the word has come."""

    run_id: str
    gate_name: str
    awaited: bool
    released: bool
    payload_json: str
    resolution_json: str


GATES = Table("gates", Gate, lambda row: (row.run_id, row.gate_name))


class AwaitSignal(NamedTuple):
    """Come to a gate. The reply is the gate: released, if the word is there."""

    gate_name: str
    payload_json: str = "null"

    def checked(self, limits: Limits) -> "AwaitSignal":
        check_name(self.gate_name, limits, field="gate_name", required=True)
        return self._replace(
            payload_json=check_json(self.payload_json, limits, field="payload_json")
        )

    def needs(self, run_id: str) -> Iterable[Need]:
        yield Need(GATES, (run_id, self.gate_name))

    @property
    def size(self) -> int:
        return len(self.payload_json)

    def write(self, state: Reading, run: Run) -> RunWriteResult:
        before = state.get(GATES, (run.run_id, self.gate_name))
        if before is not None and before.awaited:
            return RunWriteResult(run, before)
        if before is None:
            before = Gate(run.run_id, self.gate_name, False, False, "null", "null")
        after = before._replace(awaited=True, payload_json=self.payload_json)
        payload = {"gate_name": self.gate_name, "payload": raw(self.payload_json)}
        line = RunEntryDraft(
            Kind.GATE.value,
            gate_waiting(self.gate_name, run.run_id),
            orjson.dumps(payload).decode(),
        )
        return RunWriteResult(run, after, [line], [save(GATES, after)])


class Signalled(NamedTuple):
    """`accepted` unless the run has ended or the gate was released before."""

    accepted: bool
    run: Run


class SendSignal(NamedTuple):
    """The word for a gate, from outside. The first counts."""

    gate_name: str
    resolution_json: str = "null"

    def checked(self, limits: Limits) -> "SendSignal":
        check_name(self.gate_name, limits, field="gate_name", required=True)
        return self._replace(
            resolution_json=check_json(self.resolution_json, limits, field="resolution_json")
        )

    def needs(self, run_id: str) -> Iterable[Need]:
        yield Need(GATES, (run_id, self.gate_name))

    @property
    def size(self) -> int:
        return len(self.resolution_json)

    def write(self, state: Reading, run: Run) -> RunWriteResult:
        before = state.get(GATES, (run.run_id, self.gate_name))
        if not run.may_go_on or (before is not None and before.released):
            return RunWriteResult(run, Signalled(False, run))
        run, lines, changes = release(before, run, self.gate_name, self.resolution_json)
        told = run._replace(seq_cursor=run.seq_cursor + len(lines))
        return RunWriteResult(run, Signalled(True, told), lines, changes)


def release(
    before: Gate | None, run: Run, gate_name: str, resolution_json: str
) -> tuple[Run, list[RunEntryDraft], list[RowChange]]:
    """Open a gate of the run and wake it."""
    if before is None:
        before = Gate(run.run_id, gate_name, False, False, "null", "null")
    after = before._replace(released=True, resolution_json=resolution_json)
    payload = {"gate_name": gate_name, "resolution": raw(resolution_json)}
    line = RunEntryDraft(
        Kind.GATE.value, gate_released(gate_name, run.run_id), orjson.dumps(payload).decode()
    )
    run, awake = woken(run, f"gate {gate_name}")
    return run, [line, *awake], [save(GATES, after)]
