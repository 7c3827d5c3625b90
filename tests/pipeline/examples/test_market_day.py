"""The example with pictures runs, and shows something."""

import runpy
import sys
from pathlib import Path

import matplotlib as mpl
import pytest
from matplotlib.image import imread
from pyspark.sql import SparkSession


@pytest.mark.middle
def test_a_short_day(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    mpl.use("Agg")
    monkeypatch.setattr(sys, "argv", ["day", "--folder", str(tmp_path), "--hours", "2"])
    runpy.run_module("examples.market_day.day")
    printed = capsys.readouterr().out.splitlines()
    assert printed[-2:] == ["4 bars changed", "69000 is the hour's high now"]
    for name in ("events.png", "latency.png", "bars.png"):
        picture = tmp_path / name
        assert picture.read_bytes().startswith(b"\x89PNG\r\n")
        pixels = imread(picture)[:, :, :3]
        assert pixels.shape[0] >= 400
        drawn = (pixels < 0.9).any(axis=2).mean()
        assert 0.005 < drawn < 0.9, name
