"""What the documents speak of exists: links, tests, dependencies, errors."""

import re
import tomllib
from pathlib import Path

import pytest

from tape.errors import TapeError
from tests.integration.docs.pages import ROOT, pages

_LINK = re.compile(r"\]\((?!https?:)([^)#]+)")
_FILE = re.compile(r"`((?:src|tests|docs|scripts)/[\w/.]+)`")


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_links_and_files_exist(page: Path) -> None:
    text = page.read_text()
    missing = [link for link in _LINK.findall(text) if not (page.parent / link).exists()]
    missing += [path for path in _FILE.findall(text) if not (ROOT / path).exists()]
    assert missing == []


def test_each_dependency_has_its_reason() -> None:
    page = (ROOT / "docs/decisions/0002-dependencies.md").read_text()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wanted = project["project"]["dependencies"] + project["dependency-groups"]["dev"]
    names = [re.split(r"[\[<>=;]", requirement)[0].strip() for requirement in wanted]
    assert [name for name in names if f"`{name}" not in page] == []


def test_each_error_is_explained() -> None:
    page = (ROOT / "docs/errors.md").read_text()
    assert [e.__name__ for e in _errors(TapeError) if f"`{e.__name__}`" not in page] == []
    assert [e.reason for e in _errors(TapeError) if f"`{e.reason}`" not in page] == []


def _errors(root: type[TapeError]) -> list[type[TapeError]]:
    found = [root]
    for below in root.__subclasses__():
        if below.__module__ == TapeError.__module__:  # others are rooms' own kinds of these
            found += _errors(below)
    return found
