"""`tape serve` relays, too: to NATS where the settings name one, else to the journal alone."""

import urllib.request
from pathlib import Path

from tests.integration.bus.conftest import Publish
from tests.integration.bus.relays import read_stream, until
from tests.servers.nats import NatsServer
from tests.servers.tape_server import ServerProcess

CONFIG = """
tape:
  outbox: {{nats: "nats://{nats}", idle_poll_s: 0.05, active_poll_s: 0.01}}
  stream: {{name: {prefix}, subjects: ["{prefix}.>"], max_bytes: 1048576}}
"""


def metrics_of(server: ServerProcess) -> str:
    with urllib.request.urlopen(f"http://{server.http}/metrics", timeout=10) as page:
        text: str = page.read().decode()
    return text


async def test_a_server_publishes_and_tells_of_it(
    store_url: str, publish: Publish, nats_server: NatsServer, nats_url: str, prefix: str,
    tmp_path: Path,
) -> None:  # fmt: skip
    config = tmp_path / "tape.yaml"
    config.write_text(CONFIG.format(nats=nats_server.address, prefix=prefix))
    ids = publish([(f"{prefix}.a", n) for n in range(5)])
    with ServerProcess(store_url, "--config", str(config)) as server:
        stored = await read_stream(nats_url, prefix, 5)
        assert [message.message_id for message in stored] == ids

        async def marked() -> bool:
            return "\ntape_outbox_published_total 5" in metrics_of(server)

        await until(marked)
        told = metrics_of(server).splitlines()
        assert 'tape_outbox_leading{relay="nats"} 1' in {line.removesuffix(".0") for line in told}
        assert "tape_outbox_waiting 0" in {line.removesuffix(".0") for line in told}
