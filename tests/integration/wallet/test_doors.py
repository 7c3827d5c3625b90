"""Credentials at a server: who may, from where values may come, and that none comes out."""

import contextlib
import json
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import httpx
import pytest

import tape
from tape.errors import NoCredential, PermissionDenied, Unsafe, WalletLocked
from tape.model.credential import CredentialState
from tape.programs.connect import open_operations
from tape.programs.opening_credentials import opening_credentials
from tape.settings import Settings
from tape.wallet.local_keys import key_id
from tape.wire.v1 import tape_pb2 as pb
from tape.wire.v1.tape_pb2_grpc import TapeStub
from tests.integration.wallet.tap import Tap
from tests.integration.wallet.wallets import (
    BOUND_S,
    CANARY,
    KEY,
    NEWER,
    bus_with,
    environment_of,
    texts,
    until_opened,
)
from tests.servers.tape_server import ServerProcess

CERTS = Path(__file__).parents[1] / "grpc" / "certs"
TOKENS = {"TAPE_TOKENS": "read:reader,write:writer,admin:owner"}
OWNER = {"authorization": "Bearer owner"}
LOGIN = {"user": "tape", "password": CANARY}


def own_address() -> str:
    """This machine's address in its network; nothing is sent to find it out."""
    with contextlib.closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            pytest.skip("this machine has no address but loopback")
        address: str = probe.getsockname()[0]
    if address.startswith("127."):
        pytest.skip("this machine has no address but loopback")
    return address


class Everywhere(ServerProcess):
    """A server on every interface."""

    def __init__(self, store: str, *options: str, env: dict[str, str]) -> None:
        super().__init__(store, *options, env=env)
        self._addresses = {"grpc": "0.0.0.0:0", "http": "0.0.0.0:0"}

    def __enter__(self) -> "Everywhere":
        super().__enter__()
        return self

    def port(self, door: str) -> int:
        return int(self._addresses[door].rpartition(":")[2])


@pytest.fixture
def server(sqlite_url: str) -> Iterator[ServerProcess]:
    with ServerProcess(sqlite_url, env=TOKENS | environment_of(KEY)) as running:
        yield running


@pytest.fixture
async def http(server: ServerProcess) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(
        base_url=f"http://{server.http}", headers=OWNER, timeout=BOUND_S
    ) as client:
        yield client


async def test_the_client_does_all_of_it_at_a_server(server: ServerProcess) -> None:
    async with tape.connect_async(server.url, token="owner") as client:
        state = await client.put_credential("nats/main", LOGIN)
        assert isinstance(state, CredentialState)
        assert (state.version, state.form, state.key_id) == (1, "object", key_id(KEY))
        rotated = await client.rotate_credential("nats/main", "another")
        assert (rotated.version, rotated.previous_version, rotated.form) == (2, 1, "text")
        await client.put_credential("a", json.dumps(LOGIN), form="text")
        assert [(s.alias, s.form) for s in await client.credentials()] == [
            ("a", "text"), ("nats/main", "text"),
        ]  # fmt: skip
        assert (await client.retire_credential("nats/main")).previous_version == 0
        assert await client.rewrap_credentials() == 0
        assert await client.delete_credential("a") is True
        assert await client.delete_credential("a") is False
        with pytest.raises(NoCredential, match="'a'"):
            await client.rotate_credential("a", "x")
        with pytest.raises(tape.InvalidArgument) as refusal:
            await client.put_credential("a", CANARY, form="object")
        assert (refusal.value.field, CANARY in str(refusal.value)) == ("value", False)
        for wrong in (7, object(), {"password": {CANARY}}):
            with pytest.raises(tape.InvalidArgument) as refusal:
                await client.put_credential("a", wrong)  # type: ignore[arg-type]
            assert (refusal.value.field, CANARY in str(refusal.value)) == ("value", False)


def test_the_blocking_client_does_all_of_it(server: ServerProcess) -> None:
    with tape.connect(server.url, token="owner") as client:
        assert client.put_credential("a", LOGIN).version == 1
        assert client.rotate_credential("a", "x").previous_version == 1
        assert client.retire_credential("a").previous_version == 0
        assert [state.version for state in client.credentials()] == [2]
        assert client.rewrap_credentials() == 0
        assert client.delete_credential("a")


@pytest.mark.parametrize("token", ["reader", "writer"])
async def test_only_an_admin_has_to_do_with_credentials(
    server: ServerProcess, http: httpx.AsyncClient, token: str
) -> None:
    async with tape.connect_async(server.url, token="owner") as owner:
        await owner.put_credential("a", CANARY)
    async with tape.connect_async(server.url, token=token) as client:
        for refused in (
            client.put_credential("a", "x"),
            client.rotate_credential("a", "x"),
            client.retire_credential("a"),
            client.credentials(),
            client.delete_credential("a"),
            client.rewrap_credentials(),
            client._operations.wallet.get_sealed_credential("a"),
        ):
            with pytest.raises(PermissionDenied, match="role admin"):
                await refused
    for method, path in (
        ("GET", ""), ("PUT", "/a"), ("DELETE", "/a"), ("POST", "/rewrap"), ("POST", "/a/rotate"),
        ("POST", "/a/retire"),
    ):  # fmt: skip
        answer = await http.request(
            method, f"/api/wallet{path}", json={}, headers={"authorization": f"Bearer {token}"}
        )
        assert answer.status_code == 403


