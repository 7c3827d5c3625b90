"""Reactions declared in code: `@tape.on(…)` above the function that handles what they bring.

A declaration is written down in this process only. It is registered with a journal when a
dispatcher starts, or by `tape.reactions.register_all`: importing a module needs no network.

The id of a reaction outlives the process, so it must be the same each time. That of a handler is
its module and name, that of an agent or target is made of what it does. A module that is loaded
again takes the place of what it declared before; two declarations of one id are refused.
"""

import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, TypeVar, Unpack

from tape.errors import InvalidArgument, TapeError
from tape.model.json_text import UNLIMITED
from tape.model.reaction import NewReaction, Reaction, check_reaction
from tape.model.run import STATUS_WORDS, status_named
from tape.model.subject import encode_segment
from tape.ports.declared import DeclaredApp
from tape.reactions.settings import Options, in_pool, new_reaction, only_where

F = TypeVar("F", bound=Callable[..., Any])

Handler = Callable[[dict[str, Any]], Any]
"""Called with the envelope of an entry; plain or `async`."""

_MAIN = ("__main__", "__mp_main__")


class Origin(NamedTuple):
    """Where a declaration stands. `load` is another object each time its module is loaded."""

    module: str = ""
    name: str = ""
    place: str = ""
    load: object = None

    def __str__(self) -> str:
        where = f" ({self.place})" if self.place else ""
        return f"{self.module}.{self.name}{where}"


class Declaration(NamedTuple):
    """A reaction and, where its work is a task, the function that does it."""

    new: NewReaction
    handler: Handler | None
    origin: Origin = Origin()


class Registry:
    """What the modules loaded so far declare, by id, in order."""

    def __init__(self) -> None:
        self._declared: dict[str, Declaration] = {}

    def add(self, declaration: Declaration) -> None:
        self._forget_earlier_load(declaration.origin)
        reaction_id = declaration.new.reaction_id
        before = self._declared.get(reaction_id)
        if before is not None and before[:2] != declaration[:2] and not _is_typed_in(declaration):
            raise InvalidArgument(
                f"{reaction_id!r} is declared by {before.origin} and again, differently, by "
                f"{declaration.origin}: give one of them a reaction_id of its own",
                field="reaction_id",
            )
        self._declared[reaction_id] = declaration

    def get(self, reaction_id: str) -> Declaration | None:
        return self._declared.get(reaction_id)

    def clear(self) -> None:
        self._declared.clear()

    def __iter__(self) -> Iterator[Declaration]:
        return iter(list(self._declared.values()))

    def __len__(self) -> int:
        return len(self._declared)

    def __contains__(self, reaction_id: object) -> bool:
        return reaction_id in self._declared

    def _forget_earlier_load(self, origin: Origin) -> None:
        self._declared = {
            reaction_id: each
            for reaction_id, each in self._declared.items()
            if each.origin.module != origin.module or each.origin.load is origin.load
        }


DECLARED = Registry()


class Registering(Protocol):
    """The operations, or a client with an event loop."""

    async def register_reaction(self, new: NewReaction, /) -> Reaction: ...


async def register_declared(
    operations: Registering,
    registry: Registry = DECLARED,
    apps: Mapping[str, DeclaredApp] = MappingProxyType({}),
) -> list[Reaction]:
    """Register all that is declared. A refusal names the declaration that it is about.

    Runs of one of these apps go to its pool, unless the reaction names another.
    """
    registered: list[Reaction] = []
    for declaration in registry:
        try:
            new = in_pool(declaration.new, apps)
            registered.append(await operations.register_reaction(new))
        except TapeError as error:
            error.args = (f"{declaration.origin}: {error}",)
            raise
    return registered


def on(
    subject_pattern: str,
    *,
    where: str = "",
    predicate: str = "",
    agent: str | DeclaredApp | None = None,
    pool: str = "",
    publish: str | None = None,
    max_concurrency: int = 1,
    rate_limit_per_s: int = 0,
    debounce_ms: int = 0,
    retry_max: int = 5,
    retry_backoff_ms: int = 1000,
    dlq_after_n: int = 5,
    num_shards: int = 1,
    name: str = "",
    reaction_id: str = "",
    from_global_seq: int | None = None,
    engine: str = "server",
) -> Callable[[F], F]:
    """React to entries whose subject matches and for which `where`, a CEL predicate, is true.

    A dispatcher calls the decorated function with the envelope of each entry. With `agent` the
    entry starts a run of that app instead, in `pool` or the app's own pool. With `publish` it is
    published to that target. In both cases the function is not called. The decorator returns the
    function unchanged. `predicate` is the older name of `where`.
    """
    if callable(subject_pattern):
        raise InvalidArgument(
            "is missing: write @tape.on('/tape/…') above the handler", field="subject_pattern"
        )
    options: Options = {
        "where": only_where(where, predicate),
        "agent": agent,
        "pool": pool,
        "publish": publish,
        "max_concurrency": max_concurrency,
        "rate_limit_per_s": rate_limit_per_s,
        "debounce_ms": debounce_ms,
        "retry_max": retry_max,
        "retry_backoff_ms": retry_backoff_ms,
        "dlq_after_n": dlq_after_n,
        "num_shards": num_shards,
        "name": name,
        "reaction_id": reaction_id,
        "from_global_seq": from_global_seq,
        "engine": engine,
    }

    def declare(function: F) -> F:
        origin = _origin(function)
        is_task = agent is None and publish is None
        if is_task:
            _check_handler(function, origin)
            options["reaction_id"] = reaction_id or _id_of(origin)
        new = new_reaction(subject_pattern, **options)
        check_reaction(new, UNLIMITED)  # sizes are judged where it is registered
        DECLARED.add(Declaration(new, function if is_task else None, origin))
        return function

    return declare


