"""Who gets in: tokens, roles, TLS, and what is open to all."""

import io
import logging
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

import tape
from tape.api.auth import Tokens
from tape.api.grpc.handlers import RoleCheck
from tape.api.grpc.rpcs import Rpcs
from tape.api.stream_slots import StreamSlots
from tape.bus import Operations
from tape.calls.call import SERVICE
from tape.calls.role import Role
from tape.calls.table import ROLES
from tape.settings import Limits
from tape.wire.v1 import tape_pb2 as pb

TOKENS = "read:reader-token,write:writer-token,admin:admin-token"
CERTS = Path(__file__).parent / "certs"
BOUND_S = 60.0


def bearer(token: str) -> tuple[tuple[str, str], ...]:
    return (("authorization", f"Bearer {token}"),) if token else ()


async def code_of(rpc: Any, name: str, token: str, *, lets_in: bool = False) -> Any:
    """A stream that lets the caller in is cut off after a moment; a refusal is waited for."""
    method = SERVICE.methods_by_name[name]
    request = getattr(pb, method.input_type.name)()
    call = getattr(rpc, name)
    if method.client_streaming:
        # Nothing is sent: gRPC's client calls it INTERNAL if a message meets the refusal.
        made = call(metadata=bearer(token))
        with suppress(grpc.aio.InternalError):
            await made.done_writing()
    elif method.server_streaming:
        made = call(request, metadata=bearer(token), timeout=0.2 if lets_in else BOUND_S)
    else:
        return await call(request, metadata=bearer(token)).code()
    with suppress(grpc.aio.AioRpcError):
        async for _ in made:
            pass
    return await made.code()


HELD = (
    (Role.READ, "reader-token"), (Role.WRITE, "writer-token"), (Role.ADMIN, "admin-token"),
)  # fmt: skip


@pytest.mark.parametrize("name", [method.name for method in SERVICE.methods])
async def test_every_rpc_has_its_role(
    sqlite_url: str, serving: Any, dial: Any, name: str, logged: io.StringIO
) -> None:
    rpc = await dial((await serving(sqlite_url, tokens=TOKENS)).address)
    needed = ROLES[name]
    assert await code_of(rpc, name, "") == grpc.StatusCode.UNAUTHENTICATED
    assert await code_of(rpc, name, "wrong") == grpc.StatusCode.UNAUTHENTICATED
    for role, token in HELD:
        code = await code_of(rpc, name, token, lets_in=role >= needed)
        assert (code == grpc.StatusCode.PERMISSION_DENIED) == (role < needed)
    logging.getLogger("tape.grpc").debug("this is seen")
    assert "this is seen" in logged.getvalue()
    assert "er-token" not in logged.getvalue()


# What only looks says so in its name, but for one call that looks and fires.
LOOKS = ("Admit", "Follow", "Get", "List", "Next", "Read", "Subscribe", "Watch")
FIRES = {"ListDueTimers"}
LOSES = {"DropDeadLetters", "SkipDrainerEvent", "SkipOutboxRow"}
OF_WALLET = "Credential"  # in the name of each call on one
DECLARES = {"RegisterSubscription", "MoveSubscription", "DeleteSubscription"}
"""What decides which messages become runs."""


def test_the_roles_are_the_ones_ruled() -> None:
    """A call that looks is for readers; one that gives something up for good, or has to do with
    credentials, is for admins."""
    for name, role in ROLES.items():
        if name in LOSES | DECLARES or OF_WALLET in name:
            assert role is Role.ADMIN, name
        else:
            looks = name.startswith(LOOKS) and name not in FIRES
            assert role is (Role.READ if looks else Role.WRITE), name
    assert ROLES.keys() > FIRES | LOSES | DECLARES


def test_a_call_without_a_row_is_for_nobody() -> None:
    paths = Rpcs(cast("Operations", None), Limits(), StreamSlots()).roles()
    assert paths == {f"/{SERVICE.full_name}/{name}": role for name, role in ROLES.items()}


async def test_a_method_without_a_role_is_for_nobody() -> None:
    async def is_there(_details: Any) -> object:
        return object()

    async def is_not_there(_details: Any) -> None:
        return None

    check = RoleCheck(Tokens(), {"/s/Known": Role.READ}, frozenset())
    for path, continuation, refused in (
        ("/s/Known", is_there, False),
        ("/s/Forgotten", is_there, True),
        ("/s/Nothing", is_not_there, False),  # gRPC says that there is no such method
    ):
        details = SimpleNamespace(method=path, invocation_metadata=())
        handler = await check.intercept_service(continuation, details)
        assert isinstance(handler, grpc.RpcMethodHandler) == refused


