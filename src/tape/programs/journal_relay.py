"""The journal relay as a program: it sends every entry of the journal to sinks.

from tape.reactors import run_journal_relay
from tape.sinks import NatsSink

run_journal_relay(sink=NatsSink("nats://127.0.0.1:4222/tape.events"))
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path

from tape.bus import FollowQuery, Operations
from tape.client.running_loop import refuse_running_loop
from tape.errors import InvalidArgument
from tape.journal.follow import Page
from tape.journal_relay.cursor_file import CursorFile, OldCursor
from tape.journal_relay.old_cursor import PastQuery, position_of
from tape.journal_relay.relay import DEFAULT_BACKOFF, JournalRelay, OnProgress, RelayBackoff
from tape.ports.sink import Sink
from tape.programs.connect import default_token, default_url, open_operations
from tape.programs.credentials import logins_for
from tape.programs.event_loop import stopping_on_signals
from tape.programs.sinks import BrokerSink
from tape.reactions.settings import only_where
from tape.settings import Settings

DEFAULT_CURSOR = Path("tape-relay.cursor")
DEFAULT_PATTERN = "/tape/**"
PAGE_ENTRIES = 500


def run_journal_relay(
    url: str | None = None,
    *,
    sink: Sink | None = None,
    sinks: Sequence[Sink] = (),
    cursor_path: Path | str = DEFAULT_CURSOR,
    subject_pattern: str = DEFAULT_PATTERN,
    where: str = "",
    predicate: str = "",
    token: str | None = None,
    live: bool = True,
    on_progress: OnProgress = lambda _progress: None,
) -> None:
    """Send the journal to one or more sinks until SIGTERM or SIGINT, then finish the current page.

    With `live=False` it ends at the newest entry. It closes the sinks at the end. `where` is a CEL
    predicate; other entries are passed over. `predicate` is its older name.
    """
    refuse_running_loop("run_journal_relay", "await tape.reactors.relay_journal(url, sink=sink)")
    where = only_where(where, predicate)

    async def relay() -> None:
        stop = asyncio.Event()
        with stopping_on_signals(stop):
            await relay_journal(
                url,
                sink=sink,
                sinks=sinks,
                cursor_path=cursor_path,
                subject_pattern=subject_pattern,
                where=where,
                token=token,
                live=live,
                on_progress=on_progress,
                stop=stop,
            )

    asyncio.run(relay())


async def relay_journal(
    url: str | None = None,
    *,
    sink: Sink | None = None,
    sinks: Sequence[Sink] = (),
    cursor_path: Path | str = DEFAULT_CURSOR,
    subject_pattern: str = DEFAULT_PATTERN,
    where: str = "",
    predicate: str = "",
    token: str | None = None,
    live: bool = True,
    on_progress: OnProgress = lambda _progress: None,
    stop: asyncio.Event | None = None,
    backoff: RelayBackoff = DEFAULT_BACKOFF,
    settings: Settings | None = None,
) -> None:
    """Send the journal like `run_journal_relay`, on the running event loop, until `stop` is set."""
    where = only_where(where, predicate)
    targets = [*sinks, *([] if sink is None else [sink])]
    if not targets:
        raise InvalidArgument("the relay needs a sink", field="sink")
    token = default_token() if token is None else token
    async with contextlib.AsyncExitStack() as stack:
        for target in targets:
            stack.push_async_callback(target.close)
        cursor = stack.enter_context(CursorFile(Path(cursor_path)))
        kept = cursor.read()  # a file that is no cursor is refused before anything else is done
        bus = await open_operations(url or default_url(), token, settings or Settings())
        stack.push_async_callback(bus.close)
        logins = await stack.enter_async_context(logins_for(bus, settings or Settings()))
        for target in targets:
            if isinstance(target, BrokerSink):
                await target.log_in_with(logins)
        start, until = await _range(bus, kept, live=live)

        def open_pages(after: int) -> AsyncGenerator[Page, None]:
            if after == until:
                return _no_pages()
            end = 0 if until is None else max(after, until)  # a cursor beyond the head is refused
            return bus.follow(FollowQuery(subject_pattern, where, after, PAGE_ENTRIES, until=end))

        relay = JournalRelay(open_pages, targets, cursor, backoff=backoff, on_progress=on_progress)
        await relay.run(start, stop or asyncio.Event())


async def _range(
    bus: Operations, kept: int | OldCursor | None, *, live: bool
) -> tuple[int, int | None]:
    """Where to start, and where to end unless live."""
    head = (await bus.info()).head_global_seq
    start = kept or 0
    if isinstance(start, OldCursor):

        def read_past(past: PastQuery) -> AsyncGenerator[Page, None]:
            return bus.follow(
                FollowQuery(from_ts_ms=past.from_ts_ms, run_id=past.run_id, until=past.until)
            )

        start = await position_of(start, read_past, head)
    return start, None if live else head


async def _no_pages() -> AsyncGenerator[Page, None]:
    nothing: tuple[Page, ...] = ()
    for page in nothing:
        yield page
