"""The page about subscription documents lists each key with its default, as the schema has them."""

import re
from collections.abc import Iterator
from typing import Any

import pytest

from tape.subscriptions.document_keys import VERIFY_KEYS
from tape.subscriptions.document_schema import document_schema
from tests.integration.docs.pages import ROOT

PAGE = (ROOT / "docs/subscription-document.md").read_text()
SCHEMA = document_schema()
_SECTION = re.compile(r"^## (?:`(?P<path>[\w.\[\]]+)`|The document)$")
_ROW = re.compile(r"^\| `(?P<key>\w+)` \| (?P<what>.*) \| (?P<default>.*?) ?\|$")


def told() -> Iterator[tuple[str, str]]:
    """Each key of the page, and what it says of the default."""
    at, is_inside = "", False
    for line in PAGE.splitlines():
        if line.startswith("## "):
            section = _SECTION.match(line)
            is_inside, at = section is not None, (section["path"] or "") if section else ""
        elif line.startswith("| type |"):
            is_inside = False
        elif is_inside and (row := _ROW.match(line)):
            yield f"{at}.{row['key']}" if at else row["key"], row["default"]


def fields(block: dict[str, Any], at: str = "") -> Iterator[tuple[str, str | None]]:
    """Each key of the schema, and its default as a page writes it; None if it has none."""
    for name, field in block.get("properties", {}).items():
        path = f"{at}.{name}" if at else name
        inner = field.get("items", field)
        kind = SCHEMA["$defs"][inner["$ref"].rpartition("/")[2]] if "$ref" in inner else {}
        yield path, _default(name, block, field)
        yield from fields(kind, f"{path}[]" if "items" in field else path)


def _default(name: str, block: dict[str, Any], field: dict[str, Any]) -> str | None:
    if name in block.get("required", ()):
        return "required"
    default = field.get("default")
    if default is None or isinstance(default, dict | list):
        return None
    if name == "max_bytes":
        return f"`{default // 2**30}Gi`"
    text = str(default).lower() if isinstance(default, bool) else f"{default:g}" if isinstance(
        default, float
    ) else str(default)  # fmt: skip
    return f"`{text}`"


TOLD = dict(told())
FIELDS = dict(fields(SCHEMA))


def test_the_keys_of_the_page_are_those_of_the_schema() -> None:
    assert TOLD.keys() == FIELDS.keys()


@pytest.mark.parametrize("path", [path for path, default in FIELDS.items() if default])
def test_the_default_of_a_key(path: str) -> None:
    assert TOLD[path] == FIELDS[path]


@pytest.mark.parametrize("path", [path for path, default in FIELDS.items() if not default])
def test_what_has_no_default(path: str) -> None:
    assert TOLD[path] != "required"
    assert not TOLD[path].startswith("`")


def test_the_types_of_verification() -> None:
    rows = [
        f"| `{kind}` | {', '.join(f'`{key}`' for key in row.needs)} |"
        + (f" {', '.join(f'`{key}`' for key in row.may)} |" if row.may else " |")
        for (kind,), row in VERIFY_KEYS.items()
    ]
    assert [row for row in rows if row not in PAGE] == []
