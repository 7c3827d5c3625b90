"""Notes where a listening process is, on the whole way of a message: nothing of the product knows.

The objects that a listener is given, its source and the operations, are wrapped. Of what is below
them (planning, the writer's commits, the clients of the sources) functions are, in this process.
"""

import asyncio
import functools
import inspect
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any, Final

from tape.errors import StaleLease
from tape.journal.writer import Writer
from tape.model.listening import HoldSubscription
from tape.model.subscription_spec import SourceKind
from tape.subscriptions.planning import Planner
from tests.crash.listening.trail import Trail

NAMED_MOVES: Final = {"AcceptMessages", "HoldListener", "MoveSubscription", "TickSubscription"}
_WORDS: Final = {b"+ACK": "+ACK", b"-NAK": "-NAK", b"+WPI": "+WPI"}
REFUSED: Final = "refused as stale: "
REPORTS: Final = {
    SourceKind.NATS: "after publishing +WPI",
    SourceKind.PUBSUB: "after modify_ack_deadline",
}
"""What says that a source has extended its claim on what is in hand. Kafka's client does so in a
thread of its own, which knows nothing of messages."""

Label = Callable[..., str]


class TracedSource:
    """A source that notes each call. A fetch is noted when it has brought something, and that in
    `fetched`, the body of each message in a line."""

    def __init__(self, source: Any, trail: Trail, fetched: Path) -> None:
        self._source = source
        self._trail = trail
        self._fetched = fetched

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._source, name)
        if not inspect.iscoroutinefunction(method):
            return method
        return _noted(self._trail, method, lambda *_args, **_kwargs: name)

    async def fetch(self, most: int, wait_s: float) -> Any:
        found = await self._source.fetch(most, wait_s)
        if found:
            with self._fetched.open("ab", buffering=0) as file:
                file.write(b"".join(each.message.body + b"\n" for each in found))
            self._trail.note("after fetch")
        return found


class TracedOperations:
    """Operations that note each call. `before_accepting` is awaited before the first messages are
    offered."""

    def __init__(
        self, operations: Any, trail: Trail, before_accepting: Callable[[], Awaitable[None]]
    ) -> None:
        self._operations = operations
        self._trail = trail
        self._before_accepting = before_accepting

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._operations, name)
        if name in ("list_subscriptions", "get_subscription"):
            return method
        return _noted(self._trail, method, functools.partial(_operation, name))

    async def accept_messages(self, request: Any) -> Any:
        await self._before_accepting()
        method = self._operations.accept_messages
        return await _noted(self._trail, method, lambda _request: "accept_messages")(request)


def trace(trail: Trail, kind: SourceKind) -> None:
    """Note from now on what is done in this process below source and operations."""
    _wrap(trail, Planner, "plan_all", "planning")
    _trace_commits(trail)
    if kind is SourceKind.NATS:
        _trace_nats(trail)
    elif kind is SourceKind.KAFKA:
        _trace_kafka(trail)
    else:
        _trace_pubsub(trail)


def _trace_commits(trail: Trail) -> None:
    """Before a batch is given to the store, in its transaction, and when it is durable."""
    commit: Any = Writer._commit

    async def traced(self: Any, moves: list[Any]) -> Any:
        names = sorted({_move(move) for move in moves} - {""})
        _note_all(trail, "before the commit of", names)
        place = await commit(self, [*map(functools.partial(_Deciding, trail), moves)])
        _note_all(trail, "after the commit of", names)
        return place

    Writer._commit = traced  # type: ignore[method-assign]  # in this process alone


def _note_all(trail: Trail, what: str, names: Iterable[str]) -> None:
    for name in names:
        trail.note(f"{what} {name}")


class _Deciding:
    """A move that notes when it is decided: in the transaction, before anything is committed."""

    def __init__(self, trail: Trail, move: Any) -> None:
        self._trail = trail
        self._move = move

    def __getattr__(self, name: str) -> Any:
        return getattr(self._move, name)

    def decide(self, state: Any) -> Any:
        name = _move(self._move)
        try:
            decision = self._move.decide(state)
        except StaleLease:
            self._trail.note(f"{REFUSED}{name}")
            raise
        if name:
            self._trail.note(f"in the transaction of {name}")
        return decision


