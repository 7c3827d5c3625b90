"""The page on the pipeline does what it says, in the session that all tests share."""

import shlex
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tape.cli.root import run
from tests.integration.docs.pages import ROOT, Example, examples, matches


def test_the_page(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(SparkSession, "stop", lambda _session: None)  # others go on with it
    for example in examples(ROOT / "docs/pipeline.md", 7878, 7879):
        capfd.readouterr()
        if isinstance(example, Example):
            assert run(shlex.split(placed(example.command, tmp_path))[1:]) == 0
        else:
            exec(compile(placed(example.source, tmp_path), "docs/pipeline.md", "exec"), {})
        printed = capfd.readouterr().out.splitlines()
        if example.printed is not None:
            assert matches(example.printed, printed), printed


def placed(text: str, folder: Path) -> str:
    """Spark's processes stay in the folder in which the session was started."""
    text = text.replace("sqlite:desk.db", f"sqlite:{folder / 'desk.db'}")
    return text.replace('"lake"', f'"{folder / "lake"}"')
