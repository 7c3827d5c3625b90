"""`tape pipeline ingest`: messages of files, NATS or Kafka into the journal."""

from typing import Any

import click

from tape.cli.pipeline.running import SPARK_EXTRA, existing_store, job_options, run_jobs
from tape.cli.target import Target, target_options
from tape.errors import SparkUnavailable

_OWN = (
    "source", "checkpoint", "quarantine", "path", "format", "server", "stream", "topic", "shape",
    "event_type", "event_type_from", "key_from", "schema_versions", "dedup_window",
    "max_per_trigger", "follow",
)  # fmt: skip


@click.command()
@click.argument("source", type=click.Choice(["files", "landed", "nats", "kafka"]))
@click.option("--path", default="", metavar="GLOB", help="Of files: a folder, a file or a glob.")
@click.option(
    "--format",
    default="json",
    show_default=True,
    type=click.Choice(["json", "csv", "parquet"]),
    help="Of files; json is one object to a line.",
)
@click.option("--server", default="", metavar="ADDRESS", help="Of NATS or Kafka.")
@click.option("--stream", default="", metavar="NAME", help="Of JetStream.")
@click.option("--topic", default="", metavar="NAME", help="Of Kafka.")
@click.option("--checkpoint", required=True, metavar="FOLDER", help="Remembers what was taken.")
@click.option("--quarantine", required=True, metavar="FOLDER", help="Where bad messages are kept.")
@click.option(
    "--shape",
    default="payload",
    show_default=True,
    type=click.Choice(["payload", "event"]),
    help="The body is an event's payload, or an object with the columns of an event.",
)
@click.option("--event-type", default="", metavar="TYPE", help="Of messages that do not say.")
@click.option("--event-type-from", default="", metavar="NAME", help="A header or field has it.")
@click.option(
    "--key-from",
    default="",
    metavar="NAME",
    help="A header or field has the idempotency key; by default it is the place at the source.",
)
@click.option("--schema-versions", default="", metavar="1-3", help="Others are quarantined.")
@click.option(
    "--dedup-window", default="", metavar="SPAN", help="Drop repeats within it: '10 minutes'."
)
@click.option(
    "--max-per-trigger",
    type=click.IntRange(min=0),
    default=0,
    metavar="N",
    help="Files or messages to a batch, at most.",
)
@click.option("--follow", is_flag=True, help="Go on with what comes, until interrupted.")
@job_options
@target_options
@click.pass_obj
def ingest(target: Target, /, **options: Any) -> int:
    """Put the messages of a SOURCE on the journal, each once.

    files: JSON lines, CSV or Parquet. landed: files with one JSON message to a line, with headers,
    position and body. nats: a JetStream stream by sequence. kafka: a topic.

    What is not valid goes to the quarantine, as Parquet, with the reason. A run ends with what was
    there when it began; the next one goes on from there.

    Spark fetches its connector for Kafka by itself, unless --conf spark.jars=… brings one.
    """
    store = existing_store(target, changes=True)
    try:
        from tape.pipeline.jobs.ingest.job import Ingest
        from tape.pipeline.jobs.ingest.kafka import kafka_packages
    except ModuleNotFoundError as missing:
        raise SparkUnavailable(f"{SPARK_EXTRA} ({missing.name} is missing)") from missing
    job = Ingest(**{name: options.pop(name) for name in _OWN})
    brought = any(setting.startswith("spark.jars") for setting in options["conf"])
    packages = kafka_packages() if job.source == "kafka" and not brought else ()
    return run_jobs(target, [job], store=store, packages=packages, **options)
