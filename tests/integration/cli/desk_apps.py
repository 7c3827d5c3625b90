"""Apps for the command line to start, look into and replay. DESK_CHANGED is their next version."""

import os
from typing import Any

import tape


def reverse(response: dict[str, Any]) -> None:
    if response["id"] == "w13":
        raise RuntimeError("the bank is closed")


@tape.effect(compensate=reverse, compensate_attempts=1)
async def wire(cents: int, to: str = "") -> dict[str, Any]:
    return {"id": f"w{cents}", "to": to}


@tape.effect
async def audit(cents: int) -> None: ...


def look(_key: str, _request: Any) -> tape.Observed:
    return tape.Observed("stuck", error={"type": "Odd", "message": "the bank cannot tell"})


@tape.effect(check=look)
async def doubtful() -> None:
    raise tape.AckLost("the line is dead")


@tape.app("pay", version="1")
async def pay(ctx: tape.Context, order: dict[str, Any]) -> dict[str, Any]:
    await ctx.set_budget(usd=5)
    if os.environ.get("DESK_CHANGED"):
        await audit(order["cents"])
    wired = await wire(order["cents"], to="DE1")
    word = await ctx.gate("approve", {"cents": order["cents"]})
    if not word["ok"]:
        raise ValueError("refused by " + word["by"])
    noted = await ctx.result(await ctx.start("note", "x" * 500))
    return {"wire": wired["id"], "noted": noted}


@tape.app("note")
def note(ctx: tape.SyncContext, text: str) -> int:
    return len(text) + int(ctx.random())


@tape.app("doubt")
async def doubt(ctx: tape.Context) -> None:
    await doubtful()
