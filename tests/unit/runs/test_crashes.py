"""An app cut off wherever it can be: it ends as if nothing had happened, and acts once a key."""

from pathlib import Path
from typing import Any

import pytest

import tape
from tape.runs.declare import Apps
from tape.testing.runs import app_kit, crashes

ACTS: list[str] = []
APPS = Apps()


@tape.effect(registry=APPS)
async def pay(cents: int) -> int:
    ACTS.append(tape.idempotency_key())
    return cents


@tape.app("shop", registry=APPS)
async def shop(ctx: tape.Context, orders: list[int]) -> dict[str, Any]:
    paid = [await pay(cents) for cents in orders]
    answer = await ctx.gate("ship")
    await ctx.sleep(60)
    drawn = tape.random()
    await pay(1)
    await ctx.record("shop.shipped", {"paid": paid})
    await ctx.set_value("shop", "last", paid)
    return {"paid": paid, "answer": answer, "drawn": drawn}


@pytest.fixture(autouse=True)
def _fresh() -> None:
    ACTS.clear()


async def test_undisturbed(tmp_path: Path) -> None:
    async with app_kit(tmp_path, apps=APPS) as kit:
        begun = await kit.start_run(shop, [5, 7])
        waiting = await kit.settle(begun.run_id)
        assert waiting is not None
        assert waiting.status == tape.RunStatus.WAITING
        await kit.send_signal(begun.run_id, "ship", {"by": "post"})
        ended = await kit.settle(begun.run_id)
        assert ended is not None
        assert ended.status == tape.RunStatus.TERMINAL
        assert len(ACTS) == len(set(ACTS)) == 3
        journal = await kit.journal(begun.run_id)
        assert journal.steps == [
            "effect pending pay",
            "effect pending pay",
            "gate waiting ship",
            "timer set sleep:1",
            "decision recorded random",
            "effect pending pay",
            "event recorded shop.shipped",
            "value changed shop/last",
        ]


async def test_cut_off_everywhere(tmp_path: Path) -> None:
    places = []
    async for crash in crashes(tmp_path, shop, [5], apps=APPS, signals=[("ship", True)]):
        run = await crash.recovered()
        assert run.status == tape.RunStatus.TERMINAL, crash.boundary
        assert len(set(ACTS)) == 2, crash.boundary
        assert len(ACTS) <= 3, crash.boundary
        assert crash.journal.effects("pay") == ["confirmed", "confirmed"]
        assert crash.journal.steps.count("event recorded shop.shipped") == 1
        tokens = crash.journal.tokens()
        assert tokens == sorted(set(tokens))
        places.append(crash.boundary)
        ACTS.clear()
    assert "before act pay" in places
    assert "after act pay" in places
    assert len(places) > 15
