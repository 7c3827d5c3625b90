"""The subscriptions of the examples: the tour on a real NATS server, and documents that load."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from examples.subscriptions.books import Books
from examples.subscriptions.sender import Order, orders
from tape.model.entry import Entry
from tape.model.run import Run
from tape.subscriptions.spec import read_document
from tests.integration.cli.command import clean_environment
from tests.integration.docs.pages import ROOT

DOCUMENTS = sorted((ROOT / "examples").rglob("*.yaml"))


def test_each_order_is_one_run_though_the_broker_is_killed() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "examples.subscriptions.tour"],
        cwd=ROOT, env=clean_environment(), capture_output=True, text=True, timeout=110, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    killed, figures, *promises = done.stdout.splitlines()
    assert re.fullmatch(r"NATS was killed after \d+ of 400 orders had been sent", killed)
    sent, accepted, _again, rerouted = map(int, re.findall(r"\d+", figures))
    assert (sent, accepted, rerouted) == (400, 400, 40)
    assert [promise[0] for promise in promises] == ["✓"] * 4


SENT = orders(20)


def run_of(order: Order) -> Run:
    urgent = ("place_urgent_order", "urgent") if order.is_urgent else ("place_order", "desk")
    fields: dict[str, Any] = dict.fromkeys(Run._fields, 0) | {"run_id": f"run-{order.number}"}
    return Run(**(fields | dict(zip(("app_name", "pool"), urgent, strict=True))))


def first_of(order: Order) -> Entry:
    payload = json.dumps({"input": {"payload": {"number": order.number}}})
    fields: dict[str, Any] = dict.fromkeys(Entry._fields, "") | {"run_id": f"run-{order.number}"}
    return Entry(**(fields | {"payload_json": payload, "trace_id": order.trace_id}))


GOOD = Books(
    SENT,
    [order.number for order in SENT],
    len(SENT),
    5,
    [run_of(order) for order in SENT],
    [first_of(order) for order in SENT],
    [{"value": "pay_everybody"}],
)
BAD = {
    "lost": (GOOD._replace(accepted=19, runs=GOOD.runs[1:], first=GOOD.first[1:]), {0, 3}),
    "placed twice": (GOOD._replace(placed=[*GOOD.placed, 7]), {0}),
    "two runs": (GOOD._replace(runs=[*GOOD.runs, GOOD.runs[0]]), {0}),
    "not rerouted": (GOOD._replace(runs=[run._replace(pool="desk") for run in GOOD.runs]), {1}),
    "obeyed": (GOOD._replace(refused=[]), {2}),
    "another trace": (GOOD._replace(first=[e._replace(trace_id="") for e in GOOD.first]), {3}),
}


def test_the_promises_hold_of_books_that_are_right() -> None:
    assert [held for _promise, held in GOOD.promises()] == [True] * 4


@pytest.mark.parametrize("what", BAD)
def test_the_tour_says_which_promise_is_broken(what: str) -> None:
    books, broken = BAD[what]
    assert {n for n, (_promise, held) in enumerate(books.promises()) if not held} == broken


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.stem)
def test_each_document_is_in_order(document: Path) -> None:
    assert read_document(document.read_text()).spec.name == document.stem
