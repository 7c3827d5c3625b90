"""Settings of the Kafka client, of a credential's value: librdkafka's own, by their own names.

What a source promises is not up to them; `brokers/kafka_config.py` refuses what no credential may
have.
"""

from typing import Any, Final

from tape.brokers.credential_fields import CredentialFields
from tape.brokers.kafka_config import read_settings
from tape.model.subscription_spec import SourceSpec
from tape.ports.credentials import OpenedCredential
from tape.sources.credential_fields import read_source_fields

KafkaSettings = dict[str, Any]

_PROMISES: Final[KafkaSettings] = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "isolation.level": "read_committed",
    "auto.offset.reset": "earliest",
    "allow.auto.create.topics": False,
    "enable.partition.eof": False,
    "log_level": 0,
}
_DEFAULTS: Final[KafkaSettings] = {
    "partition.assignment.strategy": "cooperative-sticky",
    # What one partition sends at once: the others wait behind it.
    "fetch.message.max.bytes": 262_144,
    "queued.max.messages.kbytes": 16_384,
    "socket.keepalive.enable": True,
    "reconnect.backoff.max.ms": 1_000,
}
_DECIDED: Final = (*(name for name in _PROMISES if "." in name), "group.id")
_HARMFUL: Final = {
    "group.instance.id": "keeps the partitions of a listener that has ended for itself",
    "auto.commit.interval.ms": "commits what nobody has accepted",
}
_OF_CONSUMERS: Final = (
    "group.id", "group.protocol", "session.timeout.ms", "heartbeat.interval.ms",
    "max.poll.interval.ms", "partition.assignment.strategy", "queued.max.messages.kbytes",
    "queued.min.messages", "check.crcs", "group.remote.assignor",
    *(name for name in _PROMISES if "." in name),
)  # fmt: skip


def kafka_settings(
    credential: OpenedCredential | None, spec: SourceSpec, name: str
) -> list[KafkaSettings]:
    """Those of its current value and of those before it that are still good. SourceRefused, without
    any of the values, if none is of that form."""
    return read_source_fields(credential, "kafka", lambda given: _settings(given, spec, name))


def admin_settings(settings: KafkaSettings) -> KafkaSettings:
    """Without those that only consumers have."""
    return {
        name: value
        for name, value in settings.items()
        if name not in _OF_CONSUMERS and not name.startswith("fetch.")
    }


def _settings(given: CredentialFields, spec: SourceSpec, name: str) -> KafkaSettings:
    given.text("bootstrap.servers")
    for setting in given.fields:
        if why := _HARMFUL.get(setting):
            raise given.refused(setting, f"{why}: leave it out")
        if setting in _DECIDED:
            raise given.refused(setting, "is decided by the source: leave it out")
    return {
        "client.id": name,
        **_DEFAULTS,
        **read_settings(given),
        **_PROMISES,
        "group.id": spec.group,
    }
