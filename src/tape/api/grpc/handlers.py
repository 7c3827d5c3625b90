"""What every RPC goes through: a request that could be read, a role, an error in our words.

A refusal is answered with its status. Anything else that goes wrong is a fault of ours: it is
logged here and answered with INTERNAL and nothing more.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NoReturn

import grpc
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from tape.api.auth import Tokens, check_private
from tape.api.grpc.calls_in_hand import CallsInHand
from tape.api.listening import host_of_peer
from tape.api.stream_slots import StreamSlots
from tape.calls.role import Role
from tape.calls.table import SECRET_CALLS
from tape.errors import (
    Closed,
    InvalidArgument,
    PermissionDenied,
    TapeError,
    Unauthenticated,
)
from tape.telemetry import metrics
from tape.telemetry.metrics import CutOff
from tape.wire.errors import to_status

log = logging.getLogger("tape.grpc")
FLUSH_S = 1.0
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
        self._handing_over: set[asyncio.Task[Any]] = set()
        self._idle: set[asyncio.Task[Any]] = set()
        self._refusing = False
        self._refused = 0

    def enter(self) -> None:
        if self._refusing:
            self._refused += 1
            raise Closed("the server is shutting down")
        task = asyncio.current_task()
        if task is not None:
            self._tasks.add(task)
            task.add_done_callback(self._forget)

    def hand_over(self) -> None:
        """From here the call only waits for its caller to take what it was answered."""
        task = asyncio.current_task()
        if task is not None:
            self._handing_over.add(task)

    def work_on(self) -> None:
        """It was taken, and the call goes on."""
        task = asyncio.current_task()
        if task is not None:
            self._handing_over.discard(task)

    @contextmanager
    def idle(self) -> Iterator[None]:
        """Within this the call has nothing left to do, and is not waited for."""
        task = asyncio.current_task()
        if task is not None:
            self._idle.add(task)
        try:
            yield
        finally:
            if task is not None:
                self._idle.discard(task)

    async def drain(self, patience_s: float) -> None:
        """Refuse whoever still comes, until all are answered and, for a moment, nobody comes.
        Callers that do not take their answers are not waited for.

        Calls that gRPC has taken and not handed over yet would be cut off by its own stop, and
        their callers could not know that nothing was done.
        """
        self._refusing = True
        for task in self._idle:
            task.cancel()
        loop = asyncio.get_running_loop()
        until = loop.time() + patience_s
        while self._tasks and (left_s := until - loop.time()) > 0:
            await asyncio.wait(set(self._tasks), timeout=min(left_s, FLUSH_S))
            if self._tasks <= self._handing_over:
                break
        for _ in range(QUIET_TURNS):
            before = self._refused
            await asyncio.sleep(QUIET_S)
            if self._refused == before:
                break

    def _forget(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.discard(task)
        self._handing_over.discard(task)


class Handlers:
    """gRPC handlers for functions that take a message and know nothing of gRPC."""

    def __init__(self, calls: OpenCalls, tokens: Tokens, slots: StreamSlots) -> None:
        self._calls = calls
        self._tokens = tokens
        self._slots = slots
        self._in_hand = CallsInHand(slots.settings)

    def unary(self, method: MethodDescriptor, answer: Unary, role: Role) -> Any:
        only_reads = role is Role.READ
        has_secret = method.name in SECRET_CALLS

        async def handle(request: Any, context: Context) -> bytes:
            try:
                self._calls.enter()
                if has_secret:
                    check_private(host_of_peer(context.peer()), tls=_has_tls(context))
                data = await self._answered(answer, only_reads, request, self._client(context))
                self._calls.hand_over()
            except Exception as error:  # noqa: BLE001 - sorted by _abort
                self._calls.hand_over()
                await _abort(context, method.name, error)
            return data

        return grpc.unary_unary_rpc_method_handler(handle, _reader(method))

    async def _answered(self, answer: Unary, only_reads: bool, request: Any, client: str) -> bytes:
        """An answer that there is room for until it is taken."""
        in_hand = self._in_hand
        in_hand.enter(client)
        asked = _readable(request)
        size = asked.ByteSize()
        with in_hand.holding(client, size):
            if not only_reads:
                in_hand.refuse_without_room(client, size)
                data = (await answer(asked)).SerializeToString()
                in_hand.keep(client, len(data))
                return data
            data = (await answer(asked)).SerializeToString()
            if not in_hand.keep_if_room(client, len(data)):
                size = len(data)
                del data
                self._calls.hand_over()
                await in_hand.keep_when_room(client, size)
                self._calls.work_on()
                data = (await answer(asked)).SerializeToString()
            return data

    def stream_out(self, method: MethodDescriptor, answer: StreamOut) -> Any:
        async def handle(request: Any, context: Context) -> None:
            try:
                self._calls.enter()
                with self._slots.take(self._client(context)):
                    await self._until_read(
                        answer(_readable(request), self._sending(context, method.name))
                    )
            except _CallerGone:
                raise asyncio.CancelledError from None
            except Exception as error:  # noqa: BLE001 - sorted by _abort
                await _abort(context, method.name, error)

        return grpc.unary_stream_rpc_method_handler(handle, _reader(method))

    def stream_both(self, method: MethodDescriptor, answer: StreamBoth) -> Any:
        async def handle(_requests: object, context: Context) -> None:
            async def receive() -> Any:
                """The next request, None at the end."""
                request = await context.read()
                return None if request is grpc.aio.EOF else _readable(request)

            try:
                self._calls.enter()
                with self._slots.take(self._client(context)):
                    await self._until_read(answer(receive, self._sending(context, method.name)))
            except _CallerGone:
                raise asyncio.CancelledError from None
            except Exception as error:  # noqa: BLE001 - sorted by _abort
                await _abort(context, method.name, error)

        return grpc.stream_stream_rpc_method_handler(handle, _reader(method))

    def _client(self, context: Context) -> str:
        """Whose streams are counted together."""
        holder = self._tokens.holder(_authorization(context.invocation_metadata()))
        return holder or host_of_peer(context.peer())

    async def _until_read(self, answering: Awaitable[None]) -> None:
        """Answer. If the reader stalls, let go of all but the one message that gRPC has, and of
        nothing else of this client until it reads on, is sent away then, or leaves."""
        try:
            return await answering
        except _Stalled as stalled:
            writing = stalled.writing
        with self._calls.idle():
            await _written(writing)
        raise Closed(
            "the client did not read for a while, so the stream was cut off: follow again from "
            "your cursor"
        )

    def _sending(self, context: Context, method: str) -> Send:
        write_s = self._slots.settings.write_s

        async def send(message: Message) -> None:
            await self._slots.turnstile.through(message.ByteSize())
            data = message.SerializeToString()
            del message  # while its reader takes its time, its bytes are enough
            writing = asyncio.ensure_future(context.write(data))
            del data
            self._calls.hand_over()
            try:
                await asyncio.wait((writing,), timeout=write_s)
            except asyncio.CancelledError:  # no status can follow a write that waits
                writing.add_done_callback(_heed)
                writing.cancel()
                raise _CallerGone from None
            if not writing.done():
                metrics.CUT_OFF.labels(CutOff.UNREAD).inc()
                log.warning(
                    "cut off a stream of %s: its client read nothing for %g s (tape.doors.write_s)",
                    method, write_s,
                )  # fmt: skip
                raise _Stalled(writing)
            self._calls.work_on()
            await _written(writing)

        return send


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
                self._tokens.check(
                    _authorization(handler_call_details.invocation_metadata), needed or Role.READ
                )
            except (Unauthenticated, PermissionDenied) as error:
                return _refusing(error)
        handler = await continuation(handler_call_details)
        if handler is not None and needed is None and path.rpartition("/")[0] not in self._public:
            log.error("%s has no role, so nobody may call it", path)
            return _refusing(PermissionDenied("this method has no role, so nobody may call it"))
        return handler


class _CallerGone(Exception):
    """There is nobody to write to, which is nobody's fault."""


