"""Declaring apps and effects: functions that are run durably, and the acts they do.

@tape.effect(connector="bank", check=find_wire, compensate=reverse_wire)
async def wire(cents: int, to: str) -> dict: ...

@tape.app("treasury", version="2")
async def treasury(ctx: tape.Context, input: dict) -> dict: ...
"""

import inspect
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache, update_wrapper
from typing import Any, Generic, NamedTuple, ParamSpec, Protocol, TypeVar, overload

from tape.errors import InvalidArgument
from tape.model.budget import check_amounts
from tape.model.effect import DispatchMode, Semantics
from tape.model.effect_claim import Resolution
from tape.model.obligation import DEFAULT_ATTEMPTS
from tape.model.run import DEFAULT_POOL
from tape.runs.ambient import current_actor

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

AppFunction = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often an effect is tried. The pause between attempts doubles, up to `most_s`."""

    attempts: int = 3
    first_s: float = 0.2
    most_s: float = 10.0

    def __post_init__(self) -> None:
        if self.attempts < 1:
            raise InvalidArgument("must be 1 or more", field="attempts")
        if not 0 <= self.first_s <= self.most_s:
            raise InvalidArgument("must be in 0..most_s", field="first_s")

    def pause_s(self, attempt: int) -> float:
        """After the attempt of this number, the first being 1."""
        return min(self.most_s, self.first_s * 2.0 ** min(attempt - 1, 60))


ONCE = RetryPolicy(attempts=1)


@dataclass(frozen=True, slots=True)
class Spend:
    """What an effect costs, for the budget of its run."""

    usd: float = 0.0
    tokens: int = 0

    def __post_init__(self) -> None:
        check_amounts(self.usd, self.tokens)


class Observed(NamedTuple):
    """The answer of a check. `resolution` is confirmed, failed, absent, duplicate or stuck.

    Absent means that the effect certainly did not happen and may be executed again. A check that
    cannot tell raises an error and is called again later.
    """

    resolution: str
    response: Any = None
    error: Any = None
    external_ref: str = ""

    @property
    def number(self) -> Resolution:
        try:
            return Resolution[self.resolution.upper()]
        except KeyError:
            known = ", ".join(resolution.name.lower() for resolution in Resolution)
            raise InvalidArgument(
                f"{self.resolution!r} is not one of {known}", field="resolution"
            ) from None


@dataclass(frozen=True, slots=True)
class EffectSpec:
    """An effect as declared. Reactors call `check` and `compensate` outside any run.

    `check(key, request)` says what the counterparty knows of an effect: see `tape.Observed`.
    `compensate(request, response, key)` undoes it, and may be called more than once.
    `undo_duplicate(request, response, key)` undoes an effect that happened once too often. Both get
    only the parameters that they declare.
    """

    name: str
    body: Callable[..., Any]
    semantics: Semantics = Semantics.IDEMPOTENT
    dispatch: DispatchMode = DispatchMode.INLINE
    connector: str = ""
    retry: RetryPolicy = ONCE
    check: Callable[..., Any] | None = None
    compensate: Callable[..., Any] | None = None
    undo_duplicate: Callable[..., Any] | None = None
    compensate_attempts: int = DEFAULT_ATTEMPTS
    business_key: Callable[..., str] | None = None
    estimate: Callable[..., Spend] | None = None
    spent: Callable[[Any], Spend] | None = None

    def __post_init__(self) -> None:
        if not self.name:
            raise InvalidArgument("must not be empty", field="name")
        if self.semantics is Semantics.OBSERVE_ONLY and (self.compensate or self.undo_duplicate):
            raise InvalidArgument(
                f"{self.name!r} is observe_only, so there is nothing to undo: use "
                "semantics='idempotent' if there is",
                field="compensate",
            )
        if self.semantics is Semantics.NON_IDEMPOTENT:
            if self.dispatch is not DispatchMode.OUTBOX:
                raise InvalidArgument(
                    f"{self.name!r} is not idempotent: use dispatch='outbox', or after a crash "
                    "between the act and its record it would be executed again",
                    field="dispatch",
                )
            if self.check is None:
                raise InvalidArgument(
                    f"{self.name!r} is not idempotent and needs a status check, "
                    "for when an acknowledgement is lost",
                    field="check",
                )


class DeclaredEffect(Generic[P, R]):
    """A declared effect. Called in a run it is durable: done once in effect, replayed after.

    An asynchronous one is awaited in an asynchronous app, another is called in a synchronous one;
    `ctx.call(effect, …)` works in either. `effect.body` is the function itself. Without a run, in a
    unit test, it is called inside `with tape.testing.effects():`.
    """

    def __init__(self, spec: EffectSpec, body: Callable[P, R]) -> None:
        self.spec = spec
        self.body = body
        self.is_async = inspect.iscoroutinefunction(body)
        update_wrapper(self, body)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        result: R = current_actor(self.spec.name).call_same_colour(self, args, kwargs)
        return result


def effect_name(function: Callable[..., Any]) -> str:
    return getattr(function, "__name__", type(function).__name__)


@dataclass(frozen=True, slots=True)
class App(Generic[R_co]):
    """A function that is run durably: `function(ctx)` or `function(ctx, input)`.

    The runs of an App[dict] return a dict, whether its function is `async` or not.
    """

    name: str
    function: Callable[..., R_co | Coroutine[Any, Any, R_co]]
    version: str = ""
    pool: str = DEFAULT_POOL

    @property
    def own_pool(self) -> str:
        """The pool that it names for its runs; empty for one that is in the default pool."""
        return "" if self.pool == DEFAULT_POOL else self.pool

    @property
    def is_async(self) -> bool:
        return _is_async(self.function)

    @property
    def takes_input(self) -> bool:
        return _takes_input(self.function)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The plain function, for tests of its own."""
        return self.function(*args, **kwargs)