async def test_over_http(http: httpx.AsyncClient) -> None:
    put = await http.put("/api/wallet/nats%2Fmain", json={"value": LOGIN})
    assert put.status_code == 200, put.text
    state = put.json()
    assert state == {
        "alias": "nats/main", "version": 1, "previous_version": 0, "form": "object",
        "key_id": key_id(KEY), "previous_key_id": "", "created_at_ms": state["created_at_ms"],
        "changed_at_ms": state["changed_at_ms"], "opened": 0,
    }  # fmt: skip
    text = await http.put("/api/wallet/hook", json={"value": json.dumps(LOGIN)})
    assert text.json()["form"] == "text"  # as it was sent
    rotated = await http.post("/api/wallet/hook/rotate", json={"value": CANARY})
    assert (rotated.json()["version"], rotated.json()["previous_version"]) == (2, 1)
    listed = (await http.get("/api/wallet")).json()["credentials"]
    assert [each["alias"] for each in listed] == ["hook", "nats/main"]
    retired = await http.post("/api/wallet/hook/retire", json={})
    assert retired.json()["previous_version"] == 0
    assert (await http.post("/api/wallet/rewrap")).json() == {"rewrapped": 0}
    assert (await http.delete("/api/wallet/hook")).json() == {"deleted": True}
    assert (await http.delete("/api/wallet/hook")).json() == {"deleted": False}
    missing = await http.post("/api/wallet/hook/rotate", json={"value": "x"})
    assert (missing.status_code, missing.json()["error"]["reason"]) == (409, "NO_CREDENTIAL")
    assert (await http.get("/api/wallet/hook")).status_code == 405  # there is no way to read one


BAD_BODIES: list[Any] = [
    {}, {"value": None}, {"value": 7}, {"value": [CANARY]}, {"value": ""},
    {"value": "x", "form": CANARY}, {"value": CANARY * 5_000}, [CANARY], CANARY,
]  # fmt: skip


async def test_a_bad_body_is_not_repeated(http: httpx.AsyncClient) -> None:
    for body in BAD_BODIES:
        answer = await http.put("/api/wallet/a", json=body)
        assert answer.status_code in (400, 413), body
        assert CANARY not in answer.text
        if isinstance(body, dict) and "form" not in body:
            assert answer.json()["error"]["field"] == "value"
    broken = await http.put(
        "/api/wallet/a",
        content=f'{{"value": "{CANARY}',
        headers={"content-type": "application/json"},
    )
    assert (broken.status_code, CANARY in broken.text) == (400, False)
    assert (await http.get("/api/wallet")).json() == {"credentials": []}


async def test_without_a_key_a_server_says_what_to_do(sqlite_url: str) -> None:
    with ServerProcess(sqlite_url) as server:
        async with tape.connect_async(server.url) as client:
            with pytest.raises(WalletLocked, match="TAPE_WALLET_KEY_FILE"):
                await client.put_credential("a", CANARY)
        async with httpx.AsyncClient(base_url=f"http://{server.http}", timeout=BOUND_S) as http:
            answer = await http.put("/api/wallet/a", json={"value": CANARY})
            assert answer.status_code == 409
            assert answer.json()["error"]["reason"] == "WALLET_LOCKED"
            assert "TAPE_WALLET_KEY_FILE" in answer.json()["error"]["message"]


async def test_insecure_does_not_let_a_value_in_from_the_network(sqlite_url: str) -> None:
    address = own_address()
    env = TOKENS | environment_of(KEY)
    with Everywhere(sqlite_url, "--insecure", env=env) as server:
        url = f"tape://{address}:{server.port('grpc')}?insecure=1"
        async with tape.connect_async(url, token="owner") as client:
            for refused in (client.put_credential("a", CANARY), client.rotate_credential("a", "x")):
                with pytest.raises(Unsafe, match="was not sent: use tapes://"):
                    await refused
            assert await client.credentials() == []  # the rest is as it was
        # Who does not care is refused by the server.
        async with grpc.aio.insecure_channel(f"{address}:{server.port('grpc')}") as channel:
            rpc: Any = TapeStub(channel)
            bearer = (("authorization", "Bearer owner"),)
            for call, request in (
                (rpc.PutCredential, pb.PutCredentialRequest(alias="a", value=CANARY)),
                (rpc.RotateCredential, pb.RotateCredentialRequest(alias="a", value=CANARY)),
            ):
                with pytest.raises(grpc.aio.AioRpcError) as failed:
                    await call(request, metadata=bearer)
                assert failed.value.code() == grpc.StatusCode.FAILED_PRECONDITION
                assert "over TLS, or from this machine" in (failed.value.details() or "")
        async with httpx.AsyncClient(headers=OWNER, timeout=BOUND_S) as http:
            there = f"http://{address}:{server.port('http')}/api/wallet"
            for method, path in (("PUT", "/a"), ("POST", "/a/rotate")):
                answer = await http.request(method, f"{there}{path}", json={"value": CANARY})
                assert answer.status_code == 409
                assert answer.json()["error"]["reason"] == "UNSAFE"
                assert CANARY not in answer.text
            assert (await http.get(there)).json() == {"credentials": []}
            # Through loopback the same server takes it.
            here = f"http://127.0.0.1:{server.port('http')}/api/wallet/a"
            assert (await http.put(here, json={"value": "x"})).status_code == 200
        local = f"tape://127.0.0.1:{server.port('grpc')}"
        async with tape.connect_async(local, token="owner") as client:
            assert (await client.put_credential("a", "y")).version == 2


