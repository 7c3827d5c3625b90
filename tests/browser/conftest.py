"""The timeline in a real browser: the system's own, or a visible skip where there is none."""

import os
import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.servers.tape_server import ServerProcess

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
PATIENCE_MS = 20_000
expect.set_options(timeout=PATIENCE_MS)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """For one module: while there is one, this thread runs an event loop that is not ours."""
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip(f"none of {', '.join(NAMES)} is here: `make test-programs` installs one")
    with sync_playwright() as playwright:
        sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = playwright.chromium.launch(executable_path=found, args=sandbox)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def http(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The HTTP door of a server that the tests of a module share."""
    with ServerProcess(f"sqlite:{tmp_path_factory.mktemp('browser') / 'tape.db'}") as server:
        yield server.http


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page on which no error was thrown and nothing was refused by its policy."""
    faults: list[str] = []
    with browser.new_context(viewport={"width": 1400, "height": 800}) as context:
        context.set_default_timeout(PATIENCE_MS)
        page = context.new_page()
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("console", lambda said: faults.append(said.text) if _is_fault(said.text) else None)
        yield page
    assert faults == []


def _is_fault(text: str) -> bool:
    return "Content Security Policy" in text or "Uncaught" in text
