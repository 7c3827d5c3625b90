"""What the bank, the broker and the ledger do, refuse and remember."""

import asyncio
import json
from decimal import Decimal
from typing import Any

import httpx
import pytest

from examples.treasury.bank import OPENING
from examples.treasury.clients import AsyncBank, Bank, Broker, Controls, Ledger, Refused
from examples.treasury.counterparties import CounterpartyServer
from examples.treasury.records import Line
from tests.integration.examples.conftest import Outcomes

RENT: list[Line] = [{"account": "rent", "cents": 900}, {"account": "cash", "cents": -900}]


def post(server: CounterpartyServer, path: str, body: Any, key: str = "") -> httpx.Response:
    """A request as the typed clients would not send it."""
    headers = {"idempotency-key": key} if key else {}
    return httpx.post(f"{server.url}{path}", content=json.dumps(body), headers=headers)


def test_the_accounts_at_first(own_server: CounterpartyServer) -> None:
    with Bank(own_server.url) as bank, Controls(own_server.url) as controls:
        assert bank.balances() == OPENING
        assert controls.calls() == []
        assert controls.books() == {"wires": [], "orders": [], "batches": []}


def test_a_wire_moves_money_once_for_its_key(
    bank: Bank, controls: Controls, outcomes: Outcomes, key: str
) -> None:
    before = bank.balances()
    first = bank.wire(key, "operating", "reserve", 250)
    assert bank.wire(key, "operating", "reserve", 250) == first
    moved = {"operating": before["operating"] - 250, "reserve": before["reserve"] + 250}
    assert bank.balances() == {**before, **moved}
    assert [wire for wire in controls.books()["wires"] if wire["key"] == key] == [first]
    assert outcomes("bank.wire", key) == ["did", "repeated"]


def test_a_key_with_another_body_is_refused(bank: Bank, outcomes: Outcomes, key: str) -> None:
    bank.wire(key, "operating", "reserve", 250)
    before = bank.balances()
    with pytest.raises(Refused, match="came before with another body") as refused:
        bank.wire(key, "operating", "reserve", 251)
    assert refused.value.status == 409
    assert bank.balances() == before
    assert outcomes("bank.wire", key) == ["did", "refused"]


async def test_racing_requests_with_one_key_make_one_wire(
    server: CounterpartyServer, outcomes: Outcomes, key: str
) -> None:
    async with AsyncBank(server.url) as bank:
        calls = [bank.wire(key, "operating", "reserve", 1) for _ in range(10)]
        made = await asyncio.gather(*calls)
        assert await bank.wire_status(key) == {"status": "done", "found": [made[0]]}
    assert made == [made[0]] * 10
    assert outcomes("bank.wire", key) == ["did"] + ["repeated"] * 9


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"cents": OPENING["reserve"] * 1000}, "'reserve' holds "),
        ({"cents": 0}, "'cents' must be a whole number"),
        ({"cents": -5}, "'cents' must be above 0"),
        ({"cents": 1.5}, "'cents' must be a whole number"),
        ({"cents": True}, "'cents' must be a whole number"),
        ({"cents": "5"}, "'cents' must be a whole number"),
        ({"cents": 2**70}, "'cents' must be a whole number"),
        ({"cents": None}, "'cents' must be a whole number"),
        ({"from": "nobody"}, "there is no account 'nobody'"),
        ({"to": "nobody"}, "there is no account 'nobody'"),
        ({"to": "reserve"}, "'from' and 'to' are both 'reserve'"),
        ({"to": ""}, "'to' must be a printable text"),
        ({"from": 7}, "'from' must be a printable text"),
        ({"from": "\ud800"}, "'from' must be a printable text"),
    ],
)
def test_a_wire_that_cannot_be_is_refused_and_leaves_its_key_free(
    server: CounterpartyServer,
    bank: Bank,
    outcomes: Outcomes,
    key: str,
    change: dict[str, Any],
    reason: str,
) -> None:
    before = bank.balances()
    answer = post(
        server, "/bank/wires", {"from": "reserve", "to": "supplier", "cents": 5, **change}, key
    )
    assert answer.status_code == 422
    assert reason in answer.json()["reason"]
    assert bank.balances() == before
    assert bank.wire_status(key)["status"] == "absent"
    bank.wire(key, "reserve", "supplier", 5)
    assert outcomes("bank.wire", key) == ["refused", "did"]


