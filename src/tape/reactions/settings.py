"""The settings of a reaction as a program says them, and the id of one that was given none."""

import hashlib
from collections.abc import Mapping
from typing import Any, TypedDict, Unpack

from tape.errors import InvalidArgument
from tape.model.reaction import HandlerKind, NewReaction
from tape.ports.declared import DeclaredApp

SHOWN = 100  # characters of an app or a target in an id
_WORK: dict[int, str] = {HandlerKind.AGENT: "agent", HandlerKind.PUBLISH: "publish"}


class Options(TypedDict, total=False):
    """What may be said of a reaction besides its pattern. Without `agent` and `publish` the work is
    a task for a handler. What is left out has the default of `NewReaction`. `predicate` is the
    older name of `where`."""

    where: str
    predicate: str
    agent: str | DeclaredApp | None
    pool: str
    publish: str | None
    max_concurrency: int
    rate_limit_per_s: int
    debounce_ms: int
    retry_max: int
    retry_backoff_ms: int
    dlq_after_n: int
    num_shards: int
    name: str
    reaction_id: str
    from_global_seq: int | None
    engine: str


def new_reaction(subject_pattern: str, **options: Unpack[Options]) -> NewReaction:
    for name in options.keys() - Options.__annotations__.keys():
        raise InvalidArgument("is not a setting of a reaction", field=name)
    agent, publish = options.get("agent"), options.get("publish")
    if agent is not None and publish is not None:
        raise InvalidArgument("excludes publish: a reaction does one kind of work", field="agent")
    kind = HandlerKind.TASK
    if agent is not None:
        kind = HandlerKind.AGENT
    elif publish is not None:
        kind = HandlerKind.PUBLISH
    agent_app, pool = _agent(agent)
    settings: dict[str, Any] = {
        name: value for name, value in options.items() if name in NewReaction._fields
    }
    new = NewReaction(
        **{"reaction_id": "", **settings, "pool": settings.get("pool") or pool},
        subject_pattern=subject_pattern,
        handler_kind=kind,
        predicate_cel=only_where(options.get("where", ""), options.get("predicate", "")),
        agent_app=agent_app or "",
        publish_target=publish or "",
    )
    return named(_typed(new))


def only_where(where: str, predicate: str) -> str:
    """The predicate, by whichever of its two names it was given."""
    if "" not in (where, predicate):
        raise InvalidArgument("is another name for where: give one of them", field="predicate")
    return predicate if where == "" else where


def _agent(agent: str | DeclaredApp | None) -> tuple[Any, str]:
    """The app's name, and its pool where that is known here."""
    if agent is None or isinstance(agent, str):
        return agent, ""
    return getattr(agent, "name", agent), getattr(agent, "pool", "")


def in_pool(new: NewReaction, apps: Mapping[str, DeclaredApp]) -> NewReaction:
    """With the pool that its app is declared with, if it names none."""
    app = apps.get(new.agent_app)
    return new if app is None or new.pool else new._replace(pool=app.pool)


def named(new: NewReaction) -> NewReaction:
    """With an id made of what it does, if it has none, so that a repeat means the same reaction."""
    return new if new.reaction_id else new._replace(reaction_id=derived_id(new))


def derived_id(new: NewReaction) -> str:
    target = without_secrets(new.publish_target)
    said = "\0".join((new.subject_pattern, new.predicate_cel, new.agent_app, target))
    mark = hashlib.sha256(said.encode(errors="replace")).hexdigest()[:12]
    kind = _WORK.get(new.handler_kind, "task")
    what = new.agent_app or shown_target(target)
    return f"{kind}:{what[:SHOWN]}:{mark}" if what else f"{kind}:{mark}"


def without_secrets(target: str) -> str:
    """A publish target without the user and password that it may hold."""
    scheme, slashes, rest = target.partition("://")
    place, slash, path = rest.partition("/")
    return scheme + slashes + place.rpartition("@")[2] + slash + path


def shown_target(target: str) -> str:
    """For people: of a webhook only where it is, for its path is often a secret."""
    target = without_secrets(target)
    scheme, slashes, rest = target.partition("://")
    if scheme in ("http", "https"):
        return scheme + slashes + rest.partition("/")[0].partition("?")[0]
    return target


def _typed(new: NewReaction) -> NewReaction:
    """A wrong type is told here, by name, and not wherever it first does harm."""
    for field, value in new._asdict().items():
        default = NewReaction._field_defaults.get(field, "")
        if field == "from_global_seq" and value is None:
            continue
        wanted = int if field == "handler_kind" or not isinstance(default, str) else str
        if not isinstance(value, wanted) or isinstance(value, bool):
            what = "a text" if wanted is str else "a whole number"
            raise InvalidArgument(f"{value!r} is not {what}", field=field)
    return new