class ChildId(str, Generic[R_co]):
    """The id of a child run; for type checkers, with what the child returns."""

    __slots__ = ()


@dataclass(slots=True)
class Apps:
    """What is declared in a process: apps by name, effects by tool name."""

    apps: dict[str, App[Any]] = field(default_factory=dict)
    effects: dict[str, EffectSpec] = field(default_factory=dict)

    def add_app(self, app: App[Any]) -> None:
        known = self.apps.get(app.name)
        if known is not None and not _same_code(known.function, app.function):
            raise InvalidArgument(f"another app is named {app.name!r}", field="name")
        self.apps[app.name] = app

    def add_effect(self, spec: EffectSpec) -> None:
        known = self.effects.get(spec.name)
        if known is not None and not _same_code(known.body, spec.body):
            raise InvalidArgument(f"another effect is named {spec.name!r}", field="name")
        self.effects[spec.name] = spec

    def __iter__(self) -> Iterator[App[Any]]:
        return iter(self.apps.values())


DECLARED_APPS = Apps()


class DeclareApp(Protocol):
    """Makes an app of a function of either kind."""

    @overload
    def __call__(self, function: Callable[..., Coroutine[Any, Any, R]], /) -> App[R]: ...

    @overload
    def __call__(self, function: Callable[..., R], /) -> App[R]: ...


def app(
    name: str, *, version: str = "", pool: str = DEFAULT_POOL, registry: Apps | None = None
) -> DeclareApp:
    """Declare a durable function. Every run records the `version` of the app that started it."""
    if callable(name):
        called = getattr(name, "__name__", "NAME")
        raise InvalidArgument(
            f'is missing: write @tape.app("{called}") above the function', field="name"
        )
    if not name or "\0" in name:
        raise InvalidArgument("an app needs a name", field="name")

    def declare(function: AppFunction) -> App[Any]:
        _check_arity(name, function)
        declared: App[Any] = App(name, function, version, pool)
        (DECLARED_APPS if registry is None else registry).add_app(declared)
        return declared

    return declare


def _check_arity(name: str, function: AppFunction) -> None:
    signature = inspect.signature(function)
    for given in ((None, None), (None,)):
        with suppress(TypeError):
            signature.bind(*given)
            return
    raise InvalidArgument(
        f"app {name!r} is called as {function.__name__}(ctx) or {function.__name__}(ctx, input), "
        f"and this is {function.__name__}{signature}",
        field="function",
    )


@overload
def effect(function: Callable[P, R], /) -> DeclaredEffect[P, R]: ...


@overload
def effect(
    *,
    name: str = "",
    semantics: str = "idempotent",
    dispatch: str = "inline",
    connector: str = "",
    retry: RetryPolicy = ONCE,
    check: Callable[..., Any] | None = None,
    compensate: Callable[..., Any] | None = None,
    undo_duplicate: Callable[..., Any] | None = None,
    compensate_attempts: int = DEFAULT_ATTEMPTS,
    business_key: Callable[..., str] | None = None,
    estimate: Callable[..., Spend] | None = None,
    spent: Callable[[Any], Spend] | None = None,
    registry: Apps | None = None,
) -> Callable[[Callable[P, R]], DeclaredEffect[P, R]]: ...


def effect(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Declare an effect: a function that acts on the world. EffectSpec explains each option.

    `semantics` is idempotent (the counterparty recognises the key; the default), non_idempotent, or
    observe_only; `dispatch` is inline or outbox.
    """

    def declare(body: Callable[..., Any]) -> DeclaredEffect[..., Any]:
        chosen = dict(options)
        registry = chosen.pop("registry", None)
        chosen["name"] = chosen.get("name") or effect_name(body)
        chosen["semantics"] = _member(Semantics, chosen.get("semantics", "idempotent"), "semantics")
        chosen["dispatch"] = _member(DispatchMode, chosen.get("dispatch", "inline"), "dispatch")
        spec = EffectSpec(body=body, **chosen)
        (DECLARED_APPS if registry is None else registry).add_effect(spec)
        return DeclaredEffect(spec, body)

    return declare(function) if function is not None else declare


def _member(kind: Any, word: Any, field: str) -> Any:
    if isinstance(word, kind):
        return word
    try:
        return kind[str(word).upper()]
    except KeyError:
        known = ", ".join(member.name.lower() for member in kind)
        raise InvalidArgument(f"{word!r} is not one of {known}", field=field) from None


@cache
def _is_async(function: AppFunction) -> bool:
    return inspect.iscoroutinefunction(function)


@cache
def _takes_input(function: AppFunction) -> bool:
    return len(inspect.signature(function).parameters) > 1


def _same_code(one: Callable[..., Any], other: Callable[..., Any]) -> bool:
    """A module that is loaded again declares the same things again."""
    return (one.__module__, one.__qualname__) == (other.__module__, other.__qualname__)


_imported: list[str] = []
"""Modules that are being imported for what they declare, by `tape worker` and its like.

A module that begins a run at its top level is a program as well. Each worker that starts would run
that program too, and whatever the run does would be done once for each of them.
"""


@contextmanager
def importing(module: str) -> Iterator[None]:
    _imported.append(module)
    try:
        yield
    finally:
        _imported.pop()


def refuse_while_importing() -> None:
    """No run begins where a module is imported for its declarations."""
    if _imported:
        raise InvalidArgument(
            f"module {_imported[-1]!r} starts a run when it is imported, so every worker "
            'would start one: put that below `if __name__ == "__main__":`'
        )
