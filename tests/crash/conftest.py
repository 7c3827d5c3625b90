"""What all crash tests share."""

import os

import pytest

from tests.integration.docs.pages import ROOT


@pytest.fixture(autouse=True)
def _imports(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the process that others are forked from finds what it imports."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT), prepend=os.pathsep)
