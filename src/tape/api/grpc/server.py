"""The gRPC door: `tape.v1.Tape` over any operations, with health and reflection.

Closing refuses new calls, sends stream readers away with UNAVAILABLE so that they come back to
whoever serves next, lets every write that was taken be answered, and only then cuts what is left.
"""

import grpc
from grpc_health.v1 import health, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from tape.api.auth import Tokens, check_exposure
from tape.api.grpc.handlers import Handlers, OpenCalls, RoleCheck
from tape.api.grpc.health import Health
from tape.api.grpc.rpcs import Rpcs
from tape.api.listening import Tls, split_address
from tape.api.port_owner import in_use, port_owner
from tape.api.stream_slots import StreamSlots
from tape.bus import Operations
from tape.calls.call import SERVICE
from tape.calls.role import Role
from tape.errors import InvalidArgument
from tape.settings import DoorSettings, Limits
from tape.wire.channel import message_bytes, server_options

DRAIN_S = 30.0
LINGER_S = 0.5
_REFLECTION = {f"/{reflection.SERVICE_NAME}/ServerReflectionInfo": Role.READ}


class GrpcServer:
    """Make it on the event loop it will serve on."""

    def __init__(
        self,
        operations: Operations,
        limits: Limits,
        tokens: Tokens,
        doors: DoorSettings | None = None,
        streams: StreamSlots | None = None,
        *,
        exposed: bool = False,
    ) -> None:
        doors = doors or DoorSettings()
        self._tokens = tokens
        self._open = OpenCalls()
        slots = streams or StreamSlots(doors)
        self._rpcs = Rpcs(operations, limits, slots, exposed=exposed)
        self._health = Health(("", SERVICE.full_name))
        open_to_all = frozenset({f"/{health.SERVICE_NAME}"})
        self._server = grpc.aio.server(
            interceptors=[RoleCheck(tokens, self._rpcs.roles() | _REFLECTION, open_to_all)],
            options=[*server_options(doors), *message_bytes(limits)],
        )
        handlers = self._rpcs.handlers(Handlers(self._open, tokens, slots))
        self._server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(SERVICE.full_name, handlers),)
        )
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        reflection.enable_server_reflection(
            (SERVICE.full_name, health.SERVICE_NAME, reflection.SERVICE_NAME), self._server
        )

    async def start(self, address: str, *, tls: Tls | None = None, insecure: bool = False) -> str:
        """Listen, and the address with the real port."""
        host, port = split_address(address, field="grpc")
        check_exposure(host, tokens=bool(self._tokens), tls=tls is not None, insecure=insecure)
        try:
            if tls is None:
                bound = self._server.add_insecure_port(f"{host}:{port}")
            else:
                bound = self._server.add_secure_port(f"{host}:{port}", _credentials(tls))
        except RuntimeError:
            why = in_use(address, port) if port_owner(port) else f"cannot listen on {address}"
            raise InvalidArgument(why, field="grpc") from None
        await self._server.start()
        return f"{host}:{bound}"

    async def stop(self) -> None:
        self._health.end()
        rpcs = self._rpcs
        for waiting in (rpcs.streams, rpcs.recording, rpcs.waiting):
            waiting.end()
        await self._open.drain(DRAIN_S)
        await self._server.stop(LINGER_S)  # only watchers of health and reflection can be left


def _credentials(tls: Tls) -> grpc.ServerCredentials:
    try:
        pair = (tls.key.read_bytes(), tls.certificate.read_bytes())
    except OSError as error:
        raise InvalidArgument(f"cannot be read: {error}", field="tls") from None
    return grpc.ssl_server_credentials([pair])
