"""Runs for programs that have no client at hand: started, told and ended by their ids.

Where no URL is given it is that of TAPE_URL, then TAPE_STORE, then the default server.
"""

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack
from typing import Any

from tape.client.run_calls import lease_owner
from tape.client.running_loop import refuse_running_loop
from tape.errors import InvalidArgument
from tape.model.run import DEFAULT_POOL, Run
from tape.model.value import ValueChange
from tape.programs.connect import connect, default_token, default_url, open_operations
from tape.programs.listening import opening_sources
from tape.programs.opening_credentials import opening_credentials
from tape.reactions.threads import HandlerThreads
from tape.runs.ambient import CURRENT
from tape.runs.declare import DECLARED_APPS, App, Apps
from tape.runs.reactors.run_reactors import RunReactors
from tape.settings import Settings


def start(
    app: App[Any] | str,
    payload: Any = None,
    *,
    pool: str = "",
    user_id: str = "",
    session_id: str = "",
    invocation_id: str = "",
    url: str | None = None,
    token: str | None = None,
    settings: Settings | None = None,
) -> Any:
    """Start a run for a worker of its pool, and return its id.

    In an app it starts a child of the current run; in an asynchronous app it must be awaited.
    """
    around: Any = CURRENT.get()
    if around is not None:
        for field, given in (("user_id", user_id), ("session_id", session_id), ("url", url)):
            if given:
                raise InvalidArgument(
                    "not allowed for a child run, which has its parent's", field=field
                )
        return around.start(app, payload, pool=pool, name=invocation_id)
    with connect(url, token=token, settings=settings) as client:
        run = client.start_run(
            app,
            payload,
            pool=pool,
            user_id=user_id,
            session_id=session_id,
            invocation_id=invocation_id,
        )
    return run.run_id


def send_signal(
    run_id: str,
    gate_name: str,
    resolution: Any = None,
    *,
    url: str | None = None,
    token: str | None = None,
    settings: Settings | None = None,
) -> bool:
    """Open a gate of a run. Returns False if it was already open or the run has ended."""
    with connect(url, token=token, settings=settings) as client:
        return client.send_signal(run_id, gate_name, resolution)


def watch_value(
    namespace: str,
    key: str,
    *,
    from_version: int = 0,
    url: str | None = None,
    token: str | None = None,
) -> Iterator[ValueChange]:
    """Read every change of a value with a greater version, with the previous value, then new ones.

    It ends when the caller stops reading. An app cannot use it, because a replay would see other
    changes; declare a reaction instead.
    """
    if CURRENT.get() is not None:
        raise InvalidArgument(
            "a run cannot watch values, because a replay would see other ones: declare a "
            "reaction with tape.on_value_change, or wait at a gate"
        )
    return _changes(namespace, key, from_version, url, token)


def _changes(
    namespace: str, key: str, from_version: int, url: str | None, token: str | None
) -> Iterator[ValueChange]:
    with connect(url, token=token) as client:
        yield from client.watch_value(namespace, key, from_version=from_version)


def cancel_run(
    run_id: str, reason: str = "", *, url: str | None = None, token: str | None = None
) -> Run:
    """Request the cancellation of a run. Its effects are compensated first."""
    with connect(url, token=token) as client:
        return client.cancel_run(run_id, reason)


def resume(run_id: str, *, url: str | None = None, token: str | None = None) -> Run:
    """Make a run that is stuck or waits available to workers again."""
    with connect(url, token=token) as client:
        return client.resume_run(run_id)


def recover_once(
    *,
    pool: str = DEFAULT_POOL,
    apps: Apps | None = None,
    url: str | None = None,
    token: str | None = None,
    settings: Settings | None = None,
) -> int:
    """Do all the work that a worker would find now, and return how many pieces it was."""
    refuse_running_loop("tape.recover_once", "await asyncio.to_thread(tape.recover_once)")
    return asyncio.run(_recover(pool, apps or DECLARED_APPS, url, token, settings or Settings()))


async def _recover(
    pool: str, apps: Apps, url: str | None, token: str | None, settings: Settings
) -> int:
    async with AsyncExitStack() as opened:
        operations = await open_operations(url or default_url(), token or default_token(), settings)
        opened.push_async_callback(operations.close)
        open_credential = await opened.enter_async_context(opening_credentials(operations))
        threads = HandlerThreads(settings.reactors.threads)
        opened.callback(threads.shutdown)
        reactors = RunReactors(
            operations,
            apps,
            settings.reactors,
            threads,
            owner=lease_owner(),
            pool=pool,
            open_source=opening_sources(open_credential),
        )
        opened.push_async_callback(reactors.close)
        return await reactors.once()
