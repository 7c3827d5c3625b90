"""What the journal and the venue have at the end, and what must hold of it."""

from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import tape
from examples.subscriptions import apps
from examples.subscriptions.sender import NOT_ON_THE_LIST, Order
from tape.model.entry import Entry
from tape.model.run import Run

NAME = "orders"
PAGE = 1_000


class Books(NamedTuple):
    """`placed` are the numbers of orders at the venue, `first` has the first entry of each run,
    `refused` the values that a header may not have."""

    sent: list[Order]
    placed: list[int]
    accepted: int
    redelivered: int
    runs: list[Run]
    first: list[Entry]
    refused: list[dict[str, Any]]

    @property
    def rerouted(self) -> list[Run]:
        return [run for run in self.runs if run.app_name == "place_urgent_order"]

    def promises(self) -> Iterator[tuple[str, bool]]:
        """Each with whether it held."""
        numbers = [order.number for order in self.sent]
        by_order = {entry.payload["input"]["payload"]["number"]: entry for entry in self.first}
        run_of = {number: entry.run_id for number, entry in by_order.items()}
        trace_of = {number: entry.trace_id for number, entry in by_order.items()}
        yield (
            "every order is one run, and was placed once",
            self.accepted == len(self.runs) == len(self.first) == len(self.sent)
            and sorted(by_order) == numbers
            and Counter(self.placed) == Counter(numbers),
        )
        urgent = {run_of.get(order.number) for order in self.sent if order.is_urgent}
        yield (
            "the urgent ones, and no others, went to their own app and pool",
            {run.run_id for run in self.rerouted} == urgent
            and {run.run_id for run in self.runs if run.pool == "urgent"} == urgent,
        )
        odd = run_of.get(NOT_ON_THE_LIST)
        went = {(run.app_name, run.pool) for run in self.runs if run.run_id == odd}
        yield (
            "an app that is not on the list was not started: its order went the usual way",
            went == {("place_order", "desk")}
            and [refused["value"] for refused in self.refused] == ["pay_everybody"],
        )
        yield (
            "each run goes on in the trace that its order came with",
            all(trace_of.get(order.number) == order.trace_id for order in self.sent),
        )


async def read_books(client: tape.AsyncTapeClient, sent: list[Order]) -> Books:
    counts = (await client.subscription(NAME)).listener
    applied = await _entries(client, f"/tape/subscription/message_directives_applied/{NAME}")
    return Books(
        sent,
        [*apps.AT_THE_VENUE],
        counts.accepted,
        counts.redelivered,
        await _runs(client),
        await _entries(client, f"/tape/run/runnable/*/subscription/{NAME}/**"),
        [refused for entry in applied for refused in entry.payload["refused"]],
    )


async def _runs(client: tape.AsyncTapeClient) -> list[Run]:
    found: list[Run] = []
    while page := await client.list_runs(
        subscription=NAME, limit=PAGE, after=found[-1].run_id if found else ""
    ):
        found += page
    return found


async def _entries(client: tape.AsyncTapeClient, pattern: str) -> list[Entry]:
    async with client.follow(pattern, live=False) as entries:
        return [entry async for entry in entries]
