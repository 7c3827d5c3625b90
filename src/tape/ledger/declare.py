"""Declaring what events run an app; a worker registers it when it starts.

@tape.on_event("price.*", where="payload.price > 0", input={"price": "$.payload.price"})
@tape.app("repricing")
async def repricing(ctx: tape.Context, input: dict) -> None: ...
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from tape.errors import InvalidArgument
from tape.ledger.operations import LedgerOperations
from tape.model.event_subscription import DEFAULT_DRAINER, EventSubscription, NewEventSubscription
from tape.model.json_text import UNLIMITED, to_json
from tape.model.run import DEFAULT_POOL
from tape.ports.declared import DeclaredApp
from tape.predicates import STORED_LIMITS, check

A = TypeVar("A", bound=DeclaredApp)


@dataclass(slots=True)
class EventSubscriptions:
    """What is declared in a process, by id."""

    declared: dict[str, NewEventSubscription] = field(default_factory=dict)

    def add(self, new: NewEventSubscription) -> None:
        known = self.declared.get(new.subscription_id)
        if known is not None and known != new:
            raise InvalidArgument(
                f"another subscription has the id {new.subscription_id!r}: give one of them "
                "another id",
                field="subscription_id",
            )
        self.declared[new.subscription_id] = new

    def __iter__(self) -> Iterator[NewEventSubscription]:
        return iter(self.declared.values())


DECLARED_EVENT_SUBSCRIPTIONS = EventSubscriptions()


def new_subscription(
    event_type_glob: str,
    app: str,
    *,
    subscription_id: str = "",
    drainer: str = DEFAULT_DRAINER,
    where: str = "",
    input: Mapping[str, str] | None = None,  # noqa: A002 - what an app calls it
    enabled: bool = True,
    awaits_end: bool = True,
    pool: str = "",
) -> NewEventSubscription:
    """Without an id it is named after the app and the glob."""
    return NewEventSubscription(
        subscription_id or f"{app}:{event_type_glob}",
        event_type_glob,
        app,
        drainer,
        to_json(dict(input), UNLIMITED, field="input") if input else "",
        where,
        enabled=enabled,
        awaits_end=awaits_end,
        pool=pool,
    )


def pool_of(app: DeclaredApp | None) -> str:
    """The pool that an app is declared with; empty for the default one."""
    return "" if app is None or app.pool == DEFAULT_POOL else app.pool


def on_event(
    event_type_glob: str,
    *,
    subscription_id: str = "",
    drainer: str = DEFAULT_DRAINER,
    where: str = "",
    input: Mapping[str, str] | None = None,  # noqa: A002 - what an app calls it
    enabled: bool = True,
    awaits_end: bool = True,
    pool: str = "",
    registry: EventSubscriptions | None = None,
) -> Callable[[A], A]:
    """Run the app below for each event whose type matches, in order.

    `where` is a CEL predicate; `input` maps names to recipes such as `$.payload.price`. Without
    `input` the app gets the whole event. Its runs go to `pool`, or to the app's own pool. The
    decorator returns the app unchanged.
    """

    def declare(app: A) -> A:
        name = getattr(app, "name", None)
        if not isinstance(name, str):
            raise InvalidArgument("write @tape.on_event above @tape.app", field="app")
        new = new_subscription(
            event_type_glob,
            name,
            subscription_id=subscription_id,
            drainer=drainer,
            where=where,
            input=input,
            enabled=enabled,
            awaits_end=awaits_end,
            pool=pool or pool_of(app),
        ).checked(UNLIMITED)
        check(where, field="where", limits=STORED_LIMITS)
        (DECLARED_EVENT_SUBSCRIPTIONS if registry is None else registry).add(new)
        return app

    return declare


async def put_declared(
    ledger: LedgerOperations, declared: Iterable[NewEventSubscription]
) -> list[EventSubscription]:
    """Register them; as they are now."""
    return [await ledger.put_event_subscription(new) for new in declared]
