"""What goes wrong on purpose, at each route, and what is left after a kill."""

import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, assert_never, get_args

import httpx
import pytest

from examples.treasury.clients import (
    AckLost,
    Bank,
    Broker,
    Controls,
    CounterpartyError,
    Ledger,
    Refused,
    Unavailable,
)
from examples.treasury.counterparties import CounterpartyServer
from examples.treasury.records import Do, Line, Route
from tests.integration.docs.pages import ROOT
from tests.integration.examples.conftest import Outcomes

LINES: list[Line] = [{"account": "fees", "cents": 5}, {"account": "cash", "cents": -5}]


class Doing(NamedTuple):
    """A request to a route: how it is sent, its key, and how often the books have it done."""

    send: Callable[[], object]
    key: str
    done: Callable[[], int]


@pytest.fixture(params=get_args(Route))
def route(request: pytest.FixtureRequest) -> Route:
    chosen: Route = request.param
    return chosen


@pytest.fixture
def doing(route: Route, bank: Bank, broker: Broker, ledger: Ledger, key: str) -> Doing:
    match route:
        case "bank.wire":
            return Doing(
                lambda: bank.wire(key, "operating", "reserve", 5),
                key,
                lambda: len(bank.wire_status(key)["found"]),
            )
        case "bank.plain_wire":
            return Doing(
                lambda: bank.plain_wire(key, "operating", "reserve", 5),
                key,
                lambda: len(bank.plain_wires(key)),
            )
        case "bank.reverse":
            wire = bank.wire(key, "operating", "reserve", 5)
            return Doing(
                lambda: bank.reverse(wire["id"]),
                wire["id"],
                lambda: bank.wire_status(key)["found"][0]["reversed"],
            )
        case "broker.order":
            return Doing(
                lambda: broker.order(key, "EURUSD", "buy", 5),
                key,
                lambda: len(broker.order_status(key)["found"]),
            )
        case "broker.cancel":
            order = broker.order(key, "EURUSD", "buy", 5)
            return Doing(
                lambda: broker.cancel(order["id"]),
                order["id"],
                lambda: broker.order_status(key)["found"][0]["cancelled"],
            )
        case "ledger.batch":
            return Doing(
                lambda: ledger.post(key, LINES),
                key,
                lambda: len(ledger.batch_status(key)["found"]),
            )
        case _:
            assert_never(route)


def test_a_lost_ack(route: Route, doing: Doing, controls: Controls, outcomes: Outcomes) -> None:
    controls.set_hook(route, "lose_ack")
    with pytest.raises(AckLost):
        doing.send()
    assert doing.done() == 1
    doing.send()
    again = "did" if route == "bank.plain_wire" else "repeated"
    assert outcomes(route, doing.key) == ["did", again]
    assert doing.done() == (2 if route == "bank.plain_wire" else 1)


@pytest.mark.parametrize(
    ("do", "error", "outcome"), [("fail", Unavailable, "failed"), ("refuse", Refused, "refused")]
)
def test_nothing_done(
    route: Route,
    doing: Doing,
    controls: Controls,
    outcomes: Outcomes,
    do: Do,
    error: type[CounterpartyError],
    outcome: str,
) -> None:
    controls.set_hook(route, do, times=2)
    for _ in range(2):
        with pytest.raises(error, match="as a hook asks"):
            doing.send()
    assert doing.done() == 0
    doing.send()
    assert doing.done() == 1
    assert outcomes(route, doing.key) == [outcome, outcome, "did"]


def test_a_crash(
    route: Route,
    doing: Doing,
    controls: Controls,
    outcomes: Outcomes,
    server: CounterpartyServer,
) -> None:
    controls.set_hook(route, "crash", times=2)
    for _ in range(2):
        with pytest.raises(AckLost):
            doing.send()
        assert server.wait() == -signal.SIGKILL
        server.start()
    again = "did" if route == "bank.plain_wire" else "repeated"
    assert outcomes(route, doing.key) == ["did", again]
    assert doing.done() == (2 if route == "bank.plain_wire" else 1)
    doing.send()


def test_two_wires_where_one_was_asked_for(bank: Bank, controls: Controls, key: str) -> None:
    before = bank.balances()["reserve"]
    controls.set_hook("bank.wire", "twice")
    first = bank.wire(key, "operating", "reserve", 5)
    status = bank.wire_status(key)
    assert status["status"] == "twice"
    assert [wire["cents"] for wire in status["found"]] == [5, 5]
    assert status["found"][0] == first

    controls.set_hook("bank.plain_wire", "twice")
    first = bank.plain_wire(key, "operating", "reserve", 5)
    twins = bank.plain_wires(key)
    assert twins == [first, {**first, "id": twins[1]["id"]}]
    assert first["id"] != twins[1]["id"]
    assert bank.balances()["reserve"] == before + 20


def test_two_wires_are_made_or_none(own_server: CounterpartyServer) -> None:
    with Bank(own_server.url) as bank, Controls(own_server.url) as controls:
        before = bank.balances()
        controls.set_hook("bank.plain_wire", "twice")
        with pytest.raises(Refused, match="'reserve' holds"):
            bank.plain_wire("most of it", "reserve", "supplier", before["reserve"] - 1)
        assert bank.balances() == before
        assert controls.books()["wires"] == []


