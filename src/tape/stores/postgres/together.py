"""Several loads as one statement, and several saves with the entries: round trips cost more than
what most of them do.

Only for tables of which no statement locks rows or looks at another table, and where nothing is
deleted: the parts of one statement are done in no certain order.
"""

import re
from functools import cache
from typing import Any, Final

from tape.model.move import Table
from tape.model.run import RUNS
from tape.model.subscription import (
    ACCEPTED_PLACES,
    LISTENERS,
    SEEN_KEYS,
    SUBSCRIPTION_DEAD_LETTERS,
    SUBSCRIPTIONS,
)
from tape.stores.statements import load_statements

SQL: Final = load_statements("tape.stores.postgres")
TOGETHER: Final[frozenset[Table[Any, Any]]] = frozenset(
    {RUNS, SUBSCRIPTIONS, LISTENERS, ACCEPTED_PLACES, SEEN_KEYS, SUBSCRIPTION_DEAD_LETTERS}
)
_PARAMETER: Final = re.compile(r"\$(\d+)")


@cache
def loading(*names: str) -> str:
    """One row, with an array of rows for each table. Its parameters are those of the loads, one
    load after the other."""
    loads = _numbered("load", names)
    # Ours, from files, and nothing else is put into them.
    parts = (f"ARRAY(SELECT ROW(found.*) FROM ({load}) found)" for load in loads)  # noqa: S608
    return f"SELECT {', '.join(parts)}"


@cache
def appending(*names: str) -> str:
    """`append_entries` with the saves of these tables. Its parameters are those of the saves, then
    its own."""
    *saves, append = _numbered("save", names, "append_entries")
    parts = (f"saved_{number} AS ({save})" for number, save in enumerate(saves))
    return f"WITH {', '.join(parts)} {append}"


def _numbered(verb: str, names: tuple[str, ...], *others: str) -> list[str]:
    """Statements without their comments, the parameters of each behind those of the one before."""
    found = []
    before = 0
    for name in (*(f"{verb}_{table}" for table in names), *others):
        _purpose, _, text = SQL[name].rstrip(";").partition("\n")
        numbers = [int(number) for number in _PARAMETER.findall(text)]
        found.append(_shifted(text, before))
        before += max(numbers, default=0)
    return found


def _shifted(text: str, by: int) -> str:
    return _PARAMETER.sub(lambda found: f"${int(found[1]) + by}", text)
