"""The door of health: the one that may listen beyond this machine without a token or TLS.

A container's probes come from other machines and bring no token. What they learn is whether the
process lives and whether its store answers.
"""

from tape.api.embedded_server import EmbeddedServer
from tape.api.http.health_only import health_only_app
from tape.bus import Operations
from tape.settings import DoorSettings


class HealthServer:
    """Make it on the event loop it will serve on."""

    def __init__(self, operations: Operations, settings: DoorSettings) -> None:
        self._server = EmbeddedServer(health_only_app(operations), settings, field="health")

    async def start(self, address: str) -> str:
        """Listen, and the address with the real port."""
        return await self._server.start(address)

    async def stop(self) -> None:
        """Take no more, answer what was taken."""
        await self._server.stop()
