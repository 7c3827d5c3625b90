"""What a source's kind names: opened, where its client is installed.

The clients are extras, so the module of a kind is imported when a source of it is opened.
"""

from importlib.util import find_spec
from typing import Final, assert_never

from tape.errors import SourceRefused
from tape.model.subscription_spec import SourceKind, SourceSpec
from tape.ports.credentials import OpenedCredential
from tape.ports.source import Source

_CLIENTS: Final = {
    SourceKind.NATS: ("NATS", "nats", "nats"),
    SourceKind.KAFKA: ("Kafka", "confluent_kafka", "kafka"),
    SourceKind.PUBSUB: ("Pub/Sub", "google.pubsub_v1", "pubsub"),
}


async def open_source(
    spec: SourceSpec, credential: OpenedCredential | None, *, name: str
) -> Source:
    """See `ports.source.OpenSource`. SourceRefused also if the client of its kind is missing."""
    require_client(spec.kind)
    match spec.kind:
        case SourceKind.NATS:
            from tape.sources.nats import open_nats

            return await open_nats(spec, credential, name=name)
        case SourceKind.KAFKA:
            from tape.sources.kafka import open_kafka

            return await open_kafka(spec, credential, name=name)
        case SourceKind.PUBSUB:
            from tape.sources.pubsub import open_pubsub

            return await open_pubsub(spec, credential, name=name)
        case SourceKind.FILE:
            from tape.sources.files import open_files

            return await open_files(spec, name=name)
        case SourceKind.WEBHOOK:
            raise SourceRefused("source: webhook is pushed to this server, and not fetched from")
        case _:
            assert_never(spec.kind)


def require_client(kind: SourceKind) -> None:
    """SourceRefused if what this kind needs is not installed here."""
    if kind in _CLIENTS:
        name, module, extra = _CLIENTS[kind]
        if not _installed(module):
            raise SourceRefused(
                f"source: {name} needs its client, and this process has none: pip install "
                f'"tape-bus[{extra}]"'
            )


def _installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # a parent package is missing
        return False
