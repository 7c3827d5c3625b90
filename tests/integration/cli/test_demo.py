"""The demo keeps its promises, and says so when one does not hold."""

import re
from pathlib import Path

import pytest

from tape.cli.demo import command, limits, trading
from tape.cli.demo.stage import Stage
from tape.cli.root import run
from tests.integration.cli.command import tape


def test_a_small_day(tmp_path: Path) -> None:
    done = tape("demo", "--events", "600", "--keep", "day", folder=tmp_path)
    assert (done.code, done.err) == (0, ""), done.out
    assert re.search(r"All \d+ promises held", done.out)
    assert "BROKEN" not in done.out
    assert "taken over from the first worker by the second (recovery) with token" in done.out
    assert "✓ one wire, one hedge and one batch in the ledger" in done.out
    kept = tape("tail", "--store", "sqlite:day/tape.db", "--no-follow", "--json", folder=tmp_path)
    entries = [record["global_seq"] for record in kept.records]
    assert entries == sorted(set(entries))
    assert f"{len(entries):,} entries in one order" in done.out
    again = tape("demo", "--events", "600", "--keep", "day", folder=tmp_path)
    assert (again.code, "is there already" in again.err) == (2, True)


def test_a_broken_promise_is_a_failure(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    async def play(stage: Stage) -> None:
        stage.promise("the impossible", held=False)

    monkeypatch.setattr(limits, "play", play)
    monkeypatch.setattr(command, "ACTS", (trading, limits))
    assert run(["demo", "--events", "200"]) == 1
    assert "the impossible" in capfd.readouterr().out
