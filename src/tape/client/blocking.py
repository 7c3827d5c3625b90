"""The client for programs without an event loop, made from the asynchronous one."""

import functools
import weakref
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import suppress
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, Unpack, overload

from tape.client.face import AsyncTapeClient
from tape.client.portal import Portal
from tape.client.run_calls import RunOptions
from tape.client.running_loop import refuse_running_loop, warn_of_running_loop
from tape.client.stream import Stream
from tape.errors import Closed
from tape.runs.declare import App

T = TypeVar("T")
P = ParamSpec("P")

_AWAITED = "async with tape.connect_async(url) as client: await client.{}"


class BlockingStream(Generic[T]):
    """Items as they come: `for item in stream`. `close()`, from any thread, ends it."""

    def __init__(self, portal: Portal, stream: Stream[T]) -> None:
        self._portal = portal
        self._stream = stream
        self._items: Iterator[T] = iter(())
        portal.run(stream.__aenter__)

    def __enter__(self) -> "BlockingStream[T]":
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def __iter__(self) -> "BlockingStream[T]":
        return self

    def __next__(self) -> T:
        while True:
            for item in self._items:
                return item
            batch = self._next_batch()
            if batch is None:
                raise StopIteration
            self._items = iter(batch)

    def close(self) -> None:
        self._items = iter(())
        with suppress(Closed):
            self._portal.run(self._stream.aclose)

    def _next_batch(self) -> Sequence[T] | None:
        try:
            return self._portal.run(self._stream.next_batch)
        except Closed:
            return None


