"""Tape in a notebook or a Spark program: a session, the journal as a DataFrame, and the jobs.

spark = tape.spark.session()
df = tape.spark.journal(spark, "sqlite:tape.db")
"""

import os
from pathlib import Path
from typing import Final, NamedTuple

from tape.bus import Bus
from tape.errors import SourceRefused, SparkUnavailable
from tape.model.subscription_spec import SourceSpec
from tape.ports.credentials import OpenedCredential
from tape.settings import Settings

try:
    from pyspark.sql import SparkSession

    from tape.pipeline.job import Job, JobContext, Report, Summary, say_nothing
    from tape.pipeline.jobs.ingest.sink import quarantine
    from tape.pipeline.jobs.rollup.rolls import rollup
    from tape.pipeline.lake.frames import history, lake
    from tape.pipeline.logins import BulkTopic, NatsLink
    from tape.pipeline.session import session
    from tape.pipeline.source.frames import follow, journal, with_payload
except ModuleNotFoundError as missing:
    raise SparkUnavailable(
        f"the pipeline needs {missing.name}: pip install 'tape-bus[spark]'"
    ) from missing

from tape.settings.yaml_file import read_yaml
from tape.stores.blocking import Stores
from tape.stores.by_url import open_store
from tape.wallet.keys import Keys

__all__ = [
    "follow",
    "history",
    "journal",
    "lake",
    "quarantine",
    "rollup",
    "run",
    "session",
    "with_payload",
]

SERVERS: Final = "bootstrap.servers"


def run(
    spark: SparkSession, url: str, job: Job, report: Report = say_nothing, *, config: str = ""
) -> Summary:
    """Run a job on the store at this URL and return its summary. The session stays open.

    `config` is a settings file; without it the defaults hold.
    """
    settings = read_yaml(Path(config), Settings()) if config else Settings()
    stores = Stores(settings)
    logins = StoredLogins(stores, stores.located(url))
    return job.run(
        JobContext(spark, url, stores.store(url), report, settings, config, logins=logins)
    )


class StoredLogins(NamedTuple):
    """`SourceLogins` by the wallet of a store, with the key-encryption key of whatever process."""

    stores: Stores
    url: str

    async def connect_nats(self, alias: str) -> NatsLink:
        # The clients of brokers come with extras of their own.
        from tape.sources.nats_login import connect_nats, nats_addresses

        connection = await connect_nats(nats_addresses(await self._opened(alias)))
        return NatsLink(connection.jetstream, connection.close)

    async def find_topic(self, spec: SourceSpec) -> BulkTopic:
        from tape.sources.kafka_topic import find_topic

        credential = await self._opened(spec.auth)
        more = sorted({*(credential.current.fields or {})} - {SERVERS})
        if more:
            raise SourceRefused(
                f"auth: Spark's connector is told {SERVERS} alone, and the credential "
                f"{spec.auth} has {', '.join(more)}: let a listener read the topic"
            )
        topic_id = await find_topic(credential, spec)
        assert credential.current.fields is not None  # noqa: S101 - find_topic refuses a text
        return BulkTopic(str(credential.current.fields[SERVERS]), topic_id)

    async def _opened(self, alias: str) -> OpenedCredential:
        store = await open_store(self.url, self.stores.settings)
        bus = Bus(store, self.stores.settings, keys=Keys(os.environ))
        try:
            return await bus.wallet.open_credential(alias)
        finally:
            await bus.close()
