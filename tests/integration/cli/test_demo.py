"""The demo keeps its promises, and says so when one does not hold."""

import random
import re
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console
from rich.progress import Progress

from tape.cli.demo import command, limits, pipeline, trading
from tape.cli.demo.stage import Stage
from tape.cli.root import run
from tape.programs.connect import connect_async
from tests.integration.cli.command import start, tape


@pytest.mark.middle
def test_a_small_day(tmp_path: Path) -> None:
    done = tape("demo", "--no-pipeline", "--events", "600", "--keep", "day", folder=tmp_path)
    assert (done.code, done.err) == (0, ""), done.out
    assert re.search(r"All \d+ promises held", done.out)
    assert "BROKEN" not in done.out
    assert "taken over from the first worker by the second (recovery) with token" in done.out
    assert "✓ one wire, one hedge and one batch in the ledger" in done.out
    assert "✓ 40 wires are one run each, begun in the order of the file" in done.out
    kept = tape("tail", "--store", "sqlite:day/tape.db", "--no-follow", "--json", folder=tmp_path)
    entries = [record["global_seq"] for record in kept.records]
    assert entries == sorted(set(entries))
    assert f"{len(entries):,} entries in one order" in done.out
    again = tape("demo", "--events", "600", "--keep", "day", folder=tmp_path)
    assert (again.code, "exists; give another folder" in again.err) == (2, True)


def test_a_broken_promise_is_a_failure(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    async def play(stage: Stage) -> None:
        stage.promise("the impossible", held=False)

    monkeypatch.setattr(limits, "play", play)
    monkeypatch.setattr(command, "ACTS", (trading, limits))
    assert run(["demo", "--no-pipeline", "--events", "200"]) == 1
    assert "the impossible" in capfd.readouterr().out


@pytest.mark.long
@pytest.mark.timeout(400)
def test_a_day_ends_with_the_pipeline(tmp_path: Path) -> None:
    pytest.importorskip("pyspark", reason="the last act needs the extra spark")
    demo = start("demo", "--events", "200", "--keep", "day", folder=tmp_path)
    out, err = demo.communicate(timeout=380)
    assert (demo.returncode, err) == (0, ""), out
    assert "and found nothing wrong" in out
    assert re.search(r"All \d+ promises held", out)
    assert (tmp_path / "day" / "audit.html").exists()


async def test_without_spark_the_last_act_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(pipeline, "find_spec", lambda _name: None)
    text = StringIO()
    async with connect_async(f"sqlite:{tmp_path / 'tape.db'}") as client:
        out = Console(file=text, width=200)
        stage = Stage("", client, out, Progress(disable=True), 1, random.Random(1))
        await pipeline.play(stage)
        assert (await client.info()).head_global_seq == 0
    assert "pip install 'tape-bus[spark]'" in text.getvalue()
    assert stage.promises == []
