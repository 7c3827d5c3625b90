"""A server in front of Google's emulator, which can lose what it is told, or refuse it.

It forwards each call as bytes. What it loses it answers as if it were done.
"""

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import grpc

from tests.servers.lossy_line import Fate

Serve = Callable[[bytes, "grpc.aio.ServicerContext[bytes, bytes]"], Awaitable[bytes]]
_SUBSCRIBER = "/google.pubsub.v1.Subscriber/"
_PUBLISHER = "/google.pubsub.v1.Publisher/"


class PubSubFront(grpc.GenericRpcHandler):
    """Start with `async with PubSubFront(emulator.host) as front:`, and use `front.host`.

    `loses` are the names of calls that are lost, such as Acknowledge; `refuses` says by which code
    a call is refused. `told` counts the
    calls. `fate` decides anew for each Acknowledge, if it is set; `lost` counts by what it decided.
    """

    def __init__(self, upstream: str) -> None:
        self._upstream = upstream
        self._server = grpc.aio.server(handlers=[self])
        self._channel: Any = None
        self.host = ""
        self.loses: set[str] = set()
        self.refuses: dict[str, grpc.StatusCode] = {}
        self.told: dict[str, int] = {}
        self.fate: Callable[[], Fate] | None = None
        self.lost: Counter[Fate] = Counter()

    async def __aenter__(self) -> "PubSubFront":
        self._channel = grpc.aio.insecure_channel(self._upstream)
        port = self._server.add_insecure_port("127.0.0.1:0")
        self.host = f"127.0.0.1:{port}"
        await self._server.start()
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self._server.stop(None)
        await self._channel.close()

    def service(self, details: Any) -> Any:
        method: str = details.method

        async def serve(request: bytes, context: Any) -> bytes:
            name = method.removeprefix(_SUBSCRIBER).removeprefix(_PUBLISHER)
            self.told[name] = self.told.get(name, 0) + 1
            if name in self.refuses:
                await context.abort(self.refuses[name], "refused by the test")
            fate = self.fate() if self.fate and name == "Acknowledge" else Fate.PASSES
            self.lost[fate] += 1
            if name in self.loses or fate is Fate.IS_LOST:
                return b""
            try:
                answer: bytes = await self._channel.unary_unary(method)(
                    request, timeout=context.time_remaining()
                )
            except grpc.aio.AioRpcError as error:
                await context.abort(error.code(), error.details() or "")
                raise
            if fate is Fate.IS_UNANSWERED:
                await context.abort(grpc.StatusCode.UNAVAILABLE, "the answer was lost")
            return answer

        return grpc.unary_unary_rpc_method_handler(serve)
