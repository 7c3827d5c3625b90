"""Reads the `.sql` files: one file per noun, each statement under `-- name:` and its purpose."""

import re
from importlib.resources import files

from tape.model.entry import Entry

_NAME = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)
PREDICATE = "/* predicate */ TRUE"
ENTRY = "/* entry */ NULL"
# What a task's statements return of its entry j after global_seq, in the order of
# model.entry.Entry; blank where the entry is gone.
_JOINED_ENTRY = ", ".join(
    f"coalesce(j.{name}, {0 if kind is int else repr('')})"
    for name, kind in list(Entry.__annotations__.items())[1:]
)


def load_statements(package: str) -> dict[str, str]:
    """Every named statement of a dialect's package."""
    found: dict[str, str] = {}
    for resource in sorted(files(package).iterdir(), key=lambda item: item.name):
        if not resource.name.endswith(".sql"):
            continue
        _, *parts = _NAME.split(resource.read_text())
        for name, text in zip(parts[::2], parts[1::2], strict=True):
            if name in found:
                raise ValueError(f"{resource.name} names {name} a second time")
            found[name] = text.strip().replace(ENTRY, _JOINED_ENTRY)
    return found
