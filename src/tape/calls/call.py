"""What a row of the table of calls is.

A row says all there is to say about one RPC of `tape.proto`:

* `name`: as in `tape.proto`, which also says what its messages are;
* `role`: what its caller must be allowed to;
* `fence`: whether it carries the token of a lease or claim, or why not;
* `operation`: the method of the operations that it does, as it stands in their protocol. From its
  signature the row knows how parameters become fields of the request and back: by name, unless
  `renamed` or `held` says otherwise. `reply` maps the result; mypy compares it with the result's
  type;
* `repeat`: whether a client that was cut off may send it again.

The server answers a row by `answer`; a client makes a method of each `Call` and `StreamCall`. What
no row can say is written by hand: `answer=` for the server where it needs no more than the
operations and the limits, else a function in `api/grpc` under the RPC's name; for the client, a
function that is given to `remote`. Two rows may share an RPC that does two operations. Then the
first of them answers it.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from enum import Enum, auto
from types import MappingProxyType
from typing import Any, Concatenate, Final, Generic, NamedTuple, ParamSpec, TypeVar

from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from tape.bus import Operations
from tape.calls.parameters import Parameters
from tape.calls.replies import ReplyCodec, set_message
from tape.calls.role import Role
from tape.errors import TooLarge
from tape.model.names import check_name
from tape.settings import Limits
from tape.wire.codec import Held
from tape.wire.v1 import tape_pb2 as pb

SERVICE: Final[ServiceDescriptor] = pb.DESCRIPTOR.services_by_name["Tape"]

N = TypeVar("N")
P = ParamSpec("P")
R = TypeVar("R")

_NONE: Final[Mapping[str, Any]] = MappingProxyType({})


class Fence(Enum):
    """What keeps one who has lost a run from writing for it."""

    TOKEN = auto()
    """The request carries the token of a lease or a claim, and is refused without the newest."""
    TAKING = auto()
    """It takes a lease or a claim, and is answered with its token."""
    OUTSIDE = auto()
    """It comes from outside the run, whoever drives it."""
    NO_RUN = auto()
    """It does not write for a run."""


class Repeat(Enum):
    """Whether a call that was cut off may be sent again."""

    FREELY = auto()
    """It changes nothing, so its caller may ask again."""
    NEVER = auto()
    """A repeat could do it twice: the caller is told that the outcome is unknown."""
    TWICE = auto()
    """A repeat does no harm, but the next call of this kind is due soon."""
    ALWAYS = auto()
    """The server recognises a repeat. It is sent until it is answered, for `writer.retry_for_s`."""


class Pages(NamedTuple):
    """A listing that comes in several replies; each but the last says that there are `more`.

    The next request begins in the field `after`, with the `key` of the last row. If `limited`, the
    operation itself takes that place and a limit; else it knows no pages, and the server leaves out
    the rows up to that place.
    """

    after: str
    key: Callable[[Any], Any]
    limited: bool = False


class Whole(NamedTuple):
    """A reply that is sent whole or refused: the field that would make it smaller, and advice."""

    field: str
    advice: str = "ask for less"


class ByFunction(NamedTuple, Generic[P]):
    """A request that two functions map: for hot paths."""

    to_wire: Callable[P, Message]
    from_wire: Callable[[Any], tuple[Sequence[Any], Mapping[str, Any]]]


Answer = Callable[[N, Any, Limits], Awaitable[Message]]


class Rpc(Generic[N]):
    """A row without an operation: what answers it is written by hand."""

    def __init__(
        self, name: str, role: Role, *, fence: Fence = Fence.NO_RUN, answer: Answer[N] | None = None
    ) -> None:
        self.name = name
        self.role = role
        self.fence = fence
        self.is_answered = answer is not None
        self._by_hand = answer
        method = SERVICE.methods_by_name[name]
        self.request_message = GetMessageClass(method.input_type)
        self.reply_message = GetMessageClass(method.output_type)

    async def answer(self, noun: N, request: Any, limits: Limits) -> Message:
        if self._by_hand is None:
            raise NotImplementedError(f"{self.name} is answered by a function of the server")
        return await self._by_hand(noun, request, limits)


class Call(Rpc[N], Generic[N, P, R]):
    """A row that does an operation. Without a `reply` both sides are written by hand."""

    def __init__(
        self,
        name: str,
        role: Role,
        operation: Callable[Concatenate[N, P], Awaitable[R]],
        reply: ReplyCodec[R] | None = None,
        *,
        renamed: Mapping[str, str] = _NONE,
        held: Mapping[str, Held] = _NONE,
        sent: Mapping[str, Any] = _NONE,
        request: ByFunction[P] | None = None,
        repeat: Repeat | None = None,
        repeat_if: Callable[P, bool] | None = None,
        fence: Fence = Fence.NO_RUN,
        pages: Pages | None = None,
        whole: Whole | None = None,
        check: Callable[[Any, Limits], object] | None = None,
        shorten: Callable[[R, Limits], R] | None = None,
        empty_if: Callable[P, bool] | None = None,
        none_if_missing: bool = False,
        has_secret: bool = False,
        answer: Answer[N] | None = None,
    ) -> None:
        """`repeat_if` decides by the arguments whether a repeat does harm. `check` is what the
        server looks at before it asks, and `shorten` what it leaves out of a result. `empty_if`
        names arguments that a request cannot express and whose result is empty. A request that
        `has_secret` is for loopback and TLS alone.
        """
        super().__init__(name, role, fence=fence, answer=answer)
        self.method = operation.__name__
        self.reply = reply
        self.pages = pages
        self.repeat = repeat or (Repeat.FREELY if role is Role.READ else Repeat.NEVER)
        self.repeat_if = repeat_if
        self.empty_if = empty_if
        self.none_if_missing = none_if_missing
        self.has_secret = has_secret
        self.request: ByFunction[P] | Parameters | None = request
        self._whole = whole
        self._check = check
        self._shorten = shorten
        if reply is not None:
            self.is_answered = True
            set_message(reply, name, self.reply_message)
        if request is None and reply is not None:
            self.request = Parameters(
                operation, self.request_message, renamed=renamed, held=held, sent=sent
            )

    def may_repeat(self, *args: P.args, **kwargs: P.kwargs) -> Repeat:
        """Whether the call with these arguments may be sent again."""
        if self.repeat_if is None:
            return self.repeat
        return Repeat.ALWAYS if self.repeat_if(*args, **kwargs) else Repeat.NEVER

    async def answer(self, noun: N, request: Any, limits: Limits) -> Message:
        if self._by_hand is not None or self.reply is None or self.request is None:
            return await super().answer(noun, request, limits)
        if self._check is not None:
            self._check(request, limits)
        pages = self.pages if self.pages is not None and not self.pages.limited else None
        if pages is not None:
            check_name(getattr(request, pages.after), limits, field=pages.after)
        args, kwargs = self.request.from_wire(request)
        result = await getattr(noun, self.method)(*args, **kwargs)
        if pages is not None:
            after, key = getattr(request, pages.after), pages.key
            result = sorted((row for row in result if key(row) > after), key=key)
        if self._shorten is not None:
            result = self._shorten(result, limits)
        return self._sendable(self.reply.to_wire(result), limits)

    def _sendable(self, reply: Message, limits: Limits) -> Message:
        if self._whole is not None and reply.ByteSize() > limits.request_bytes:
            raise TooLarge(
                f"the answer is over {limits.request_bytes} bytes: {self._whole.advice}",
                field=self._whole.field,
            )
        return reply


class StreamCall(Rpc[N], Generic[N, P, R]):
    """A row whose operation gives items until it is closed. The server sends them by hand; a client
    whose server went away asks again, from where it is.

    `item` makes an item of a message and its request. `cursor` is the field of the request that
    says where to begin, and how a message says where its reader is. `is_last` ends the stream.
    """

    def __init__(
        self,
        name: str,
        role: Role,
        operation: Callable[Concatenate[N, P], AsyncGenerator[R, None]],
        item: Callable[[Any, Any], R],
        *,
        cursor: tuple[str, Callable[[Any], int]],
        renamed: Mapping[str, str] = _NONE,
        held: Mapping[str, Held] = _NONE,
        is_last: Callable[[Any, Any], bool] | None = None,
    ) -> None:
        super().__init__(name, role)
        self.method = operation.__name__
        self.item = item
        self.cursor = cursor
        self.is_last = is_last
        self.request = Parameters(
            operation, self.request_message, renamed=renamed, held=held, sent=_NONE
        )


class Noun(Generic[N]):
    """The rows of one noun, and where its operations are."""

    def __init__(self, of: Callable[[Operations], N], *rows: Rpc[N]) -> None:
        self.of = of
        self.rows = rows
