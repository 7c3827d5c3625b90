"""Budgets: what a run may spend. Admitted before, charged after."""

import math
from collections.abc import Iterable
from typing import NamedTuple

import orjson

from tape.errors import InvalidArgument
from tape.model.entry import Kind
from tape.model.move import Need, Reading, Table, save
from tape.model.names import check_name
from tape.model.run import Run
from tape.model.run_write import RunEntryDraft, RunWriteResult
from tape.model.subjects import budget
from tape.settings import Limits


class BudgetRow(NamedTuple):
    """A cap of zero or less is none. `last_charge` is the id of the newest charge."""

    run_id: str
    usd_cap: float = 0.0
    token_cap: int = 0
    usd_spent: float = 0.0
    tokens_spent: int = 0
    last_charge: str = ""

    def refusal(self, usd: float, tokens: int) -> str:
        """Why so much more is not admitted; empty if it is."""
        if self.usd_cap > 0 and self.usd_spent + usd > self.usd_cap:
            spent = f"{self.usd_spent:g} of {self.usd_cap:g} USD"
            return f"{spent} are spent, {usd:g} more would exceed the cap"
        if self.token_cap > 0 and self.tokens_spent + tokens > self.token_cap:
            spent = f"{self.tokens_spent} of {self.token_cap} tokens"
            return f"{spent} are spent, {tokens} more would exceed the cap"
        return ""


BUDGETS = Table("budgets", BudgetRow, lambda row: row.run_id)


class SetBudget(NamedTuple):
    """What may be spent in all. The same caps again change nothing."""

    usd_cap: float = 0.0
    token_cap: int = 0

    def checked(self, _limits: Limits) -> "SetBudget":
        check_amounts(self.usd_cap, self.token_cap, signed=True)
        return self

    def needs(self, run_id: str) -> Iterable[Need]:
        yield Need(BUDGETS, run_id)

    @property
    def size(self) -> int:
        return 64

    def write(self, state: Reading, run: Run) -> RunWriteResult:
        known = state.get(BUDGETS, run.run_id)
        before = known or BudgetRow(run.run_id)
        after = before._replace(usd_cap=max(0.0, self.usd_cap), token_cap=max(0, self.token_cap))
        if after == known:
            return RunWriteResult(run, known)
        return RunWriteResult(run, after, [_line("set", after)], [save(BUDGETS, after)])


class ChargeBudget(NamedTuple):
    """What was spent. A charge with the id of the one before it is that one, repeated."""

    usd: float = 0.0
    tokens: int = 0
    charge_id: str = ""

    def checked(self, limits: Limits) -> "ChargeBudget":
        check_amounts(self.usd, self.tokens)
        check_name(self.charge_id, limits, field="charge_id")
        return self

    def needs(self, run_id: str) -> Iterable[Need]:
        yield Need(BUDGETS, run_id)

    @property
    def size(self) -> int:
        return 64

    def write(self, state: Reading, run: Run) -> RunWriteResult:
        before = state.get(BUDGETS, run.run_id) or BudgetRow(run.run_id)
        if self.charge_id and self.charge_id == before.last_charge:
            return RunWriteResult(run, before)
        after = before._replace(
            usd_spent=before.usd_spent + self.usd,
            tokens_spent=before.tokens_spent + self.tokens,
            last_charge=self.charge_id,
        )
        check_amounts(after.usd_spent, after.tokens_spent)
        line = _line("charged", after, usd=self.usd, tokens=self.tokens)
        return RunWriteResult(run, after, [line], [save(BUDGETS, after)])


def check_amounts(usd: float, tokens: int, *, signed: bool = False) -> None:
    """Signed ones are caps, others what is spent."""
    if not math.isfinite(usd) or (usd < 0 and not signed):
        raise InvalidArgument(f"{usd} is not an amount", field="usd_cap" if signed else "usd")
    if not -(2**63) < tokens < 2**63 or (tokens < 0 and not signed):
        field = "token_cap" if signed else "tokens"
        raise InvalidArgument(f"{tokens} is not a number of tokens", field=field)


def _line(verb: str, after: BudgetRow, **charge: float) -> RunEntryDraft:
    payload = {**after._asdict(), **charge}
    return RunEntryDraft(
        Kind.BUDGET.value, budget(verb, after.run_id), orjson.dumps(payload).decode()
    )
