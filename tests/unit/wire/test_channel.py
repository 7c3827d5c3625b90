"""Where a connection goes."""

import asyncio

import grpc
import pytest

from tape.wire.channel import plain_channel

VARIABLES = ("http_proxy", "https_proxy", "grpc_proxy", "no_proxy", "no_grpc_proxy", "HTTP_PROXY")
BOUND_S = 30.0


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_what_goes_to_this_machine_goes_through_no_proxy(
    host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A secret over loopback is in the clear."""
    asked = asyncio.Event()
    seen = bytearray()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.extend(await reader.read(1_000))
        asked.set()
        writer.close()

    proxy = await asyncio.start_server(serve, "127.0.0.1", 0)
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{proxy.sockets[0].getsockname()[1]}")
    server = grpc.aio.server()
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with asyncio.timeout(BOUND_S):
        async with plain_channel(f"{host}:{port}") as channel:
            await channel.channel_ready()
        assert not asked.is_set()
        # gRPC alone would go there.
        async with grpc.aio.insecure_channel(f"{host}:{port}") as channel:
            channel.get_state(try_to_connect=True)
            await asked.wait()
    assert seen.startswith(b"CONNECT")
    await server.stop(None)
    proxy.close()
