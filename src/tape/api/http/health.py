"""Whether the process lives, whether it can work, and what it counts."""

import asyncio
import logging
from http import HTTPStatus

from fastapi import Request, Response

from tape.api.http.door import Refresh
from tape.api.http.entry import json_response
from tape.api.http.errors import error_response
from tape.api.http.fields import Reply
from tape.api.http.readiness import why_not_ready
from tape.api.http.routes import Routes, TheDoor
from tape.calls.role import Role
from tape.errors import StoreUnavailable, TapeError
from tape.telemetry import exposition, metrics
from tape.telemetry.retrying import Retrying

log = logging.getLogger(__name__)
routes = Routes("health")

REFRESH_S = 5.0
_REFRESHING = Retrying(log, "counting what the store holds")


class StatusReply(Reply):
    status: str


@routes.add("GET", "/healthz", role=None, reply=StatusReply)
async def get_alive() -> Response:
    """Report that the process lives."""
    return json_response({"status": "alive"})


@routes.add("GET", "/readyz", role=None, reply=StatusReply)
async def get_ready(door: TheDoor) -> Response:
    """Report whether the store answers."""
    if why := await why_not_ready(door.operations):
        return _away(why)
    return json_response({"status": "ready"})


@routes.add(
    "GET", "/metrics", role=Role.READ,
    responses={200: {"content": {"text/plain": {}, "application/openmetrics-text": {}}}},
)  # fmt: skip
async def get_metrics(door: TheDoor, request: Request) -> Response:
    """Get the metrics of this process and of the store, for Prometheus."""
    await _refreshed(door.refresh)
    # On a thread: with thousands of reactions it is megabytes of text.
    text, kind = await asyncio.to_thread(exposition.render, request.headers.get("accept", ""))
    return Response(text, headers={"content-type": kind})


async def _refreshed(refresh: Refresh) -> None:
    """A store that is away costs the scrape its gauges, not the rest."""
    try:
        async with asyncio.timeout(REFRESH_S):
            await refresh()
    except (TapeError, TimeoutError) as error:
        _REFRESHING.failed(StoreUnavailable(str(error) or "the store does not answer"))
        metrics.STORE_UP.set(0)
    else:
        _REFRESHING.succeeded()
        metrics.STORE_UP.set(1)


def _away(message: str) -> Response:
    detail = {"reason": StoreUnavailable.reason, "message": message}
    return error_response(HTTPStatus.SERVICE_UNAVAILABLE, detail)
