"""The id that may have been meant by one that is not there: asked of the journal that was named."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from difflib import get_close_matches
from typing import Any

import click

from tape.cli.output import notes, printable
from tape.cli.target import Target, connect
from tape.client import AsyncTapeClient
from tape.errors import TapeError
from tape.subscriptions.operations import named_credentials
from tape.subscriptions.spec import spec_of_json

LOOKED_THROUGH = 1_000  # runs, the newest
SHORTEST = 4  # characters of a beginning that may stand for the whole

Ids = Callable[[AsyncTapeClient, Mapping[str, Any]], Awaitable[Iterable[str]]]


async def _reactions(client: AsyncTapeClient, _typed: Mapping[str, Any]) -> Iterable[str]:
    return [state.reaction.reaction_id for state in await client.list_reactions()]


async def _drainers(client: AsyncTapeClient, _typed: Mapping[str, Any]) -> Iterable[str]:
    return [state.drainer.drainer_id for state in await client.drainers()]


async def _subscriptions(client: AsyncTapeClient, _typed: Mapping[str, Any]) -> Iterable[str]:
    return [row.subscription_id for row in await client.event_subscriptions()]


async def _declared(client: AsyncTapeClient, _typed: Mapping[str, Any]) -> Iterable[str]:
    return [view.subscription.name for view in await client.subscriptions()]


async def _runs(client: AsyncTapeClient, _typed: Mapping[str, Any]) -> Iterable[str]:
    return [run.run_id for run in await client.list_runs(limit=LOOKED_THROUGH)]


async def _apps(client: AsyncTapeClient, _typed: Mapping[str, Any]) -> Iterable[str]:
    """Of runs and subscriptions: no journal knows more of an app."""
    runs = {run.app_name for run in await client.list_runs(limit=LOOKED_THROUGH)}
    return runs | {row.workflow_type for row in await client.event_subscriptions()}


async def _pools(client: AsyncTapeClient, _typed: Mapping[str, Any]) -> Iterable[str]:
    """Of runs: no journal knows more of a pool."""
    return {run.pool for run in await client.list_runs(limit=LOOKED_THROUGH)}


async def _aliases(client: AsyncTapeClient, _typed: Mapping[str, Any]) -> Iterable[str]:
    return [state.alias for state in await client.credentials()]


async def _namespaces(client: AsyncTapeClient, _typed: Mapping[str, Any]) -> Iterable[str]:
    return await client.list_namespaces()


async def _keys(client: AsyncTapeClient, typed: Mapping[str, Any]) -> Iterable[str]:
    return [value.key for value in await client.list_values(typed["namespace"])]


async def _session_apps(client: AsyncTapeClient, _typed: Mapping[str, Any]) -> Iterable[str]:
    return await client.list_session_apps()


_IDS: dict[str, Ids] = {
    "reaction_id": _reactions,
    "reaction": _reactions,
    "drainer": _drainers,
    "subscription_id": _subscriptions,
    "subscription": _declared,
    "run_id": _runs,
    "app": _apps,
    "namespace": _namespaces,
    "key": _keys,
    "app_name": _session_apps,
    "alias": _aliases,
}
_LISTED: dict[str, Ids] = {**_IDS, "pool": _pools}
"""What a list may be narrowed to. A pool is no id that a command may fail to find."""


def meant_by(ctx: click.Context) -> str:
    """The nearest id to the first of a command's ids that is not there, in quotes; or nothing."""
    typed = {name: text for name, text in ctx.params.items() if name in _IDS and text}
    if "subscription" in typed:  # what else was typed are ids of its dead letters
        typed = {"subscription": typed["subscription"]}
    return _asked(ctx, lambda client: _nearest(client, typed)) if typed else ""


def credential_meant_by(ctx: click.Context) -> str:
    """The nearest alias to the first that was typed, or is named by the subscription that was
    typed, and is not in the wallet; in quotes, or nothing."""
    alias, name = ctx.params.get("alias"), ctx.params.get("subscription")

    async def nearest(client: AsyncTapeClient) -> str:
        aliases = [alias] if alias else []
        if not aliases and name:
            view = await client.subscription(name)
            aliases = [each for _, each in named_credentials(spec_of_json(view.document_json))]
        known = list(await _aliases(client, {}))
        missing = [each for each in aliases if each not in known]
        return _near(missing[0], known) if missing else ""

    return _asked(ctx, nearest)


def note_if_unknown(ctx: click.Context, *names: str) -> None:
    """For a list that is empty: say that nothing has such an id, if another is near."""
    typed = {name: ctx.params[name] for name in names if ctx.params[name]}
    if typed and (meant := _asked(ctx, lambda client: _nearest(client, typed))):
        what = " or ".join(map(repr, typed.values()))
        notes().print(printable(f"note: nothing here is named {what}. Did you mean {meant}?"))


def _asked(ctx: click.Context, ask: Callable[[AsyncTapeClient], Awaitable[str]]) -> str:
    """What the journal that was named answers; nothing if it cannot be asked."""
    target = ctx.find_object(Target)
    if target is None:
        return ""

    async def work() -> str:
        async with connect(target) as client:
            return await ask(client)

    try:
        return asyncio.run(work())
    except TapeError:  # the first error is the one that counts
        return ""


async def _nearest(client: AsyncTapeClient, typed: Mapping[str, Any]) -> str:
    for name, text in typed.items():
        known = list(await _LISTED[name](client, typed))
        if text not in known:
            return _near(text, known)
    return ""


def _near(text: str, known: list[str]) -> str:
    near = get_close_matches(text, known, n=1)
    if len(text) >= SHORTEST:
        near += [one for one in known if one.startswith(text)]
    return repr(near[0]) if near else ""
