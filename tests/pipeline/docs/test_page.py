"""The pages that use Spark do what they say, in the session that all tests share."""

import shlex
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tape.cli.root import run
from tests.integration.docs.pages import ROOT, Example, Program, Saved, examples, matches


@pytest.mark.parametrize("page", [pytest.param("pipeline", marks=pytest.mark.middle), "predicates"])
def test_the_page(
    page: str,
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(SparkSession, "stop", lambda _session: None)  # others go on with it
    for step in examples(ROOT / f"docs/{page}.md", {}):
        capfd.readouterr()
        if isinstance(step, Saved):
            (tmp_path / step.file_name).write_text(placed(step.source, tmp_path))
        elif isinstance(step, Example):
            assert run(shlex.split(placed(step.command, tmp_path))[1:]) == 0
            printed = capfd.readouterr().out.splitlines()
            assert matches(on_standard_output(step.printed, tmp_path), printed), printed
        elif isinstance(step, Program):
            exec(compile(placed(step.source, tmp_path), f"docs/{page}.md", "exec"), {})
            printed = capfd.readouterr().out.splitlines()
            assert step.printed is not None
            assert matches(step.printed, printed), printed


def on_standard_output(wanted: list[str], folder: Path) -> list[str]:
    """What the page prints but for the note of a new store, which goes to standard error."""
    return [placed(line, folder) for line in wanted if not line.startswith("created ")]


def placed(text: str, folder: Path) -> str:
    """Spark's processes stay in the folder in which the session was started."""
    text = text.replace("sqlite:desk.db", f"sqlite:{folder / 'desk.db'}")
    text = text.replace("./", f"{folder}/")
    return text.replace('"lake"', f'"{folder / "lake"}"')
