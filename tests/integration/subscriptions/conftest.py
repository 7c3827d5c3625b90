"""The systems that subscriptions listen to: those of the tests of sources."""

from tests.integration.sources.conftest import (
    _emulator,
    emulator,
    kafka_server,
    nats_server,
    own_kafka_server,
    own_nats_server,
)

__all__ = [
    "_emulator", "emulator", "kafka_server", "nats_server", "own_kafka_server", "own_nats_server",
]  # fmt: skip