def _move(move: Any) -> str:
    """What a move is called on the trail, empty if it is none of subscriptions."""
    name = type(move).__name__
    if name not in NAMED_MOVES:
        return ""
    verb = getattr(move, "_verb", "")
    return f"{name} {verb}" if verb else name


def _operation(name: str, request: Any, *args: Any, **_kwargs: Any) -> str:
    if isinstance(request, HoldSubscription):
        if not request.fencing_token:
            return "taking the hold"
        return "letting go" if request.letting_go else "renewing the hold"
    return f"{name} {args[0]}" if name == "move_subscription" else name


def _trace_nats(trail: Trail) -> None:
    """What is published is in the client's buffer then, and with the server after a flush."""
    from nats.aio.client import Client

    publish: Any = Client.publish

    async def traced(self: Any, subject: str, payload: bytes = b"", *args: Any, **more: Any) -> Any:
        said = _WORDS.get(payload) if subject.startswith("$JS.ACK.") else None
        if said is not None:
            trail.note(f"before publishing {said}")
        await publish(self, subject, payload, *args, **more)
        if said is not None:
            trail.note(f"after publishing {said}")

    Client.publish = traced  # type: ignore[method-assign]
    _wrap(trail, Client, "flush", "the flush")


def _trace_kafka(trail: Trail) -> None:
    """What the member's thread does: commits, and what the group tells it."""
    from tape.sources.kafka_group import GroupMember

    commit: Any = GroupMember._commit

    def traced(self: Any, *, force: bool = False) -> None:
        was_committing = self._committing
        is_due = bool(self._uncommitted()) and (force or not was_committing)
        if is_due:
            trail.note("before asking for a commit")
        commit(self, force=force)
        if is_due and self._committing:
            trail.note("after asking for a commit")

    GroupMember._commit = traced  # type: ignore[method-assign]
    for name, shown in (
        ("_note_commit", "the answer to a commit"),
        ("_assigned", "partitions come"),
        ("_revoked", "partitions go"),
        ("_lost", "partitions are lost"),
    ):
        _wrap(trail, GroupMember, name, shown)


def _trace_pubsub(trail: Trail) -> None:
    """Requests: before, on their way, and answered."""
    from google.pubsub_v1 import SubscriberAsyncClient

    for name in ("acknowledge", "modify_ack_deadline"):
        _wrap_request(trail, SubscriberAsyncClient, name)


def _wrap_request(trail: Trail, owner: Any, name: str) -> None:
    method = getattr(owner, name)

    @functools.wraps(method)
    async def traced(self: Any, *args: Any, **kwargs: Any) -> Any:
        trail.note(f"before {name}")
        asking = asyncio.ensure_future(method(self, *args, **kwargs))
        for _ in range(3):  # the request is written in one of the loop's next turns
            await asyncio.sleep(0)
        trail.note(f"during {name}")
        try:
            answer = await asking
        finally:
            asking.cancel()
        trail.note(f"after {name}")
        return answer

    setattr(owner, name, traced)


def _wrap(trail: Trail, owner: Any, name: str, shown: str) -> None:
    method = getattr(owner, name)
    setattr(owner, name, _noted(trail, method, lambda *_args, **_kwargs: shown))


def _noted(trail: Trail, method: Callable[..., Any], label: Label) -> Callable[..., Any]:
    if inspect.iscoroutinefunction(method):

        async def traced(*args: Any, **kwargs: Any) -> Any:
            shown = label(*args, **kwargs)
            trail.note(f"before {shown}")
            try:
                answer = await method(*args, **kwargs)
            except StaleLease:
                trail.note(f"{REFUSED}{shown}")
                raise
            trail.note(f"after {shown}")
            return answer

        return traced

    def traced_at_once(*args: Any, **kwargs: Any) -> Any:
        shown = label(*args, **kwargs)
        trail.note(f"before {shown}")
        answer = method(*args, **kwargs)
        trail.note(f"after {shown}")
        return answer

    return traced_at_once
