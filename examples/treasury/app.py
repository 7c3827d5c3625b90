"""Sweep what is above a floor into the reserve, hedge it, pay the fee and post the books, once.

Each act is an effect: it is written down before it is done and carries a key that the counterparty
recognises. So however often this is cut off and begun again, there is one wire, one hedge, one fee
and one batch in the ledger. Above a threshold somebody has to approve first.

    tape worker -m examples.treasury.app
    python -c "import tape; print(tape.start('treasury', {'floor_cents': 100_000_00}))"
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from decimal import Decimal
from typing import Any, TypeVar

import tape
from examples.treasury.clients import (
    AckLost,
    AsyncBank,
    AsyncBroker,
    AsyncClient,
    AsyncLedger,
    Refused,
)
from examples.treasury.records import Line, Order, Wire

C = TypeVar("C", bound=AsyncClient)

PAIR = "EURUSD"
FEE_CENTS = 25_00
PATIENT = tape.RetryPolicy(attempts=10, first_s=0.05, most_s=1.0)


@asynccontextmanager
async def at(kind: type[C]) -> AsyncIterator[C]:
    """A client whose errors are Tape's: it must know what is certain and what is not."""
    async with kind(os.environ["TREASURY_URL"]) as client:
        try:
            yield client
        except AckLost as error:
            raise tape.AckLost(str(error)) from error
        except Refused as error:
            raise tape.GiveUp(str(error)) from error


@tape.effect(semantics="observe_only", retry=PATIENT)
async def read_balances() -> dict[str, int]:
    async with at(AsyncBank) as bank:
        return await bank.balances()


@tape.effect(semantics="observe_only", retry=PATIENT)
async def read_price(pair: str) -> str:
    async with at(AsyncBroker) as broker:
        return (await broker.quote(pair))["price"]


async def find_wire(key: str, _request: dict[str, Any]) -> tape.Observed:
    async with at(AsyncBank) as bank:
        return _observed(await bank.wire_status(key))


async def reverse_wire(response: Wire) -> None:
    async with at(AsyncBank) as bank:
        await bank.reverse(response["id"])


@tape.effect(connector="bank", check=find_wire, compensate=reverse_wire, retry=PATIENT)
async def sweep(cents: int) -> Wire:
    async with at(AsyncBank) as bank:
        return await bank.wire(tape.idempotency_key(), "operating", "reserve", cents)


async def find_order(key: str, _request: dict[str, Any]) -> tape.Observed:
    async with at(AsyncBroker) as broker:
        return _observed(await broker.order_status(key))


async def cancel_hedge(response: Order) -> None:
    async with at(AsyncBroker) as broker:
        await broker.cancel(response["id"])


@tape.effect(connector="broker", check=find_order, compensate=cancel_hedge, retry=PATIENT)
async def hedge(pair: str, cents: int) -> Order:
    async with at(AsyncBroker) as broker:
        return await broker.order(tape.idempotency_key(), pair, "sell", cents)


async def find_fee(key: str, _request: dict[str, Any]) -> tape.Observed:
    async with at(AsyncBank) as bank:
        return _observed({"found": await bank.plain_wires(key)})


async def return_fee(response: Wire) -> None:
    async with at(AsyncBank) as bank:
        await bank.reverse(response["id"])


async def return_second_fee(key: str) -> None:
    """The upstream made it twice: the first stands, the others go back."""
    async with at(AsyncBank) as bank:
        for wire in (await bank.plain_wires(key))[1:]:
            await bank.reverse(wire["id"])


@tape.effect(
    semantics="non_idempotent",
    dispatch="outbox",
    connector="bank-fees",
    check=find_fee,
    compensate=return_fee,
    undo_duplicate=return_second_fee,
)
async def pay_fee(cents: int) -> Wire:
    """The supplier's bank does not recognise repeats, so this is never done again unseen."""
    async with at(AsyncBank) as bank:
        return await bank.plain_wire(tape.idempotency_key(), "operating", "supplier", cents)


async def find_batch(key: str, _request: dict[str, Any]) -> tape.Observed:
    async with at(AsyncLedger) as ledger:
        return _observed(await ledger.batch_status(key))


@tape.effect(connector="ledger", check=find_batch, retry=PATIENT)
async def post_ledger(lines: list[Line]) -> dict[str, Any]:
    async with at(AsyncLedger) as ledger:
        return dict(await ledger.post(tape.idempotency_key(), lines))


@tape.app("treasury", version="1")
async def treasury(ctx: tape.Context, input: dict[str, Any]) -> dict[str, Any]:  # noqa: A002
    balances = await read_balances()
    price = Decimal(await read_price(PAIR))
    cents = balances["operating"] - input.get("floor_cents", 0) - FEE_CENTS
    if cents <= 0:
        return {"swept_cents": 0}
    if cents > input.get("approve_above_cents", cents):
        answer = await ctx.gate("approve", {"cents": cents, "price": str(price)})
        if not answer.get("approved"):
            return {"swept_cents": 0, "refused": True}
    wire = await sweep(cents)
    order = await hedge(PAIR, cents)
    fee = await pay_fee(FEE_CENTS)
    lines: list[Line] = [
        {"account": "reserve", "cents": cents},
        {"account": "fees", "cents": FEE_CENTS},
        {"account": "operating", "cents": -cents - FEE_CENTS},
    ]
    batch = await post_ledger(lines)
    await ctx.record("treasury.swept", {"cents": cents, "wire": wire["id"]})
    await ctx.set_value("treasury", "last_sweep", {"cents": cents, "at": str(tape.now())})
    return {
        "swept_cents": cents,
        "wire": wire["id"],
        "order": order["id"],
        "fee": fee["id"],
        "batch": batch["id"],
    }


def _observed(status: Any) -> tape.Observed:
    """What a counterparty's own status comes to."""
    found = status["found"]
    if not found:
        return tape.Observed("absent")
    kind = "duplicate" if len(found) > 1 else "confirmed"
    return tape.Observed(kind, found[0], external_ref=found[0]["id"])
