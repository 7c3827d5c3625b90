"""What every RPC goes through: a request that could be read, a role, an error in our words.

A refusal is answered with its status. Anything else that goes wrong is a fault of ours: it is
logged here and answered with INTERNAL and nothing more.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, NoReturn

import grpc
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from tape.api.auth import Role, Tokens
from tape.errors import Closed, InvalidArgument, PermissionDenied, TapeError, Unauthenticated
from tape.wire.errors import to_status

log = logging.getLogger("tape.grpc")
QUIET_S = 0.03
QUIET_TURNS = 10

Context = grpc.aio.ServicerContext[Any, Any]
Send = Callable[[Any], Awaitable[None]]
Receive = Callable[[], Coroutine[Any, Any, Any]]
Unary = Callable[[Any], Awaitable[Message]]
StreamOut = Callable[[Any, Send], Awaitable[None]]
StreamBoth = Callable[[Receive, Send], Awaitable[None]]


class OpenCalls:
    """The calls being answered, so that a server that closes can wait for them."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()
        self._refusing = False
        self._refused = 0

    def enter(self) -> None:
        if self._refusing:
            self._refused += 1
            raise Closed("the server is shutting down")
        task = asyncio.current_task()
        if task is not None:
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def drain(self, patience_s: float) -> None:
        """Refuse whoever still comes, until all are answered and, for a moment, nobody comes.

        Calls that gRPC has taken and not handed over yet would be cut off by its own stop, and
        their callers could not know that nothing was done.
        """
        self._refusing = True
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=patience_s)
        for _ in range(QUIET_TURNS):
            before = self._refused
            await asyncio.sleep(QUIET_S)
            if self._refused == before:
                break


class Handlers:
    """gRPC handlers for functions that take a message and know nothing of gRPC."""

    def __init__(self, calls: OpenCalls) -> None:
        self._calls = calls

    def unary(self, method: MethodDescriptor, answer: Unary) -> Any:
        async def handle(request: Any, context: Context) -> Message:
            try:
                self._calls.enter()
                return await answer(_readable(request))
            except Exception as error:  # noqa: BLE001 - sorted by _abort
                await _abort(context, method.name, error)

        return grpc.unary_unary_rpc_method_handler(handle, *_codecs(method))

    def stream_out(self, method: MethodDescriptor, answer: StreamOut) -> Any:
        async def handle(request: Any, context: Context) -> None:
            try:
                self._calls.enter()
                await answer(_readable(request), _sending(context))
            except Exception as error:  # noqa: BLE001 - sorted by _abort
                await _abort(context, method.name, error)

        return grpc.unary_stream_rpc_method_handler(handle, *_codecs(method))

    def stream_both(self, method: MethodDescriptor, answer: StreamBoth) -> Any:
        async def handle(_requests: object, context: Context) -> None:
            async def receive() -> Any:
                """The next request, None at the end."""
                request = await context.read()
                return None if request is grpc.aio.EOF else _readable(request)

            try:
                self._calls.enter()
                await answer(receive, _sending(context))
            except Exception as error:  # noqa: BLE001 - sorted by _abort
                await _abort(context, method.name, error)

        return grpc.stream_stream_rpc_method_handler(handle, *_codecs(method))


class RoleCheck(grpc.aio.ServerInterceptor):
    """Turns away whoever lacks the role of a method before anything of the request is read. A
    method that was given no role is for nobody.
    """

    def __init__(self, tokens: Tokens, roles: Mapping[str, Role], public: frozenset[str]) -> None:
        self._tokens = tokens
        self._roles = roles
        self._public = public

    async def intercept_service(
        self, continuation: Any, handler_call_details: grpc.HandlerCallDetails
    ) -> Any:
        path = handler_call_details.method
        needed = self._roles.get(path)
        if path.rpartition("/")[0] not in self._public:
            try:
                self._tokens.check(_authorization(handler_call_details), needed or Role.READ)
            except (Unauthenticated, PermissionDenied) as error:
                return _refusing(error)
        handler = await continuation(handler_call_details)
        if handler is not None and needed is None and path.rpartition("/")[0] not in self._public:
            log.error("%s has no role, so nobody may call it", path)
            return _refusing(PermissionDenied("this method has no role, so nobody may call it"))
        return handler


class _CallerGone(Exception):
    """There is nobody to write to, which is nobody's fault."""


class _Unreadable:
    """Stands for a request that is no message, so that it is refused and not our fault."""


_UNREADABLE = _Unreadable()


def _codecs(method: MethodDescriptor) -> tuple[Callable[[bytes], Any], Callable[[Message], bytes]]:
    request = GetMessageClass(method.input_type)

    def read(data: bytes) -> Message | _Unreadable:
        try:
            return request.FromString(data)
        except DecodeError:
            return _UNREADABLE

    return read, GetMessageClass(method.output_type).SerializeToString


def _sending(context: Context) -> Send:
    async def send(message: Message) -> None:
        try:
            await context.write(message)
        except grpc.aio.InternalError:
            raise _CallerGone from None

    return send


def _readable(request: Any) -> Any:
    if request is _UNREADABLE:
        raise InvalidArgument("the request is not a message of this method, or its text not UTF-8")
    return request


def _refusing(error: TapeError) -> Any:
    async def refuse(_requests: object, context: Context) -> None:
        await context.abort_with_status(to_status(error))

    # Whatever the method's shape: this one answers without waiting for a request.
    return grpc.stream_stream_rpc_method_handler(refuse)


async def _abort(context: Context, method: str, error: Exception) -> NoReturn:
    if not isinstance(error, TapeError):
        if not isinstance(error, _CallerGone):
            log.error("%s failed", method, exc_info=error)
        error = TapeError("the server failed; its log says why")
    await context.abort_with_status(to_status(error))


def _authorization(details: grpc.HandlerCallDetails) -> str:
    for key, value in details.invocation_metadata or ():
        if key == "authorization":
            return value if isinstance(value, str) else value.decode(errors="replace")
    return ""
