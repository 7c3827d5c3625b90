# %% [markdown]
# # A day on a market
#
# Record a day of klines and orders, look at it with Spark, and see what a correction changes. Run
# it as a program, `python -m examples.market_day.day --folder out`, or cell by cell as a notebook.

# %% Where, and how long a day is
# ruff: noqa: T201 - an example shows what it found
import argparse
import random
from pathlib import Path

from pyspark.sql import functions as F

import tape
import tape.spark
from examples.market_day import market, pictures
from tape.pipeline.jobs.rollup.counts import counts_of
from tape.pipeline.jobs.rollup.job import Rollup
from tape.pipeline.jobs.rollup.latency import histogram_of, percentiles_of
from tape.pipeline.jobs.rollup.periods import parse_period

parser = argparse.ArgumentParser(description="A day on a market, from the journal to pictures.")
parser.add_argument("--folder", type=Path, default=Path("market_day"))
parser.add_argument("--hours", type=int, default=24)
options, _a_notebooks_own = parser.parse_known_args()
options.folder.mkdir(parents=True, exist_ok=True)
url = f"sqlite:{options.folder / 'tape.db'}"
quarter = parse_period("15m", "quarter")

# %% Record the day: klines with gaps, late ones and repetitions, and orders
rng = random.Random(42)  # noqa: S311 - a pretended day
with tape.connect(url) as client:
    for events in (
        market.klines(rng, options.hours * 60),
        list(market.orders(rng, options.hours * 60)),
    ):
        for start in range(0, len(events), 5_000):
            client.record_many(events[start : start + 5_000])

# %% The journal as a DataFrame
spark = tape.spark.session()
journal = tape.spark.journal(spark, url, payload="variant").cache()
print(f"{journal.count():,} entries")

# %% Events over time: a rollup is a function from a DataFrame to a DataFrame
happened = journal.withColumn("ts_ms", F.col("occurred_at_ms"))
types = F.substring_index("event_type", ".", 2)
counts = counts_of(happened.withColumn("event_type", types), quarter, depth=2).toPandas()
pictures.events_over_time(counts).savefig(options.folder / "events.png")

# %% Latency from order to fill: any samples make percentiles
at = {
    name: journal.where(F.col("event_type") == f"order.{name}").select(
        "entity_id", F.col("occurred_at_ms").alias(name)
    )
    for name in ("placed", "filled")
}
samples = at["placed"].join(at["filled"], "entity_id")
samples = samples.select(
    F.lit("order").alias("of"),
    F.lit("fill").alias("name"),
    F.col("filled").alias("at_ms"),
    (F.col("filled") - F.col("placed")).alias("latency_ms"),
)
latency = percentiles_of(histogram_of(samples, quarter)).toPandas()
pictures.latencies(latency).savefig(options.folder / "latency.png")

# %% Bars from klines, kept up to date by a job
bars_job = Rollup(out=str(options.folder / "rollup"), what=("bars",), values=True)
print(tape.spark.run(spark, url, bars_job).counts)
bars = tape.spark.rollup(spark, options.folder / "rollup", "bars")
hours_of_btc = bars.where("symbol = 'BTCUSDT' AND tf = '15m'").toPandas()
pictures.candles(hours_of_btc, "BTCUSDT, 15m").savefig(options.folder / "bars.png")

# %% The venue corrects one minute: of all bars four change
corrected = market.kline("BTCUSDT", 61, (68_000.0, 69_000.0, 62_000.0, 68_500.0), 1_000.0)
with tape.connect(url) as client:
    client.record_many([corrected])
print(tape.spark.run(spark, url, bars_job).counts["bars_changed"], "bars changed")
with tape.connect(url) as client:
    key = f"binance/spot/BTCUSDT/1h/{market.MIDNIGHT_MS + market.HOUR_MS}"
    changed = client.get_value("bars", key)
    print(changed and changed.value["high"], "is the hour's high now")
journal.unpersist()
