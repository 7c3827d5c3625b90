"""A noun of the store has one name: in its port, in each store's modules and `.sql` files."""

from importlib import import_module
from importlib.resources import files
from typing import get_type_hints

import pytest

from tape.ports.store import Store

NOUNS = [
    name for name, is_a in vars(Store).items() if isinstance(is_a, property) and name != "head"
]
# Migrations that were applied name this file, and no migration may change.
SQL_FILES = {"matching": "matcher"}


def public(kind: type) -> set[str]:
    return {name for name in vars(kind) if not name.startswith("_")}


@pytest.mark.parametrize("dialect", ["Sqlite", "Postgres"])
@pytest.mark.parametrize("noun", NOUNS)
def test_a_store_does_what_the_port_says_and_nothing_else(noun: str, dialect: str) -> None:
    port = get_type_hints(getattr(Store, noun).fget)["return"]
    assert port.__module__ == f"tape.ports.{noun}"
    package = f"tape.stores.{dialect.lower()}"
    made = getattr(import_module(f"{package}.{noun}"), f"{dialect}{noun.title()}")
    assert public(made) == public(port)
    assert files(package).joinpath(f"{SQL_FILES.get(noun, noun)}.sql").is_file()


def test_there_are_nouns() -> None:
    assert {"values", "runs", "tasks"} <= set(NOUNS)
