"""The callers' statements, with the placeholders that each driver wants."""

import re
from functools import cache
from itertools import count
from typing import Literal

from tape.stores.statements import load_statements

Dialect = Literal["postgres", "sqlite"]
Style = Literal["own", "percent", "named"]

_PLACEHOLDER = {"postgres": re.compile(r"\$\d+"), "sqlite": re.compile(r"\?")}
CREATING: dict[Dialect, tuple[str, ...]] = {
    "postgres": (
        "hold_processed",
        "create_processed_schema",
        "create_processed",
        "index_processed",
    ),
    "sqlite": ("create_processed", "index_processed"),
}


@cache
def statement(dialect: Dialect, style: Style, name: str) -> str:
    """`own` has the placeholders of the dialect, `percent` has %s, `named` has :p1, :p2 and on.

    Every statement uses its parameters once each and in order.
    """
    _purpose, _, text = _statements(dialect)[name].partition("\n")
    text = text.removesuffix(";")
    if style == "own":
        return text
    numbers = count(1)
    return _PLACEHOLDER[dialect].sub(
        lambda _found: "%s" if style == "percent" else f":p{next(numbers)}", text
    )


@cache
def _statements(dialect: Dialect) -> dict[str, str]:
    return load_statements(f"tape.stores.{dialect}")
