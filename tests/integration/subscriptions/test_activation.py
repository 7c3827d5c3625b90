"""What a server looks at when a subscription is activated: the source of one that it will listen
for, and of others whether the wallet has the credential. The server has no key for the wallet."""

from pathlib import Path

import pytest
import yaml

import tape
from tape.client import AsyncTapeClient
from tape.errors import NoCredential, SourceRefused, TapeError, WalletLocked
from tests.integration.subscriptions.listened import ENVIRONMENT
from tests.servers.tape_server import ServerProcess

NO_KEY = {"TAPE_WALLET_KEY": "", "TAPE_WALLET_KEY_FILE": "", "TAPE_WALLET_KMS": ""}
ELSEWHERE = [["--no-listen"], ["--listen", "other"]]
HERE: list[list[str]] = [[], ["--listen", "edge"]]
NATS = {"source": "nats", "auth": "login", "stream": "orders", "consumer": "tape"}


async def activated(client: AsyncTapeClient, name: str, **spec: str) -> str:
    said = {"mode": "pull", "activation": "continuous", "dispatch": {"playbook": "keep"}}
    metadata = {"name": name, "path": f"subscriptions/{name}"}
    kind = {"apiVersion": "tape/v1", "kind": "Subscription", "metadata": metadata}
    text = yaml.safe_dump({**kind, "spec": {**said, **spec, "runtime": {"pool": "edge"}}})
    await client.register_subscription(text)
    return (await client.move_subscription(name, "activate")).subscription.state


async def put_login(sqlite_url: str) -> None:
    """By a server that has the key."""
    with ServerProcess(sqlite_url, "--no-listen", env=ENVIRONMENT) as server:
        async with tape.connect_async(server.url) as client:
            await client.put_credential("login", '{"servers": ["nats://127.0.0.1:1"]}')


@pytest.mark.parametrize("options", ELSEWHERE)
async def test_a_source_of_another_process_is_its_business(
    sqlite_url: str, tmp_path: Path, options: list[str]
) -> None:
    with ServerProcess(sqlite_url, *options, env={**ENVIRONMENT, **NO_KEY}) as server:
        async with tape.connect_async(server.url) as client:
            folder = str(tmp_path / "nowhere")
            assert await activated(client, "files", source="file", folder=folder) == "active"
            with pytest.raises(NoCredential, match="tape wallet put login"):
                await activated(client, "orders", **NATS)
    await put_login(sqlite_url)
    with ServerProcess(sqlite_url, *options, env={**ENVIRONMENT, **NO_KEY}) as server:
        async with tape.connect_async(server.url) as client:
            assert await activated(client, "orders", **NATS) == "active"


@pytest.mark.parametrize("options", HERE)
async def test_a_source_that_the_server_will_listen_to_is_looked_at(
    sqlite_url: str, tmp_path: Path, options: list[str]
) -> None:
    await put_login(sqlite_url)
    folder = str(tmp_path / "nowhere")
    refusals: list[tuple[str, dict[str, str], type[TapeError]]] = [
        ("files", {"source": "file", "folder": folder}, SourceRefused),
        ("orders", NATS, WalletLocked),
    ]
    with ServerProcess(sqlite_url, *options, env={**ENVIRONMENT, **NO_KEY}) as server:
        async with tape.connect_async(server.url) as client:
            for name, spec, refusal in refusals:
                with pytest.raises(refusal):
                    await activated(client, name, **spec)
                view = await client.subscription(name)
                assert view.subscription.state == "registered"