def _calling(
    method: Callable[Concatenate[AsyncTapeClient, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate["TapeClient", P], T]:
    @functools.wraps(method)
    def call(self: "TapeClient", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._portal.run(lambda: method(self._client, *args, **kwargs))

    return call


def _streaming(
    method: Callable[Concatenate[AsyncTapeClient, P], Stream[T]],
) -> Callable[Concatenate["TapeClient", P], BlockingStream[T]]:
    @functools.wraps(method)
    def call(self: "TapeClient", /, *args: P.args, **kwargs: P.kwargs) -> BlockingStream[T]:
        return BlockingStream(self._portal, method(self._client, *args, **kwargs))

    return call


class TapeClient:
    """The client for a program without an event loop. Create it with `tape.connect`.

    Several threads may use it. `close()`, or leaving `with`, ends every stream.
    """

    def __init__(self, connecting: Callable[[], Coroutine[Any, Any, AsyncTapeClient]]) -> None:
        warn_of_running_loop()
        portal = Portal()
        self._portal = portal
        self._abandon = weakref.finalize(self, portal.abandon)
        try:
            self._client = portal.run(connecting)
        except BaseException:
            portal.close()
            raise
        portal.at_end(self._client.close)

    def __enter__(self) -> "TapeClient":
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    record = _calling(AsyncTapeClient.record)
    record_many = _calling(AsyncTapeClient.record_many)
    follow = _streaming(AsyncTapeClient.follow)
    pages = _streaming(AsyncTapeClient.pages)
    follow_run = _streaming(AsyncTapeClient.follow_run)
    set_value = _calling(AsyncTapeClient.set_value)
    get_value = _calling(AsyncTapeClient.get_value)
    watch_value = _streaming(AsyncTapeClient.watch_value)
    delete_value = _calling(AsyncTapeClient.delete_value)
    list_values = _calling(AsyncTapeClient.list_values)
    list_namespaces = _calling(AsyncTapeClient.list_namespaces)
    list_session_apps = _calling(AsyncTapeClient.list_session_apps)
    create_session = _calling(AsyncTapeClient.create_session)
    get_session = _calling(AsyncTapeClient.get_session)
    list_sessions = _calling(AsyncTapeClient.list_sessions)
    delete_session = _calling(AsyncTapeClient.delete_session)
    append_event = _calling(AsyncTapeClient.append_event)
    register_reaction = _calling(AsyncTapeClient.register_reaction)
    deregister_reaction = _calling(AsyncTapeClient.deregister_reaction)
    list_reactions = _calling(AsyncTapeClient.list_reactions)
    claim_tasks = _calling(AsyncTapeClient.claim_tasks)
    extend_tasks = _calling(AsyncTapeClient.extend_tasks)
    complete_task = _calling(AsyncTapeClient.complete_task)
    nack_task = _calling(AsyncTapeClient.nack_task)
    settle_tasks = _calling(AsyncTapeClient.settle_tasks)
    get_task = _calling(AsyncTapeClient.get_task)
    list_tasks = _calling(AsyncTapeClient.list_tasks)
    replay_dead_letters = _calling(AsyncTapeClient.replay_dead_letters)
    drop_dead_letters = _calling(AsyncTapeClient.drop_dead_letters)
    subscribe_events = _calling(AsyncTapeClient.subscribe_events)
    unsubscribe_events = _calling(AsyncTapeClient.unsubscribe_events)
    event_subscriptions = _calling(AsyncTapeClient.event_subscriptions)
    drain = _calling(AsyncTapeClient.drain)
    drainers = _calling(AsyncTapeClient.drainers)
    skip_event = _calling(AsyncTapeClient.skip_event)
    resume_drainer = _calling(AsyncTapeClient.resume_drainer)
    register_subscription = _calling(AsyncTapeClient.register_subscription)
    subscription = _calling(AsyncTapeClient.subscription)
    subscriptions = _calling(AsyncTapeClient.subscriptions)
    move_subscription = _calling(AsyncTapeClient.move_subscription)
    delete_subscription = _calling(AsyncTapeClient.delete_subscription)
    subscription_dead_letters = _calling(AsyncTapeClient.subscription_dead_letters)
    subscription_dead_letter = _calling(AsyncTapeClient.subscription_dead_letter)
    replay_subscription_dead_letters = _calling(AsyncTapeClient.replay_subscription_dead_letters)
    drop_subscription_dead_letters = _calling(AsyncTapeClient.drop_subscription_dead_letters)
    outbox_status = _calling(AsyncTapeClient.outbox_status)
    skip_outbox_row = _calling(AsyncTapeClient.skip_outbox_row)
    put_credential = _calling(AsyncTapeClient.put_credential)
    rotate_credential = _calling(AsyncTapeClient.rotate_credential)
    retire_credential = _calling(AsyncTapeClient.retire_credential)
    credentials = _calling(AsyncTapeClient.credentials)
    delete_credential = _calling(AsyncTapeClient.delete_credential)
    rewrap_credentials = _calling(AsyncTapeClient.rewrap_credentials)
    start_run = _calling(AsyncTapeClient.start_run)
    get_run = _calling(AsyncTapeClient.get_run)
    list_runs = _calling(AsyncTapeClient.list_runs)
    waiting_runs = _calling(AsyncTapeClient.waiting_runs)
    read_run = _calling(AsyncTapeClient.read_run)
    send_signal = _calling(AsyncTapeClient.send_signal)
    cancel_run = _calling(AsyncTapeClient.cancel_run)
    resume_run = _calling(AsyncTapeClient.resume_run)
    info = _calling(AsyncTapeClient.info)

    @overload
    def run(self, app: App[T], payload: Any = None, **options: Unpack[RunOptions]) -> T: ...

    @overload
    def run(self, app: str, payload: Any = None, **options: Unpack[RunOptions]) -> Any: ...

    @functools.wraps(AsyncTapeClient.run)
    def run(self, *args: Any, **options: Any) -> Any:
        refuse_running_loop("client.run", _AWAITED.format("run(app, payload)"))
        return self._portal.run(lambda: self._client.run(*args, **options))

    def run_result(self, run_id: str) -> Any:
        """Wait for the end of a run that a worker drives, and return its result."""
        refuse_running_loop("client.run_result", _AWAITED.format("run_result(run_id)"))
        return self._portal.run(lambda: self._client.run_result(run_id))

    def close(self) -> None:
        """End every stream, write what is queued, and close the connection."""
        self._abandon.detach()
        with suppress(Closed):
            self._portal.run(self._client.close)
        self._portal.close()