def on_value_change(
    namespace: str, key: str | None = None, **options: Unpack[Options]
) -> Callable[[F], F]:
    """React when a value is set; without a key, any value of the namespace."""
    return on(f"/tape/value/changed/{_named(namespace=namespace)}/{_key(key)}", **options)


def on_value_deleted(
    namespace: str, key: str | None = None, **options: Unpack[Options]
) -> Callable[[F], F]:
    """React when a value is deleted; without a key, any value of the namespace."""
    return on(f"/tape/value/deleted/{_named(namespace=namespace)}/{_key(key)}", **options)


def on_effect_confirmed(tool: str | None, **options: Unpack[Options]) -> Callable[[F], F]:
    """React when a call of this tool is confirmed, in any run; None is any tool."""
    return on(f"/tape/effect/confirmed/{_named(tool=tool)}/*", **options)


def on_effect_failed(tool: str | None, **options: Unpack[Options]) -> Callable[[F], F]:
    """React when a call of this tool has failed, in any run; None is any tool."""
    return on(f"/tape/effect/failed/{_named(tool=tool)}/*", **options)


def on_effect_unknown(tool: str | None, **options: Unpack[Options]) -> Callable[[F], F]:
    """React when it is unknown whether a call of this tool happened; None is any tool."""
    return on(f"/tape/effect/unknown/{_named(tool=tool)}/*", **options)


def on_effect_reconciled(tool: str | None, **options: Unpack[Options]) -> Callable[[F], F]:
    """React when the outcome of an unknown call of this tool was found out; None is any tool."""
    return on(f"/tape/effect/reconciled/{_named(tool=tool)}/*", **options)


def on_decision_recorded(
    run_id: str | None = None, decision_index: int | None = None, **options: Unpack[Options]
) -> Callable[[F], F]:
    """React to decisions of this run, or of any; with an index, only to that decision.

    Draws (`tape.now()` and the like) are `/tape/decision/drawn/…`, failed decisions
    `/tape/decision/failed/…`. All three share one numbering.
    """
    if decision_index is not None and type(decision_index) is not int:
        raise InvalidArgument(f"{decision_index!r} is not a whole number", field="decision_index")
    index = "*" if decision_index is None else decision_index
    return on(f"/tape/decision/recorded/{_named(run_id=run_id)}/{index}", **options)


def on_gate(
    gate: str | None, verb: str = "waiting", **options: Unpack[Options]
) -> Callable[[F], F]:
    """React when a run waits at this gate, or with the verb `released`, when the gate opened."""
    return on(f"/tape/gate/{_named(verb=verb)}/{_named(gate=gate)}/*", **options)


def on_run(status: str, app: str | None = None, **options: Unpack[Options]) -> Callable[[F], F]:
    """React when a run of this app, or of any, reaches this status: `done`, `failed`, …"""
    word = STATUS_WORDS[status_named(status)]
    return on(f"/tape/run/{word}/{_named(app=app)}/**", **options)


def _named(**name: str | None) -> str:
    """A name as a segment, encoded so that no character of it is a wildcard; None is any name."""
    ((field, text),) = name.items()
    if text is None:
        return "*"
    if not isinstance(text, str):
        raise InvalidArgument(f"{text!r} is not a text", field=field)
    return encode_segment(text)


def _key(key: str | None) -> str:
    return "**" if key is None else _named(key=key)


def _origin(function: Callable[..., Any]) -> Origin:
    plain = inspect.unwrap(function)
    module: str = getattr(plain, "__module__", "") or ""
    loaded = sys.modules.get(module)
    code = getattr(plain, "__code__", None)
    return Origin(
        _importable(module),
        getattr(plain, "__qualname__", ""),
        f"{code.co_filename}:{code.co_firstlineno}" if code else "",
        getattr(loaded, "__spec__", None),
    )


def _importable(module: str) -> str:
    """The name by which a program would be imported that now runs as a script or with -m."""
    if module not in _MAIN:
        return module
    main = sys.modules.get(module)
    spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None)
    if spec is not None:
        return str(spec.name).removesuffix(".__main__")
    return Path(file).stem if file else module


def _is_typed_in(declaration: Declaration) -> bool:
    """At a prompt or in a notebook, where saying it again is how to change it."""
    return declaration.origin.module in _MAIN


def _id_of(origin: Origin) -> str:
    if not origin.name:
        raise InvalidArgument("is required for a handler that has no name", field="reaction_id")
    return f"{origin.module}.{origin.name}"


def _check_handler(function: Callable[..., Any], origin: Origin) -> None:
    if not callable(function):
        raise InvalidArgument(f"{function!r} is not a function", field="handler")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise InvalidArgument(
            f"{origin} is a generator: nothing would run its body", field="handler"
        )
    try:
        signature = inspect.signature(function)
    except ValueError:
        return  # written in C: it will show
    try:
        signature.bind({})
    except TypeError as error:
        raise InvalidArgument(
            f"{origin} is called with one argument, the envelope, but takes {signature}: {error}",
            field="handler",
        ) from None
