"""Acceptance decided on what this process remembers, and sent as one statement.

Whoever accepts messages is nearly always the only one to write the row of their listener, and the
row of a subscription seldom changes. So both are remembered, and a batch that needs nothing else
but new places and new runs is decided before its turn. That it is so is proven in the transaction
that writes: the rows are compared, and places and runs are inserted, which fails if they are there.
A guess that turns out wrong writes nothing, and the batch goes the long way.
"""

from collections import OrderedDict
from collections.abc import Iterable
from typing import Any, Final, NamedTuple, cast

from tape.model.move import Need, State, Table
from tape.model.run import RUNS
from tape.model.subscription import (
    ACCEPTED_PLACES,
    LISTENERS,
    SUBSCRIPTIONS,
    Listener,
    Subscription,
)
from tape.ports.store import Decide
from tape.stores.guesses import Keys
from tape.stores.postgres.extend import WrongGuess, flat

MOST_REMEMBERED: Final = 1_000
_NEW: Final[frozenset[Table[Any, Any]]] = frozenset({RUNS, ACCEPTED_PLACES})
_TABLES: Final[frozenset[Table[Any, Any]]] = _NEW | {SUBSCRIPTIONS, LISTENERS}


class RememberedRows(NamedTuple):
    """What a batch is decided on. Places and runs that it needs are taken not to be there."""

    subscriptions: list[Subscription]
    listeners: list[Listener]
    missing: Keys


class RememberedSubscriptions:
    """As this process last saw or left them."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, tuple[Subscription, Listener]] = OrderedDict()

    def guess(self, keys: Keys, needs: Iterable[Need]) -> RememberedRows | None:
        """The rows that these keys have, None if that is not known."""
        if not keys.keys() <= _TABLES or ACCEPTED_PLACES not in keys:
            return None
        if any(need.table in _NEW and not need.is_new for need in needs):
            return None
        names = {name for table in (SUBSCRIPTIONS, LISTENERS) for (name,) in keys.get(table, ())}
        known = [self._known.get(name) for name in names]
        found = [rows for rows in known if rows is not None]
        if len(found) < len(names):
            return None
        missing = {table: keys[table] for table in _NEW if table in keys}
        return RememberedRows([one for one, _ in found], [one for _, one in found], missing)

    def note(self, keys: Keys, state: State) -> None:
        """Remember what a batch has looked at and written."""
        for table in (SUBSCRIPTIONS, LISTENERS):
            for (name,) in keys.get(table, ()):
                subscription = state.get(SUBSCRIPTIONS, name)
                listener = state.get(LISTENERS, name)
                if subscription is None or listener is None:
                    self._known.pop(name, None)
                else:
                    self._known[name] = subscription, listener
                    self._known.move_to_end(name)
        while len(self._known) > MOST_REMEMBERED:
            self._known.popitem(last=False)

    def forget(self) -> None:
        self._known.clear()


def decide_remembered(rows: RememberedRows, now_ms: int, decide: Decide, state: State) -> list[Any]:
    """Decide a batch on what is remembered; the statement's arguments."""
    state.now_ms = now_ms
    state.put_loaded(SUBSCRIPTIONS, rows.subscriptions)
    state.put_loaded(LISTENERS, rows.listeners)
    decide(state)
    if state.refused or state.deletions or not state.entries:
        raise WrongGuess
    if not state.saves.keys() <= _NEW | {LISTENERS}:
        raise WrongGuess
    for table, wanted in rows.missing.items():
        made = state.saves.get(table, {})
        if any((key if len(key) > 1 else key[0]) not in made for key in wanted):
            raise WrongGuess
    listeners = cast("dict[str, Listener]", state.saves.get(LISTENERS, {}))
    if any(row.name not in listeners for row in rows.listeners):
        raise WrongGuess
    return [
        now_ms,
        flat((s.name, s.state, s.revision, s.changed_at_ms) for s in rows.subscriptions),
        flat((*row, *listeners[row.name]) for row in rows.listeners),
        flat(state.saves.get(ACCEPTED_PLACES, {}).values()),
        flat(state.saves.get(RUNS, {}).values()),
        flat(state.entries),
    ]