def test_hooks_are_met_in_the_order_they_were_set(bank: Bank, controls: Controls, key: str) -> None:
    planned: list[tuple[Do, type[CounterpartyError]]] = [
        ("refuse", Refused), ("lose_ack", AckLost), ("fail", Unavailable)
    ]  # fmt: skip
    for do, _ in planned:
        controls.set_hook("bank.wire", do)
    for _, error in planned:
        with pytest.raises(error):
            bank.wire(key, "operating", "reserve", 5)
    bank.wire(key, "operating", "reserve", 5)
    assert [(call["outcome"], call["hook"]) for call in controls.calls() if call["key"] == key] == [
        ("refused", "refuse"),
        ("did", "lose_ack"),
        ("failed", "fail"),
        ("repeated", None),
    ]


def test_a_request_that_is_refused_anyway_spends_its_hook(
    bank: Bank, controls: Controls, server: CounterpartyServer, key: str
) -> None:
    controls.set_hook("bank.wire", "crash")
    pid = server.pid
    with pytest.raises(Refused, match="no account"):
        bank.wire(key, "operating", "nobody", 5)
    bank.wire(key, "operating", "reserve", 5)
    assert server.pid == pid


def test_hooks_are_cleared(bank: Bank, controls: Controls, key: str) -> None:
    controls.set_hook("bank.wire", "fail", times=5)
    controls.clear_hooks()
    bank.wire(key, "operating", "reserve", 5)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"route": "bank.loan"}, "no route 'bank.loan'; there are bank.wire, bank.plain_wire"),
        ({"route": None}, "no route None"),
        ({"do": "explode"}, "a hook cannot 'explode'; it can lose_ack, fail"),
        ({"times": 0}, "'times' must be 1 to 1000000, not 0"),
        ({"times": "3"}, "'times' must be 1 to 1000000, not '3'"),
        ({"do": "twice", "route": "ledger.batch"}, "'twice' is for bank.wire and bank.plain_wire"),
    ],
)
def test_a_hook_that_cannot_be(
    server: CounterpartyServer, bank: Bank, key: str, change: dict[str, Any], reason: str
) -> None:
    body = {"route": "bank.wire", "do": "fail", **change}
    answer = httpx.post(f"{server.url}/hooks", json=body)
    assert answer.status_code == 422
    assert reason in answer.json()["reason"]
    bank.wire(key, "operating", "reserve", 5)


def test_all_of_it_outlives_a_kill(own_server: CounterpartyServer) -> None:
    with (
        Bank(own_server.url) as bank,
        Broker(own_server.url) as broker,
        Ledger(own_server.url) as ledger,
        Controls(own_server.url) as controls,
    ):
        bank.reverse(bank.wire("wire", "operating", "reserve", 5)["id"])
        bank.plain_wire("plain", "operating", "supplier", 5)
        broker.order("order", "EURUSD", "buy", 5)
        ledger.post("batch", LINES)
        price = broker.quote("EURUSD")["price"]
        controls.set_hook("ledger.batch", "refuse")
        kept = bank.balances(), controls.books(), controls.calls()
        url = own_server.url
        own_server.kill()
        with pytest.raises(Unavailable):
            bank.balances()
        own_server.start()
        assert own_server.url == url
        assert (bank.balances(), controls.books(), controls.calls()) == kept
        assert broker.quote("EURUSD")["price"] > price
        with pytest.raises(Refused, match="as a hook asks"):
            ledger.post("batch", LINES)
        assert bank.wire("wire", "operating", "reserve", 5)["id"] == "wire-1"


def test_stop_and_start_again(own_server: CounterpartyServer) -> None:
    with pytest.raises(RuntimeError, match="are running"):
        own_server.start()
    own_server.stop()
    with pytest.raises(RuntimeError, match="are not running"):
        own_server.kill()
    own_server.start()
    with Bank(own_server.url) as bank:
        assert bank.balances()


def refused_to_start(port: int, state: Path) -> str:
    command = [sys.executable, "-m", "examples.treasury.counterparties"]
    done = subprocess.run(
        [*command, "--port", str(port), "--state", str(state)],
        cwd=ROOT, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (2, "")
    return done.stderr


def test_a_command_line_that_cannot_be(tmp_path: Path) -> None:
    state = tmp_path / "missing" / "state.db"
    assert f"cannot keep books in {state}: unable to open" in refused_to_start(0, state)
    state = tmp_path / "text"
    state.write_text("not a database " * 100)
    assert f"cannot keep books in {state}: file is not a database" in refused_to_start(0, state)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert f"cannot listen on port {port}: " in refused_to_start(port, tmp_path / "state.db")
    assert "cannot listen on port 70000: " in refused_to_start(70000, tmp_path / "state.db")


def test_a_server_that_does_not_start(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    server = CounterpartyServer(tmp_path / "missing" / "state.db")
    with pytest.raises(RuntimeError, match="said '' instead of being ready"):
        server.start()
    assert "cannot keep books in" in capfd.readouterr().err
    with pytest.raises(RuntimeError, match="are not running"):
        server.stop()
