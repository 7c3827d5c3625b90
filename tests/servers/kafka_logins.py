"""A way in to Kafka for those who can say who they are."""

from typing import Any

from tests.servers.kafka import Listener

USER, PASSWORD = "tape", "hunter2"

SASL = Listener(
    "SASL",
    "SASL_PLAINTEXT",
    "sasl.enabled.mechanisms=PLAIN\n"
    "listener.name.sasl.plain.sasl.jaas.config="
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    f'user_{USER}="{PASSWORD}";\n',
)


def sasl_login(port: int, password: str = PASSWORD) -> dict[str, Any]:
    """Settings of librdkafka."""
    return {
        "bootstrap.servers": f"127.0.0.1:{port}", "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN", "sasl.username": USER, "sasl.password": password,
    }  # fmt: skip