async def test_the_client_says_which(sqlite_url: str, serving: Any) -> None:
    server = await serving(sqlite_url, tokens=TOKENS)
    for token in (None, "wrong"):
        with pytest.raises(tape.Unauthenticated) as refused:
            await tape.connect_async(server.url, token=token)
        assert "wrong" not in str(refused.value)
    async with tape.connect_async(server.url, token="reader-token") as client:
        assert (await client.info()).head_global_seq == 0
        with pytest.raises(tape.PermissionDenied, match="needs the role write, the token has read"):
            await client.record("a")
    async with tape.connect_async(server.url, token="writer-token") as client:
        await client.record("a")


async def test_the_token_of_the_environment(
    sqlite_url: str, serving: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "tokens"
    file.write_text("write writer-token\n")
    server = await serving(sqlite_url, token_file=file)
    monkeypatch.setenv("TAPE_TOKEN", "writer-token")
    monkeypatch.setenv("TAPE_URL", server.url)
    async with tape.connect_async() as client:
        await client.record("a")
    monkeypatch.delenv("TAPE_URL")
    monkeypatch.setenv("TAPE_STORE", sqlite_url)
    async with tape.connect_async() as client:
        assert (await client.info()).head_global_seq == 1


async def test_health_is_open_and_tells_the_truth(sqlite_url: str, serving: Any) -> None:
    server = await serving(sqlite_url, tokens=TOKENS)
    async with grpc.aio.insecure_channel(server.address) as channel:
        health: Any = health_pb2_grpc.HealthStub(channel)
        for service in ("", "tape.v1.Tape"):
            answer = await health.Check(health_pb2.HealthCheckRequest(service=service))
            assert answer.status == health_pb2.HealthCheckResponse.SERVING
        watching = health.Watch(health_pb2.HealthCheckRequest())
        assert (await watching.read()).status == health_pb2.HealthCheckResponse.SERVING
        await server.stop()
        assert (await watching.read()).status == health_pb2.HealthCheckResponse.NOT_SERVING


async def test_reflection_lists_the_service(sqlite_url: str, serving: Any) -> None:
    server = await serving(sqlite_url, tokens=TOKENS)
    async with grpc.aio.insecure_channel(server.address) as channel:
        stub: Any = reflection_pb2_grpc.ServerReflectionStub(channel)  # type: ignore[arg-type]
        request = reflection_pb2.ServerReflectionRequest(list_services="")
        closed = stub.ServerReflectionInfo()  # nothing is sent that could come after its end
        with pytest.raises(grpc.aio.AioRpcError):
            await closed.read()
        assert await closed.code() == grpc.StatusCode.UNAUTHENTICATED
        call = stub.ServerReflectionInfo(iter([request]), metadata=bearer("reader-token"))
        names = {service.name for service in (await call.read()).list_services_response.service}
        assert {"tape.v1.Tape", "grpc.health.v1.Health"} <= names
        symbol = reflection_pb2.ServerReflectionRequest(file_containing_symbol="tape.v1.Tape")
        call = stub.ServerReflectionInfo(iter([symbol]), metadata=bearer("reader-token"))
        assert (await call.read()).file_descriptor_response.file_descriptor_proto


@pytest.mark.parametrize("address", ["0.0.0.0:0", "[::]:0"])
async def test_an_open_address_is_refused(sqlite_url: str, serving: Any, address: str) -> None:
    for options in ({}, {"tokens": TOKENS}, {"insecure": True}):
        with pytest.raises(tape.Unsafe):
            await serving(sqlite_url, grpc_address=address, **options)


async def test_an_open_address_with_tokens_and_tls(sqlite_url: str, serving: Any) -> None:
    tls = {"tls_cert": CERTS / "cert.pem", "tls_key": CERTS / "key.pem"}
    server = await serving(sqlite_url, grpc_address="0.0.0.0:0", tokens=TOKENS, **tls)
    port = server.address.rpartition(":")[2]
    url = f"tapes://localhost:{port}?ca={CERTS / 'cert.pem'}"
    async with tape.connect_async(url, token="writer-token") as client:
        await client.record("a")
    with pytest.raises(tape.StoreUnavailable):  # nobody vouches for that certificate
        await tape.connect_async(f"tapes://localhost:{port}", token="writer-token")
    with pytest.raises(tape.StoreUnavailable):
        await tape.connect_async(f"tape://localhost:{port}", token="writer-token")


@pytest.mark.parametrize(
    "options",
    [
        {"grpc_address": "nonsense"},
        {"grpc_address": "127.0.0.1:99999"},
        {"tls_cert": CERTS / "cert.pem"},
        {"tls_cert": CERTS / "none.pem", "tls_key": CERTS / "none.pem"},
        {"tokens": "boss:x"},
        {"tokens": "read:x", "token_file": CERTS / "README.md"},
    ],
)
async def test_bad_settings(sqlite_url: str, serving: Any, options: dict[str, Any]) -> None:
    with pytest.raises(tape.InvalidArgument):
        await serving(sqlite_url, **options)


async def test_a_port_that_is_taken(sqlite_url: str, serving: Any) -> None:
    server = await serving(sqlite_url)
    with pytest.raises(tape.InvalidArgument, match="cannot listen"):
        await serving(sqlite_url, grpc_address=server.address)
