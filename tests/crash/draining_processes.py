"""Processes that drain, to be killed and stopped."""

import asyncio
from dataclasses import replace
from multiprocessing.connection import Connection

from tape.ledger import drain_loop
from tape.programs.connect import open_bus
from tape.settings import DrainerSettings, Settings, SqliteSettings

LEASE_S = 0.4
SETTINGS = Settings(
    sqlite=SqliteSettings(poll_s=0.02),
    drainers=DrainerSettings(lease_s=LEASE_S, page=7, retry_s=0.1),
)


def drain_for_ever(url: str) -> None:
    drain_loop.LOCKED_S = 0.05

    async def work() -> None:
        bus = await open_bus(url, SETTINGS)
        bus.start_draining()
        await asyncio.Event().wait()

    asyncio.run(work())


def drain_once(url: str, answer: Connection, lease_s: float) -> None:
    """One pass, and what came of it."""

    async def work() -> None:
        drainers = replace(SETTINGS.drainers, lease_s=lease_s)
        bus = await open_bus(url, replace(SETTINGS, drainers=drainers))
        answer.send(await bus.ledger.drain())
        await bus.close()

    asyncio.run(work())
