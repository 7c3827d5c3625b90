"""`tape pipeline ingest`: messages of files, NATS or Kafka into the journal."""

from typing import Any

import click

from tape.cli.command_tree import ExampleCommand
from tape.cli.pipeline.running import existing_store, job_options, needing_spark, run_jobs
from tape.cli.target import Target, target_options
from tape.stores.blocking import Stores

_OWN = (
    "source", "subscription", "checkpoint", "quarantine", "path", "format", "server", "stream",
    "topic", "shape", "event_type", "event_type_from", "key_from", "schema_versions",
    "dedup_window", "max_per_trigger", "follow",
)  # fmt: skip


@click.command(
    cls=ExampleCommand,
    example="tape pipeline ingest files --path 'in/*.json' --event-type order.placed "
    "--checkpoint done/ --quarantine bad/",
)
@click.argument("source", type=click.Choice(["files", "landed", "nats", "kafka"]), required=False)
@click.option(
    "--subscription",
    default="",
    metavar="NAME",
    help="Load the source of this declared subscription, by its document.",
)
@click.option("--path", default="", metavar="GLOB", help="Files to read: a folder, file or glob.")
@click.option(
    "--format",
    default="json",
    show_default=True,
    type=click.Choice(["json", "csv", "parquet"]),
    help="Format of the files; json is one object per line.",
)
@click.option("--server", default="", metavar="ADDRESS", help="Address of NATS or Kafka.")
@click.option("--stream", default="", metavar="NAME", help="JetStream stream to read.")
@click.option("--topic", default="", metavar="NAME", help="Kafka topic to read.")
@click.option("--checkpoint", required=True, metavar="FOLDER", help="Keep the position here.")
@click.option("--quarantine", default="", metavar="FOLDER", help="Put invalid messages here.")
@click.option(
    "--shape",
    default="payload",
    show_default=True,
    type=click.Choice(["payload", "event"]),
    help="The body is the payload of an event, or an object with the fields of an event.",
)
@click.option("--event-type", default="", metavar="TYPE", help="Type of messages without one.")
@click.option(
    "--event-type-from", default="", metavar="NAME", help="Take the type from this header or field."
)
@click.option(
    "--key-from",
    default="",
    metavar="NAME",
    help="Take the idempotency key from this header or field; by default the position.",
)
@click.option(
    "--schema-versions", default="", metavar="1-3", help="Quarantine messages of other versions."
)
@click.option(
    "--dedup-window", default="", metavar="SPAN", help="Drop repeats within it: '10 minutes'."
)
@click.option(
    "--max-per-trigger",
    type=click.IntRange(min=0),
    default=0,
    metavar="N",
    help="Take at most N files or messages per batch; 0 means no limit, by a subscription 20,000.",
)
@click.option("--follow", is_flag=True, help="Continue with new messages until interrupted.")
@job_options
@target_options
@click.pass_obj
def ingest(target: Target, /, **options: Any) -> int:
    """Record the messages of SOURCE on the journal, each once.

    files: JSON lines, CSV or Parquet. landed: files with one JSON message per line, with headers,
    position and body. nats: a JetStream stream by sequence. kafka: a topic.

    Invalid messages go to the quarantine, as Parquet, with the reason. The job ends with the
    messages that were there when it began; the next one continues from there.

    With --subscription and no SOURCE, each message becomes what the subscription's listener would
    make of it: a run, a repeat or a dead letter, once, whichever of the two comes first. No
    listener works for it meanwhile: pause the subscription, or stop the servers.

    Spark downloads its Kafka connector unless --conf spark.jars=… brings one.
    """
    store = existing_store(target, changes=True)
    with needing_spark():
        from tape.pipeline.jobs.ingest.by_subscription import source_kind
        from tape.pipeline.jobs.ingest.job import Ingest
        from tape.pipeline.jobs.ingest.kafka import kafka_packages
    given = {name: options.pop(name) for name in _OWN}
    job = Ingest(**given | {"source": given["source"] or ""})
    kind = job.source
    if job.subscription:
        kind = source_kind(job.subscription, Stores(target.settings).store(store)).value
    brought = any(setting.startswith("spark.jars") for setting in options["conf"])
    packages = kafka_packages() if kind == "kafka" and not brought else ()
    return run_jobs(target, [job], store=store, packages=packages, **options)