async def test_a_value_comes_in_over_tls(sqlite_url: str) -> None:
    address = own_address()
    files = ("--tls-cert", str(CERTS / "cert.pem"), "--tls-key", str(CERTS / "key.pem"))
    with Everywhere(sqlite_url, *files, env=TOKENS | environment_of(KEY)) as server:
        trust = grpc.ssl_channel_credentials((CERTS / "cert.pem").read_bytes())
        name = (("grpc.ssl_target_name_override", "localhost"),)
        there = f"{address}:{server.port('grpc')}"
        async with grpc.aio.secure_channel(there, trust, name) as channel:
            rpc: Any = TapeStub(channel)
            state = await rpc.PutCredential(
                pb.PutCredentialRequest(alias="a", value=CANARY),
                metadata=(("authorization", "Bearer owner"),),
            )
            assert state.version == 1
        async with httpx.AsyncClient(headers=OWNER, verify=False, timeout=BOUND_S) as http:
            url = f"https://{address}:{server.port('http')}/api/wallet/a"
            assert (await http.put(url, json={"value": "x"})).json()["version"] == 2
        ca = CERTS / "cert.pem"
        url = f"tapes://localhost:{server.port('grpc')}?ca={ca}"
        async with tape.connect_async(url, token="owner") as client:
            assert (await client.put_credential("a", "y")).version == 3


async def test_a_remote_process_opens_what_is_sealed_with_a_key_of_its_own(
    server: ServerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TAPE_WALLET_KEY", environment_of(KEY)["TAPE_WALLET_KEY"])
    tap = Tap(server.url.removeprefix("tape://"))
    async with tape.connect_async(server.url, token="owner") as owner, tap as tapped:
        await owner.put_credential("a", LOGIN)
        operations = await open_operations(f"tape://{tapped}", "owner", Settings())
        async with opening_credentials(operations) as open_credential:
            assert texts(await open_credential("a")) == [LOGIN]
            await owner.rotate_credential("a", f"{CANARY} 2")
            await until_opened(open_credential, "a", [f"{CANARY} 2", LOGIN])
            await owner.put_credential("a", f"{CANARY} 3")
            await until_opened(open_credential, "a", [f"{CANARY} 3"])
            sealed = await operations.wallet.get_sealed_credential("a")
            await owner.delete_credential("a")
            await until_opened(open_credential, "a", "NO_CREDENTIAL")
        await operations.close()
    assert sealed.versions[0].ciphertext in tap.received  # it can be seen what goes there
    for gone_over in (tap.sent, tap.received):
        assert CANARY.encode() not in gone_over
        assert KEY not in gone_over
        assert environment_of(KEY)["TAPE_WALLET_KEY"].encode() not in gone_over


async def test_a_remote_process_without_the_key_opens_nothing(
    server: ServerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with tape.connect_async(server.url, token="owner") as owner:
        await owner.put_credential("a", CANARY)
    for key, said in ((None, "set TAPE_WALLET_KEY_FILE"), (NEWER, key_id(KEY))):
        if key is not None:
            monkeypatch.setenv("TAPE_WALLET_KEY", environment_of(key)["TAPE_WALLET_KEY"])
        operations = await open_operations(server.url, "owner", Settings())
        async with opening_credentials(operations) as open_credential:
            with pytest.raises(WalletLocked, match=said):
                await open_credential("a")
        await operations.close()


async def test_a_lying_server_does_not_pass_one_credential_for_another(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TAPE_WALLET_KEY", environment_of(KEY)["TAPE_WALLET_KEY"])
    async with bus_with(sqlite_url, KEY) as bus:
        for alias in ("a", "b"):
            await bus.wallet.put_credential(alias, alias)

        async def send_another(_alias: str) -> Any:
            return await bus.wallet.get_sealed_credential("b")

        lying: Any = SimpleNamespace(wallet=SimpleNamespace(get_sealed_credential=send_another))
        async with opening_credentials(lying) as open_credential:
            assert texts(await open_credential("b")) == ["b"]
            with pytest.raises(tape.CredentialDamaged):
                await open_credential("a")
