"""What a store tells of runs: `store.runs`. All times are by the store's clock."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from tape.model.budget import BudgetRow
from tape.model.effect import Effect
from tape.model.entry import Entry
from tape.model.obligation import Obligation
from tape.model.run import Run
from tape.model.timer import Timer


class RunQuery(NamedTuple):
    """Runs, newest first; empty filters let all through. `after` is the id of the last one seen."""

    status: int = 0
    app_name: str = ""
    pool: str = ""
    limit: int = 0
    after: str = ""
    parent_run_id: str = ""
    session: tuple[str, str] | None = None
    """Only this user's and session's."""


class RecoverQuery(NamedTuple):
    """Runs that somebody should drive: runnable, or with a lease that ran out. Oldest first.

    An empty pool or no apps is any.
    """

    pool: str = ""
    app_names: Sequence[str] = ()
    limit: int = 100


class WaitingRuns(NamedTuple):
    """How many runs of one app and pool somebody should drive, and nobody does.

    `since_ms` is when something last happened in `run_id`, which has waited longest of the
    OLDEST_COMPARED that were begun first. `running` is how many of that app and pool are driven
    now: if none, there may be no worker for them. Each is counted up to MOST_COUNTED, so that a
    look costs little whatever piles up.
    """

    pool: str
    app_name: str
    waiting: int
    running: int
    run_id: str
    since_ms: int


MOST_COUNTED = 10_000
OLDEST_COMPARED = 100
MOST_WAITING_GROUPS = 200


class PendingQuery(NamedTuple):
    """Effects that wait for an outcome, oldest first: unknown ones that nobody has claimed and,
    if asked for, pending ones that are older than so long.
    """

    older_than_ms: int = 0
    limit: int = 100
    include_pending: bool = False
    include_unknown: bool = True
    connectors: Sequence[str] = ()


class RunStore(Protocol):
    @property
    def has_draw_subjects(self) -> bool:
        """Whether draws and failed decisions have subjects of their own here; else they have that
        of decisions, because a version may be left that knows no other.
        """

    async def get_run(self, run_id: str) -> Run | None: ...

    async def list_runs(self, query: RunQuery) -> list[Run]: ...

    async def list_runs_to_recover(self, query: RecoverQuery) -> list[Run]: ...

    async def list_waiting_runs(self, older_than_ms: int) -> list[WaitingRuns]:
        """The apps and pools of which a run has waited for at least so long, with all that wait;
        who has waited longest first. Of no more than MOST_WAITING_GROUPS apps and pools."""

    async def get_decision(self, run_id: str, decision_index: int) -> Entry | None:
        """The entry that records it."""

    async def get_effect(self, run_id: str, idempotency_key: str) -> Effect | None: ...

    async def list_pending_effects(self, query: PendingQuery) -> list[Effect]: ...

    async def list_effects_to_dispatch(self, connectors: Sequence[str], limit: int) -> list[Effect]:
        """Pending effects that are not inline, are due and not under a living claim, oldest first.

        No connectors is any.
        """

    async def list_obligations(self, run_id: str) -> list[Obligation]:
        """All of a run, newest first."""

    async def list_unresolved_obligations(
        self, limit: int, *, include_stuck: bool = False
    ) -> list[Obligation]:
        """Those that can be claimed now: the top of each run that unwinds and what stands alone.

        With `include_stuck` also those that are stuck, which only an operator takes up again.
        """

    async def get_budget(self, run_id: str) -> BudgetRow | None: ...

    async def list_timers(self, run_id: str) -> list[Timer]: ...

    async def list_due_timers(self, limit: int) -> list[Timer]:
        """Neither fired nor cancelled, earliest first."""

    async def next_timer_in_ms(self) -> int | None:
        """How long until the next timer is due; 0 if one is, None if there is none."""
