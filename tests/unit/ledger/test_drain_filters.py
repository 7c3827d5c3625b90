"""Filters of drainers: they take turns with everything else, and with everybody else's."""

import asyncio
from dataclasses import replace

import pytest

from tape.journal.follow import LIGHT_ENTRIES
from tape.ledger.rules import EventSubscriptionRule
from tape.model.entry import Entry
from tape.model.event_subscription import DEFAULT_DRAINER
from tape.settings import DrainerSettings, PredicateSettings
from tests.conformance.reacting import until
from tests.unit.ledger.draining import QUICK, a_desk

SLOW_THOUGH_LIGHT = "kind == 'event' || " + "||".join(["!payload.a"] * 330)


@pytest.mark.parametrize("filter_expr", ["", "payload.n < 0", SLOW_THOUGH_LIGHT])
async def test_the_loop_goes_round_after_a_few_filters(
    sqlite_url: str, filter_expr: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop, asked, most = asyncio.get_running_loop(), 0, 0
    holds = EventSubscriptionRule.holds

    def counted(rule: EventSubscriptionRule, event: Entry) -> bool:
        nonlocal asked, most
        asked += 1
        most = max(most, asked)
        return holds(rule, event)

    def go_round() -> None:
        nonlocal asked
        asked = 0
        if not is_over:
            loop.call_soon(go_round)

    is_over = False
    async with a_desk(sqlite_url) as desk:
        for name in ("a", "b", "c"):
            await desk.subscribe(name, filter_expr=filter_expr, awaits_end=False)
        await desk.record(*range(100))
        monkeypatch.setattr(EventSubscriptionRule, "holds", counted)
        loop.call_soon(go_round)
        report = await desk.drain_all(DEFAULT_DRAINER)
        is_over = True
    assert report.processed == 100
    assert most <= 2 * LIGHT_ENTRIES  # the first turn is there at once


async def test_the_lease_is_kept_while_a_filter_waits_for_its_turn(sqlite_url: str) -> None:
    numbers = list(range(60))
    costly = f"{numbers}.all(a, {numbers}.all(b, a + b >= 0))"
    lease_s = 3.0  # busy cores do not hold up a renewal for as long
    settings = replace(
        QUICK,
        drainers=DrainerSettings(lease_s=lease_s),
        predicates=PredicateSettings(share=0.000_01),
    )
    async with a_desk(sqlite_url, settings, working=False) as desk:
        await desk.subscribe("a", filter_expr=costly, awaits_end=False)
        await desk.record(*range(100))
        waiting = asyncio.create_task(desk.bus.ledger.drain())
        expiries: set[int] = set()

        async def renewed_often() -> bool:
            drainer = await desk.bus._store.ledger.get_drainer(DEFAULT_DRAINER)
            expiries.add(drainer.lease_expires_at_ms if drainer else 0)
            expiries.discard(0)
            return bool(expiries) and max(expiries) - min(expiries) > 1000 * lease_s

        await until(renewed_often)
        assert not waiting.done()
        assert (await desk.bus.ledger.drain()).skipped_due_to_lock
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