@pytest.mark.parametrize("path", ["/bank/wires", "/broker/orders", "/ledger/batches"])
def test_a_request_without_a_key_or_without_an_object(
    server: CounterpartyServer, path: str
) -> None:
    assert post(server, path, {}).json() == {"reason": "send an Idempotency-Key"}
    answer = post(server, path, ["from"], "key")
    assert (answer.status_code, answer.json()) == (400, {"reason": "the body is not a JSON object"})
    headers = {"idempotency-key": "key"}
    for content in (b"", b"{", b"\xff"):
        answer = httpx.post(f"{server.url}{path}", content=content, headers=headers)
        assert answer.status_code == 400
        assert answer.json()["reason"].startswith("the body is not JSON: ")
    answer = httpx.get(f"{server.url}{path}")
    assert (answer.status_code, answer.json()) == (400, {"reason": "ask with ?key="})


def test_routes_that_are_not_there(server: CounterpartyServer) -> None:
    answer = httpx.get(f"{server.url}/bank/loans")
    assert (answer.status_code, answer.json()) == (404, {"reason": "GET /bank/loans: Not Found"})
    answer = httpx.delete(f"{server.url}/bank/wires")
    assert answer.status_code == 405
    assert answer.json() == {"reason": "DELETE /bank/wires: Method Not Allowed"}


def test_a_plain_wire_is_made_at_every_call(bank: Bank, outcomes: Outcomes, key: str) -> None:
    before = bank.balances()
    assert bank.plain_wires(key) == []
    first = bank.plain_wire(key, "operating", "reserve", 40)
    assert bank.plain_wires(key) == [first]
    second = bank.plain_wire(key, "operating", "reserve", 40)
    assert first["id"] != second["id"]
    assert bank.plain_wires(key) == [first, second]
    assert bank.balances()["operating"] == before["operating"] - 80
    assert outcomes("bank.plain_wire", key) == ["did", "did"]


def test_a_plain_wire_needs_a_reference(server: CounterpartyServer) -> None:
    answer = post(server, "/bank/plain-wires", {"from": "operating", "to": "reserve", "cents": 1})
    assert answer.status_code == 422
    assert answer.json() == {"reason": "'reference' must be a printable text, not None"}


def test_a_wire_is_reversed_once(bank: Bank, outcomes: Outcomes, key: str) -> None:
    before = bank.balances()
    wire = bank.wire(key, "operating", "reserve", 70)
    undone = bank.reverse(wire["id"])
    assert undone == {**wire, "reversed": True}
    assert bank.reverse(wire["id"]) == undone
    assert bank.balances() == before
    assert bank.wire_status(key) == {"status": "done", "found": [undone]}
    assert bank.wire(key, "operating", "reserve", 70) == wire
    assert bank.balances() == before
    assert outcomes("bank.reverse", wire["id"]) == ["did", "repeated"]


def test_one_of_two_plain_wires_is_reversed(bank: Bank, key: str) -> None:
    before = bank.balances()
    kept, extra = [bank.plain_wire(key, "operating", "reserve", 30) for _ in range(2)]
    undone = bank.reverse(extra["id"])
    assert bank.plain_wires(key) == [kept, undone]
    assert bank.balances()["reserve"] == before["reserve"] + 30


def test_a_reversal_that_cannot_be(own_server: CounterpartyServer) -> None:
    with Bank(own_server.url) as bank:
        with pytest.raises(Refused, match="there is no wire 'wire-0'") as refused:
            bank.reverse("wire-0")
        assert refused.value.status == 404
        wire = bank.wire("in", "operating", "supplier", 10)
        bank.wire("out", "supplier", "reserve", 10)
        with pytest.raises(Refused, match="'supplier' holds 0 cents"):
            bank.reverse(wire["id"])
        bank.wire("in again", "operating", "supplier", 10)
        assert bank.reverse(wire["id"])["reversed"]


