"""The door of health of a program that is no server."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tape.bus import Operations
from tape.settings import DoorSettings


@asynccontextmanager
async def answering_probes(
    operations: Operations, address: str | None, settings: DoorSettings
) -> AsyncIterator[str | None]:
    """Within this, /healthz and /readyz are answered at the address; the real one, if one is given.

    Anybody may ask, without a token or TLS.
    """
    if address is None:
        yield None
        return
    from tape.api.descriptors import fit_to_descriptors
    from tape.api.health_server import HealthServer

    server = HealthServer(operations, fit_to_descriptors(settings, ("health",)))
    try:
        yield await server.start(address)
    finally:
        await server.stop()
