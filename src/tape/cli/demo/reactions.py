"""Act 5: reactions. A burst, a debounce, and a message that no retry helps."""

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

from tape.cli.demo.stage import Stage, working
from tape.client import event
from tape.model.reaction import HandlerKind, NewReaction, ReactionState
from tape.model.task import TaskStatus
from tape.programs.worker import WorkerOptions
from tape.reactions.declare import Declaration, Registry

TITLE = "The back office reacts"
STORY = (
    "Confirmations go out for every ticket, at most four at once. The book is priced again when "
    "the rate has come to rest. One settlement names an account that does not exist."
)
TICKETS = 200
TICKS = 60
PATIENCE_S = 30.0


class BackOffice:
    """Three handlers, as any program would have them; plain functions, so they run in threads."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._worked = asyncio.Event()
        self.confirmed: list[int] = []
        self.at_once = 0
        self.most_at_once = 0
        self.priced: list[float] = []
        self.settled: list[str] = []
        self.accounts = {"DE-1"}
        self._lock = threading.Lock()

    def confirm(self, envelope: dict[str, Any]) -> None:
        with self._lock:
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
        time.sleep(0.002)
        with self._lock:
            self.at_once -= 1
            self.confirmed.append(envelope["payload"]["ticket"])
        self._tell()

    def price(self, envelope: dict[str, Any]) -> None:
        self.priced.append(float(envelope["payload"]["value"]["value_json"]))
        self._tell()

    def settle(self, envelope: dict[str, Any]) -> None:
        account = envelope["payload"]["account"]
        if account not in self.accounts:
            raise LookupError(f"there is no account {account}")
        self.settled.append(account)
        self._tell()

    def _tell(self) -> None:
        self._loop.call_soon_threadsafe(self._worked.set)

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait for handlers to have done something, for a while."""
        async with asyncio.timeout(PATIENCE_S):
            while not holds():
                self._worked.clear()
                if not holds():
                    await self._worked.wait()

    def registry(self) -> Registry:
        registry = Registry()
        task = HandlerKind.TASK
        for new, handler in (
            (NewReaction("confirm", "/tape/event/recorded/ticket.issued/**", task,
                         max_concurrency=4), self.confirm),
            (NewReaction("price", "/tape/value/changed/desk/fx_rate", task, debounce_ms=800,
                         predicate_cel="double(payload.value.value_json) > 1.0"), self.price),
            (NewReaction("settle", "/tape/event/recorded/settlement.due/**", task,
                         retry_max=2, retry_backoff_ms=50, dlq_after_n=3), self.settle),
        ):  # fmt: skip
            registry.add(Declaration(new, handler))
        return registry


async def play(stage: Stage) -> None:
    office = BackOffice()
    options = WorkerOptions(url=stage.url, registry=office.registry())
    async with working(options, "tape.dispatcher"):
        await _burst(stage, office)
        await _debounce(stage, office)
        await _poison(stage, office)


async def _burst(stage: Stage, office: BackOffice) -> None:
    await stage.record_many(
        [
            event("ticket.issued", {"ticket": n}, entity_type="ticket", entity_id=str(n),
                  idempotency_key=f"ticket:{n}")
            for n in range(TICKETS)
        ]
    )  # fmt: skip
    await office.until(lambda: len(office.confirmed) >= TICKETS)
    stage.promise(
        f"{TICKETS} tickets at one moment: each confirmed once, {office.most_at_once} at a time",
        sorted(office.confirmed) == list(range(TICKETS)) and office.most_at_once <= 4,
    )


async def _debounce(stage: Stage, office: BackOffice) -> None:
    for tick in range(TICKS):
        last = await stage.client.set_value("desk", "fx_rate", round(1.05 + tick / 1000, 4))
    await office.until(lambda: bool(office.priced))
    state = await _state(stage, "price")
    stage.say(f"the rate moved {state.matched} times, {state.coalesced} of them were overtaken")
    stage.promise(
        f"the book was priced once, with the last rate, {office.priced[-1]}",
        office.priced == [last.value],
    )


async def _poison(stage: Stage, office: BackOffice) -> None:
    for account in ("DE-1", "DE-2"):
        await stage.record(
            event("settlement.due", {"account": account}, entity_type="account", entity_id=account,
                  idempotency_key=f"settlement:{account}")
        )  # fmt: skip
    async with (
        asyncio.timeout(PATIENCE_S),
        stage.client.follow("/tape/task/dead_lettered/settle/*") as letters,
    ):
        await anext(aiter(letters))
    (letter,) = await stage.client.list_tasks("settle", status=TaskStatus.DLQ)
    stage.say(f"after {letter.attempts} attempts a dead letter: {letter.last_error}")
    stage.promise("the good settlement was not held up by the bad one", office.settled == ["DE-1"])
    office.accounts.add("DE-2")
    await stage.client.replay_dead_letters("settle")
    await office.until(lambda: "DE-2" in office.settled)
    stage.promise(
        "the account was opened, the dead letter replayed and settled",
        office.settled == ["DE-1", "DE-2"] and (await _state(stage, "settle")).dead_letters == 0,
    )


async def _state(stage: Stage, reaction_id: str) -> ReactionState:
    states = {state.reaction.reaction_id: state for state in await stage.client.list_reactions()}
    return states[reaction_id]
