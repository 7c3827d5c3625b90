"""gRPC's health service, open to all.

The servicer that comes with gRPC holds a lock while it writes to a watcher, and a change of status
needs that lock: one watcher that takes nothing kept a server from stopping. Here nobody waits for a
watcher, and a connection that watches, and so is never idle, is one of a bounded number.
"""

import asyncio
from collections import Counter
from collections.abc import Iterable
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tape.api.listening import host_of_peer

WATCHERS = 256
WATCHERS_OF_A_HOST = 32
_SERVING = health_pb2.HealthCheckResponse.SERVING
_NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
_UNKNOWN = health_pb2.HealthCheckResponse.SERVICE_UNKNOWN

Context = grpc.aio.ServicerContext[Any, Any]


class Health(health_pb2_grpc.HealthServicer):
    def __init__(self, services: Iterable[str]) -> None:
        self._services = frozenset(services)
        self._ending = asyncio.Event()
        self._watchers: Counter[str] = Counter()

    def end(self) -> None:
        """Tell everybody that nothing is served any more."""
        self._ending.set()

    async def Check(  # noqa: N802 - the name that gRPC calls
        self, request: health_pb2.HealthCheckRequest, context: Context
    ) -> health_pb2.HealthCheckResponse:
        if request.service not in self._services:
            await context.abort(grpc.StatusCode.NOT_FOUND, "there is no such service")
        status = _NOT_SERVING if self._ending.is_set() else _SERVING
        return health_pb2.HealthCheckResponse(status=status)

    async def Watch(  # noqa: N802 - the name that gRPC calls
        self, request: health_pb2.HealthCheckRequest, context: Context
    ) -> None:
        host = host_of_peer(context.peer())
        if self._watchers[host] >= WATCHERS_OF_A_HOST or self._watchers.total() >= WATCHERS:
            await context.abort(
                grpc.StatusCode.RESOURCE_EXHAUSTED, "too many clients watch already: use Check"
            )
        self._watchers[host] += 1
        try:
            known = request.service in self._services
            await context.write(
                health_pb2.HealthCheckResponse(status=_SERVING if known else _UNKNOWN)
            )
            await self._ending.wait()
            if known:
                await context.write(health_pb2.HealthCheckResponse(status=_NOT_SERVING))
        finally:
            self._watchers[host] -= 1
            if not self._watchers[host]:
                del self._watchers[host]
