"""The demo's last act: on a small day, with a session that is there."""

import random
from io import StringIO
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from rich.console import Console
from rich.progress import Progress

from tape.cli.demo import desk, pipeline, trading
from tape.cli.demo.stage import Follower, Stage
from tape.programs.connect import connect_async


@pytest.mark.middle
@pytest.mark.timeout(300)
async def test_the_act_archives_tries_rolls_up_and_audits(
    spark: SparkSession, tmp_path: Path
) -> None:
    url, out = f"sqlite:{tmp_path / 'tape.db'}", StringIO()
    async with connect_async(url) as client:
        rng = random.Random(7878)
        stage = Stage(url, client, Console(file=out, width=200), Progress(disable=True), 700, rng)
        stage.followers["risk"] = Follower(pipeline.HEDGE.subject_pattern,
                                           pipeline.HEDGE.predicate_cel)  # fmt: skip
        stage.followers["risk"].start(client)
        for number in range(40):
            placed = desk.order(rng, "ada", number)
            recorded = await stage.record(placed)
            await stage.record(desk.fill(rng, placed, recorded.event_id))
        for minute in range(trading.kline_minutes(stage.events)):
            for symbol, price in desk.SYMBOLS.items():
                opened = desk.OPENS_MS + minute * desk.MINUTE_MS
                await stage.record(desk.kline(symbol, opened, desk.walk(rng, price), 1.5))
        await stage.settle()
        await stage.followers["risk"].stop()
        await pipeline.play(stage, spark)
    assert [promise for promise in stage.promises if not promise.held] == [], out.getvalue()
    assert len(stage.promises) == 4
    assert "everything holds" in (tmp_path / "audit.html").read_text()
