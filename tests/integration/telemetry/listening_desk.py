"""A server, a stream on a real NATS, and a wallet with its login: what listeners need."""

import asyncio
import base64
import os
from pathlib import Path
from typing import Any

import httpx

import tape
from tests.integration.sources.far_sides import NatsSide
from tests.servers.nats import NatsServer
from tests.servers.nats_raw import publish_all_raw

POOL = "listeners"


class ListeningDesk:
    """`environment` is that of whatever process opens the login."""

    def __init__(self, nats: NatsServer, folder: Path) -> None:
        self._side = NatsSide(nats)
        self._nats = nats
        key = folder / "wallet.key"
        key.write_bytes(base64.b64encode(os.urandom(32)))
        key.chmod(0o600)
        self.environment = {"TAPE_WALLET_KEY_FILE": str(key)}
        asyncio.run(self._side.make(ack_wait=30.0))

    def declare(self, url: str, **spec: Any) -> None:
        """Register and activate `orders`, with its login."""
        said = {
            "source": "nats",
            "mode": "pull",
            "activation": "continuous",
            "auth": "nats_main",
            "stream": self._side.stream,
            "consumer": "tape",
            "runtime": {"pool": POOL},
            "dispatch": {"playbook": "desk", "execution_pool": "shared"},
        } | spec
        metadata = {"name": "orders", "path": "subscriptions/orders"}
        document = {
            "apiVersion": "tape/v1", "kind": "Subscription", "metadata": metadata, "spec": said,
        }  # fmt: skip
        with tape.connect(url) as client:
            client.put_credential("nats_main", self._side.credential)
            client.register_subscription(document)
            client.move_subscription("orders", "activate")

    def publish(self, *bodies: bytes, headers: bytes = b"") -> None:
        """By NATS's own protocol; `headers` are lines."""
        subject = f"{self._side.stream}.any"
        publish_all_raw(self._nats.address, subject, [(headers, body) for body in bodies])


def scraped(http: str) -> dict[str, float]:
    """What a process shows at /metrics, by name and labels."""
    answer = httpx.get(f"http://{http}/metrics", timeout=30)
    answer.raise_for_status()
    lines = [line for line in answer.text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}
