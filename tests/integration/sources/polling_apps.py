"""Apps that poll what they are told to. As a program: a worker that ends itself by kill -9 at a
boundary.

    python -m tests.integration.sources.polling_apps URL [BOUNDARY]
"""

import os
import signal
import sys
from typing import Any

import tape
from tape.reactions.declare import Registry
from tape.runs.boundary import set_boundary_hook
from tape.runs.declare import Apps
from tape.runs.driving import polled_sources
from tape.settings import ReactorSettings, ReactorsSettings, Settings
from tape.worker import run_worker

LEASE = ReactorSettings(lease_ttl_s=2.0)
SETTINGS = Settings(reactors=ReactorsSettings(recovery=LEASE, agent=LEASE, poll_s=0.2))
APPS = Apps()
QUIET_S = 3.0
"""How long a poll waits for more behind what has come: the machine may be busy."""


@tape.app("poller", registry=APPS)
async def poller(ctx: tape.Context, asked: dict[str, Any]) -> Any:
    """Poll once, acknowledge by hand if that is how, and tell what came."""
    polled = await ctx.poll(**asked)
    acked = await ctx.ack(polled.receipts) if polled.receipts else 0
    return shown(polled, acked)


@tape.app("blocking_poller", registry=APPS)
def blocking_poller(ctx: tape.SyncContext, asked: dict[str, Any]) -> Any:
    polled = ctx.poll(**asked)
    acked = ctx.ack(polled.receipts) if polled.receipts else 0
    return shown(polled, acked)


@tape.app("waiting_poller", registry=APPS)
async def waiting_poller(ctx: tape.Context, asked: dict[str, Any]) -> Any:
    polled = await ctx.poll(**asked)
    await ctx.gate("go on")
    return shown(polled, 0)


@tape.app("failing_poller", registry=APPS)
async def failing_poller(ctx: tape.Context, asked: dict[str, Any]) -> None:
    polled = await ctx.poll(**asked)
    raise ValueError(f"{polled.count} came")


def shown(polled: tape.Polled, acked: int) -> dict[str, Any]:
    return {
        "count": polled.count,
        "acked": polled.acked,
        "by_hand": acked,
        "payloads": [message["payload"] for message in polled.messages],
        "places": [message["message"]["place"] for message in polled.messages],
    }


def main(url: str, boundary: str = "") -> None:
    def end_there(name: str) -> None:
        if name.startswith(boundary):
            os.kill(os.getpid(), signal.SIGKILL)

    if boundary:
        set_boundary_hook(end_there)
    vars(polled_sources)["QUIET_S"] = QUIET_S
    options = tape.worker.WorkerOptions(url=url, apps=APPS, settings=SETTINGS, registry=Registry())
    run_worker(options)


if __name__ == "__main__":
    main(*sys.argv[1:])