def test_every_quote_is_another_price(broker: Broker) -> None:
    prices = [Decimal(broker.quote("EURUSD")["price"]) for _ in range(3)]
    assert prices == [prices[0], prices[0] + Decimal("0.0001"), prices[0] + Decimal("0.0002")]
    with pytest.raises(Refused, match="no price for 'EURXXX'; there is one for EURUSD, GBPUSD"):
        broker.quote("EURXXX")


def test_an_order_is_made_once_and_cancelled_once(
    broker: Broker, controls: Controls, outcomes: Outcomes, key: str
) -> None:
    assert broker.order_status(key)["status"] == "absent"
    order = broker.order(key, "GBPUSD", "sell", 1_000)
    assert order["price"] == broker.quote("GBPUSD")["price"]
    assert broker.order(key, "GBPUSD", "sell", 1_000) == order
    assert broker.order_status(key) == {"status": "done", "found": [order]}
    with pytest.raises(Refused, match="another body"):
        broker.order(key, "GBPUSD", "buy", 1_000)
    assert outcomes("broker.order", key) == ["did", "repeated", "refused"]

    cancelled = broker.cancel(order["id"])
    assert cancelled == {**order, "cancelled": True}
    assert broker.cancel(order["id"]) == cancelled
    assert [made for made in controls.books()["orders"] if made["key"] == key] == [cancelled]
    assert outcomes("broker.cancel", order["id"]) == ["did", "repeated"]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"pair": "XXXYYY"}, "there is no price for 'XXXYYY'"),
        ({"side": "hold"}, "'side' must be buy or sell, not 'hold'"),
        ({"cents": 0}, "'cents' must be a whole number"),
    ],
)
def test_an_order_that_cannot_be(
    server: CounterpartyServer, broker: Broker, key: str, change: dict[str, Any], reason: str
) -> None:
    body = {"pair": "EURUSD", "side": "buy", "cents": 5, **change}
    answer = post(server, "/broker/orders", body, key)
    assert answer.status_code == 422
    assert reason in answer.json()["reason"]
    assert broker.order_status(key)["status"] == "absent"
    with pytest.raises(Refused, match="there is no order 'order-0'"):
        broker.cancel("order-0")


def test_a_batch_is_posted_once(
    ledger: Ledger, controls: Controls, outcomes: Outcomes, key: str
) -> None:
    assert ledger.batch_status(key)["status"] == "absent"
    batch = ledger.post(key, RENT)
    assert batch["lines"] == RENT
    assert ledger.post(key, RENT) == batch
    assert ledger.batch_status(key) == {"status": "done", "found": [batch]}
    with pytest.raises(Refused, match="another body"):
        ledger.post(key, RENT[::-1])
    assert [made for made in controls.books()["batches"] if made["key"] == key] == [batch]
    assert outcomes("ledger.batch", key) == ["did", "repeated", "refused"]


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ([{"account": "rent", "cents": 900}], "do not balance: they add up to 900 cents"),
        ([*RENT, {"account": "tax", "cents": -1}], "do not balance: they add up to -1 cents"),
        ([], "'lines' must be a list of lines"),
        (None, "'lines' must be a list of lines"),
        ([*RENT, "tax"], "a line must hold 'account' and 'cents', and one is 'tax'"),
        ([*RENT, {"cents": 5}], "'account' must be a printable text"),
        ([*RENT, {"account": "tax", "cents": 0}], "'cents' must be a whole number"),
    ],
)
def test_a_batch_that_cannot_be(
    server: CounterpartyServer, ledger: Ledger, key: str, lines: Any, reason: str
) -> None:
    answer = post(server, "/ledger/batches", {"lines": lines}, key)
    assert answer.status_code == 422
    assert reason in answer.json()["reason"]
    assert ledger.batch_status(key)["status"] == "absent"


def test_one_key_at_two_routes_is_two_keys(bank: Bank, broker: Broker, key: str) -> None:
    bank.wire(key, "operating", "reserve", 1)
    assert broker.order_status(key)["status"] == "absent"
    assert broker.order(key, "EURUSD", "buy", 1)["id"].startswith("order-")
