"""Lanes: one move of a subscription at a time, and what waits goes along with the next."""

import asyncio
from collections.abc import Sequence

import pytest

from tape.errors import StoreUnavailable
from tape.model.accept_messages import AcceptedMessage, AcceptOutcome, PlannedMessage
from tape.model.subscription_spec import DispatchSpec, SourceKind, SourceSpec, SubscriptionSpec
from tape.settings import Limits
from tape.subscriptions.company import MOST_TOGETHER
from tape.subscriptions.lanes import MOST_BYTES, AcceptLanes, LaneTerms
from tape.subscriptions.planning import Planner

PLANNER = Planner(
    SubscriptionSpec(
        "s", "subscriptions/s", "pull", SourceSpec(SourceKind.NATS), DispatchSpec("app")
    ),
    Limits(),
)
TERMS = LaneTerms("s", PLANNER, 1, 5)


def some(*places: str) -> list[PlannedMessage]:
    return [PlannedMessage(place, place) for place in places]


class Journal:
    """What was accepted, move by move; each move waits until it is let go on."""

    def __init__(self) -> None:
        self.moves: list[list[str]] = []
        self.under_way: dict[str, int] = {}
        self.go_on = asyncio.Event()
        self.error: Exception | None = None
        self.lanes = AcceptLanes(self._accept)

    async def _accept(
        self, terms: LaneTerms, planned: Sequence[PlannedMessage]
    ) -> list[AcceptedMessage] | None:
        self.moves.append([one.place for one in planned])
        self.under_way[terms.name] = self.under_way.get(terms.name, 0) + 1
        assert self.under_way[terms.name] == 1
        await self.go_on.wait()
        self.under_way[terms.name] -= 1
        if self.error is not None:
            raise self.error
        if terms.registered_at_ms == 0:
            return None
        return [AcceptedMessage(one.place, AcceptOutcome.ACCEPTED, "r") for one in planned]

    def ask(
        self, *places: str, terms: LaneTerms = TERMS, size: int = 1
    ) -> "asyncio.Task[list[AcceptedMessage] | None]":
        return asyncio.create_task(self.lanes.accept(terms, some(*places), size))


async def settled() -> None:
    """Until everything that can go on has."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_what_waits_goes_along_and_each_gets_its_own() -> None:
    journal = Journal()
    asked = [journal.ask("a"), journal.ask("b", "c"), journal.ask("d")]
    await settled()
    journal.go_on.set()
    found = await asyncio.gather(*asked)
    assert journal.moves == [["a"], ["b", "c", "d"]] or journal.moves == [["a", "b", "c", "d"]]
    assert [[one.place for one in part or ()] for part in found] == [["a"], ["b", "c"], ["d"]]


async def test_subscriptions_do_not_wait_for_each_other() -> None:
    journal = Journal()
    asked = [journal.ask("a"), journal.ask("b", terms=TERMS._replace(name="t"))]
    await settled()
    assert journal.moves == [["a"], ["b"]]
    journal.go_on.set()
    await asyncio.gather(*asked)


@pytest.mark.parametrize(
    "other",
    [
        TERMS._replace(fencing_token=6),
        TERMS._replace(registered_at_ms=2),
        TERMS._replace(planner=Planner(PLANNER.spec, Limits())),
    ],
)
async def test_only_what_has_the_same_terms_goes_along(other: LaneTerms) -> None:
    journal = Journal()
    asked = [journal.ask("a")]
    await settled()
    asked += [journal.ask("b"), journal.ask("c", terms=other), journal.ask("d")]
    await settled()
    journal.go_on.set()
    await asyncio.gather(*asked)
    assert journal.moves == [["a"], ["b"], ["c"], ["d"]]


async def test_moves_are_bounded_in_messages_and_bytes() -> None:
    journal = Journal()
    asked = [journal.ask("a")]
    await settled()
    many = [f"m{n}" for n in range(MOST_TOGETHER - 1)]
    asked += [journal.ask(*many), journal.ask("b"), journal.ask("c")]
    asked += [journal.ask("d", size=MOST_BYTES), journal.ask("e"), journal.ask("f")]
    await settled()
    journal.go_on.set()
    await asyncio.gather(*asked)
    assert [len(move) for move in journal.moves] == [1, MOST_TOGETHER, 1, 1, 2]


async def test_an_error_is_told_to_those_it_concerns() -> None:
    journal = Journal()
    first = journal.ask("a")
    await settled()
    journal.error = StoreUnavailable("away")
    second = journal.ask("b")
    journal.go_on.set()
    found = await asyncio.gather(first, second, return_exceptions=True)
    assert [type(error) for error in found] == [StoreUnavailable] * 2
    journal.error = None
    assert await journal.ask("c")


async def test_what_nobody_waits_for_any_more_is_not_begun() -> None:
    journal = Journal()
    first = journal.ask("a")
    await settled()
    second, third = journal.ask("b"), journal.ask("c")
    await settled()
    second.cancel()
    first.cancel()  # this one is on its way: it is finished, and told to nobody
    await settled()
    journal.go_on.set()
    assert await third
    assert journal.moves == [["a"], ["c"]]


async def test_none_is_none_for_all() -> None:
    journal = Journal()
    journal.go_on.set()
    old = TERMS._replace(registered_at_ms=0)
    found = await asyncio.gather(journal.ask("a", terms=old), journal.ask("b", terms=old))
    assert list(found) == [None, None]


async def test_closing_waits_for_what_is_on_its_way() -> None:
    journal = Journal()
    asked = journal.ask("a")
    await settled()
    closing = asyncio.create_task(journal.lanes.close())
    await settled()
    assert not closing.done()
    journal.go_on.set()
    await closing
    assert asked.done() or await asked


async def test_nobody_waits_for_a_loop_that_ends() -> None:
    journal = Journal()
    first = journal.ask("a")
    await settled()
    second = journal.ask("b")
    await settled()
    for task in journal.lanes._working:
        task.cancel()
    found = await asyncio.gather(first, second, return_exceptions=True)
    assert [type(error) for error in found] == [asyncio.CancelledError] * 2
