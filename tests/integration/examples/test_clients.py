"""What a caller learns when an answer does not come, or is none of those that were agreed."""

import inspect
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import parse_headers

import pytest

from examples.treasury.clients import (
    AckLost,
    AsyncBank,
    AsyncBroker,
    AsyncClient,
    AsyncLedger,
    Bank,
    Broker,
    Client,
    Controls,
    Ledger,
    Refused,
    Unavailable,
)
from examples.treasury.counterparties import CounterpartyServer
from examples.treasury.records import Line

LINES: list[Line] = [{"account": "fees", "cents": 5}, {"account": "cash", "cents": -5}]


def answered(status: str, body: str = "") -> bytes:
    return f"HTTP/1.1 {status}\r\ncontent-length: {len(body)}\r\n\r\n{body}".encode()


BROKEN = {
    "nothing": b"",
    "half a head": b"HTTP/1.1 200 OK\r\ncontent-le",
    "half a body": answered("200 OK", "{}")[:-1],
    "no HTTP": b"SSH-2.0-OpenSSH\r\n",
    "a fault": answered("500 Internal Server Error", "oops"),
    "a gateway without a backend": answered("504 Gateway Timeout"),
}


@contextmanager
def answering(*answers: bytes) -> Iterator[str]:
    """A server that reads a request, writes an answer as it is, and hangs up."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            for answer in answers:
                connection, _ = listener.accept()
                with connection, connection.makefile("rb") as request:
                    request.readline()
                    headers = parse_headers(request)
                    request.read(int(headers.get("content-length", 0)))
                    connection.sendall(answer)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        thread.join(30)
        assert not thread.is_alive()


@pytest.mark.parametrize("answer", BROKEN.values(), ids=BROKEN)
async def test_an_answer_that_tells_nothing(answer: bytes) -> None:
    with answering(answer, answer) as url, Bank(url) as bank:
        with pytest.raises(AckLost, match="POST /bank/wires was sent and not answered"):
            bank.wire("key", "operating", "reserve", 5)
        with pytest.raises(Unavailable, match="GET /bank/wires was sent and not answered"):
            bank.wire_status("key")
    with answering(answer, answer) as url:
        async with AsyncBank(url) as async_bank:
            with pytest.raises(AckLost):
                await async_bank.reverse("wire-1")
            with pytest.raises(Unavailable):
                await async_bank.balances()


async def test_nobody_is_there() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))  # and does not listen
        url = f"http://127.0.0.1:{bound.getsockname()[1]}"
        with Bank(url) as bank, pytest.raises(Unavailable, match="could not be reached"):
            bank.wire("key", "operating", "reserve", 5)
        async with AsyncBank(url) as async_bank:
            with pytest.raises(Unavailable, match="could not be reached"):
                await async_bank.wire("key", "operating", "reserve", 5)


def test_nobody_answers_in_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        with Bank(url, timeout_s=0.1) as bank:
            with pytest.raises(AckLost, match="ReadTimeout"):
                bank.wire("key", "operating", "reserve", 5)
            with pytest.raises(Unavailable, match="ReadTimeout"):
                bank.balances()


def test_away_and_refused_with_reasons_of_any_form() -> None:
    with answering(
        answered("503 Service Unavailable", '{"reason": "at lunch"}'),
        answered("418 Teapot", "short and stout"),
        answered("422 Unprocessable", "[]"),
    ) as url, Ledger(url) as ledger:  # fmt: skip
        with pytest.raises(Unavailable, match="/ledger/batches is away: at lunch"):
            ledger.post("key", [])
        for status, reason in ((418, "short and stout"), (422, "[]")):
            with pytest.raises(Refused) as refused:
                ledger.post("key", [])
            assert (refused.value.status, refused.value.reason) == (status, reason)
            assert str(refused.value) == f"refused ({status}): {reason}"


@pytest.mark.parametrize("key", ["", " key", "key ", "ke\ny", "clé"])
def test_a_key_that_is_no_header(key: str) -> None:
    with answering() as url, Bank(url) as bank, Broker(url) as broker, Ledger(url) as ledger:
        with pytest.raises(ValueError, match="printable ASCII"):
            bank.wire(key, "operating", "reserve", 5)
        with pytest.raises(ValueError, match="printable ASCII"):
            broker.order(key, "EURUSD", "buy", 5)
        with pytest.raises(ValueError, match="printable ASCII"):
            ledger.post(key, [])


def test_a_key_and_a_reference_with_signs_of_urls(bank: Bank) -> None:
    for name in ("run-1/decision-0/wire/0", "a&key=b", "100%25?#;+ ü"):
        if name.isascii():
            assert bank.wire(name, "operating", "reserve", 1)["key"] == name
            assert bank.wire_status(name)["status"] == "done"
        assert bank.plain_wire(name, "operating", "reserve", 1)["reference"] == name
        assert len(bank.plain_wires(name)) == 1


async def test_the_asynchronous_clients_do_the_same(
    server: CounterpartyServer, bank: Bank, broker: Broker, ledger: Ledger, controls: Controls
) -> None:
    async with (
        AsyncBank(server.url) as async_bank,
        AsyncBroker(server.url) as async_broker,
        AsyncLedger(server.url) as async_ledger,
    ):
        wire = await async_bank.wire("async", "operating", "reserve", 5)
        assert bank.wire("async", "operating", "reserve", 5) == wire
        plain = await async_bank.plain_wire("async", "operating", "reserve", 5)
        assert await async_bank.plain_wires("async") == bank.plain_wires("async") == [plain]
        assert await async_bank.reverse(wire["id"]) == bank.reverse(wire["id"])
        assert await async_bank.wire_status("async") == bank.wire_status("async")
        assert await async_bank.balances() == bank.balances()

        order = await async_broker.order("async", "EURUSD", "buy", 5)
        assert (await async_broker.quote("EURUSD"))["price"] == order["price"]
        assert await async_broker.cancel(order["id"]) == broker.cancel(order["id"])
        assert await async_broker.order_status("async") == broker.order_status("async")

        batch = await async_ledger.post("async", LINES)
        assert (await async_ledger.batch_status("async"))["found"] == [batch]
        controls.set_hook("ledger.batch", "lose_ack")
        with pytest.raises(AckLost):
            await async_ledger.post("async 2", LINES)
        with pytest.raises(Refused, match="another body"):
            await async_ledger.post("async 2", LINES[::-1])
        assert ledger.batch_status("async 2")["status"] == "done"


@pytest.mark.parametrize(
    ("blocking", "asynchronous"),
    [(Bank, AsyncBank), (Broker, AsyncBroker), (Ledger, AsyncLedger)],
)
def test_both_clients_have_the_same_calls(
    blocking: type[Client], asynchronous: type[AsyncClient]
) -> None:
    def described(client: type) -> dict[str, inspect.Signature]:
        return {
            name: inspect.signature(call)
            for name, call in vars(client).items()
            if not name.startswith("_")
        }

    assert described(blocking) == described(asynchronous)
    assert described(blocking)
