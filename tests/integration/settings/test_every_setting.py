"""Every setting does something: changed, it changes what Tape does."""

from pathlib import Path

import pytest
import yaml

from tape.settings import Settings
from tests.integration.docs.pages import ROOT
from tests.integration.settings.demonstrating import changed, every_setting
from tests.integration.settings.of_brokers import OF_BROKERS
from tests.integration.settings.of_doors import OF_DOORS
from tests.integration.settings.of_listening import OF_LISTENING
from tests.integration.settings.of_the_journal import OF_THE_JOURNAL
from tests.integration.settings.of_work import OF_WORK

DEMONSTRATIONS = OF_THE_JOURNAL | OF_WORK | OF_BROKERS | OF_DOORS | OF_LISTENING
HOW = (
    "tape.{0} has no demonstration: add one by that name to a module `of_…` beside this test. It "
    "is two values and a function of the settings whose result differs between them; if there is "
    "nothing that differs, the setting does nothing and must go"
)


@pytest.mark.parametrize("path", [*every_setting()])
async def test_a_setting_acts(path: str, tmp_path: Path) -> None:
    demonstration = DEMONSTRATIONS.get(path)
    if demonstration is None:
        pytest.fail(HOW.format(path))
    observed = []
    for number, value in enumerate(demonstration.values):
        folder = tmp_path / str(number)
        folder.mkdir()
        observed.append(await demonstration.observe(changed(Settings(), path, value), folder))
    one, other = observed
    assert one != other
    again = await demonstration.observe(
        changed(Settings(), path, demonstration.values[0]), _made(tmp_path / "again")
    )
    assert again == one, "it differs by itself"


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def test_nothing_else_is_demonstrated() -> None:
    assert set(DEMONSTRATIONS) <= set(every_setting())


def test_the_page_has_them_all() -> None:
    page = (ROOT / "docs/operating.md").read_text()
    shown = page.split("$ tape config show\n", 1)[1].split("```")[0]
    assert list(_names(yaml.safe_load(shown)["tape"])) == list(every_setting())


def _names(section: dict[str, object], at: str = "") -> list[str]:
    found: list[str] = []
    for name, value in section.items():
        path = f"{at}.{name}" if at else name
        found += _names(value, path) if isinstance(value, dict) else [path]
    return found