class _Stalled(Exception):
    """The reader takes nothing. gRPC cannot take a write back, nor send a status before it."""

    def __init__(self, writing: "asyncio.Future[None]") -> None:
        super().__init__()
        self.writing = writing


class _Unreadable:
    """Stands for a request that is no message, so that it is refused and not our fault."""


_UNREADABLE = _Unreadable()


def _reader(method: MethodDescriptor) -> Callable[[bytes], Any]:
    request = GetMessageClass(method.input_type)

    def read(data: bytes) -> Message | _Unreadable:
        try:
            return request.FromString(data)
        except DecodeError:
            return _UNREADABLE

    return read


def _has_tls(context: Context) -> bool:
    return b"ssl" in context.auth_context().get("transport_security_type", ())


def _heed(writing: "asyncio.Future[None]") -> None:
    """Nobody waits any more for how it ends."""
    if not writing.cancelled():
        writing.exception()


async def _written(writing: "asyncio.Future[None]") -> None:
    try:
        await writing
    except grpc.aio.InternalError:
        raise _CallerGone from None


def _readable(request: Any) -> Any:
    if request is _UNREADABLE:
        raise InvalidArgument(
            "the request cannot be decoded: it is not a message of this method, or its text is "
            "not UTF-8"
        )
    return request


def _refusing(error: TapeError) -> Any:
    async def refuse(_requests: object, context: Context) -> None:
        await context.abort_with_status(to_status(error))

    # Whatever the method's shape: this one answers without waiting for a request.
    return grpc.stream_stream_rpc_method_handler(refuse)


async def _abort(context: Context, method: str, error: Exception) -> NoReturn:
    if not isinstance(error, TapeError):
        log.error("%s failed", method, exc_info=error)
        error = TapeError("the server failed; its log says why")
    try:
        await context.abort_with_status(to_status(error))
    except grpc.aio.InternalError:  # it ends while a write waits for its reader
        raise asyncio.CancelledError from None


def _authorization(metadata: Any) -> str:
    for key, value in metadata or ():
        if key == "authorization":
            return value if isinstance(value, str) else value.decode(errors="replace")
    return ""
