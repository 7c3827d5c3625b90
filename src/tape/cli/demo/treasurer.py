"""A worker that drives the desk's treasury, as a process: `python -m tape.cli.demo.treasurer`.

Its arguments are the store, where the bank, the broker and the ledger are, and its own name. It
works until it is told to stop, or killed.
"""

import logging
import sys
from dataclasses import replace
from functools import partial
from typing import Any

from tape.cli.demo.houses import ask
from tape.cli.demo.treasury import APP
from tape.config import ReactorSettings, ReactorsSettings, Settings
from tape.errors import AckLost
from tape.runs.ambient import idempotency_key
from tape.runs.declare import Apps, Observed, app, effect
from tape.runs.driving.context import Context
from tape.worker import WorkerOptions, run_worker

LEASE = ReactorSettings(lease_ttl_s=1.5)
SETTINGS = replace(
    Settings(),
    reactors=ReactorsSettings(
        recovery=LEASE, reconciler=LEASE, outbox=LEASE, compensation=LEASE, poll_s=0.1
    ),
)


def declare(houses: str) -> Apps:
    """The treasury, dealing with the houses at that address."""
    apps = Apps()

    async def act(house: str, **do: Any) -> Any:
        try:
            return await ask(houses, house, idempotency_key(), do)
        except (EOFError, ConnectionResetError) as error:
            raise AckLost(str(error)) from error

    async def look(house: str, key: str, _request: Any) -> Observed:
        found = await ask(houses, house, key, None)
        return Observed("confirmed" if found else "absent", found)

    @effect(connector="bank", check=partial(look, "bank"), registry=apps)
    async def wire(cents: int) -> Any:
        return await act("bank", cents=cents)

    @effect(connector="broker", check=partial(look, "broker"), registry=apps)
    async def hedge(cents: int) -> Any:
        return await act("broker", cents=cents)

    @effect(connector="ledger", check=partial(look, "ledger"), registry=apps)
    async def post(lines: dict[str, int]) -> Any:
        return await act("ledger", lines=lines)

    @app(APP, registry=apps)
    async def treasury(ctx: Context, cents: int) -> dict[str, str]:
        sent = await wire(cents)
        order = await hedge(cents)
        batch = await post({"reserve": cents, "operating": -cents})
        await ctx.record("treasury.swept", {"cents": cents, "wire": sent["id"]})
        return {"wire": sent["id"], "order": order["id"], "batch": batch["id"]}

    return apps


if __name__ == "__main__":
    logging.disable(logging.WARNING)  # what goes wrong is part of the play, and told there
    store, address, name = sys.argv[1:]
    run_worker(WorkerOptions(url=store, settings=SETTINGS, apps=declare(address), owner=name))
