"""What the HTTP door answers, and to whom."""

import logging
import re
import socket
import ssl
from typing import Any

import httpx
import pytest

import tape
from tests.integration.http.conftest import CERTS, TLS, TOKENS, Serving


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"} if token else {}


async def get(address: str | None, path: str, token: str = "", **headers: str) -> httpx.Response:
    async with httpx.AsyncClient(timeout=60) as client:
        return await client.get(f"http://{address}{path}", headers={**headers, **bearer(token)})


async def test_alive_and_ready(store_url: str, serving: Serving) -> None:
    http = (await serving(store_url)).http
    for path, status in (("/healthz", "alive"), ("/readyz", "ready")):
        answer = await get(http, path)
        assert (answer.status_code, answer.json()) == (200, {"status": status})


async def test_metrics_follow_the_journal(store_url: str, serving: Serving) -> None:
    grpc, http, _ = await serving(store_url)
    async with tape.connect_async(f"tape://{grpc}") as client:
        await client.record_many([tape.event("a"), tape.event("b")])
    answer = await get(http, "/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert "\ntape_journal_head 2.0\n" in answer.text
    assert "\ntape_store_up 1.0\n" in answer.text
    answer = await get(http, "/metrics", accept="application/openmetrics-text; version=1.0.0")
    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    assert answer.text.endswith("# EOF\n")


async def test_an_unknown_route_is_an_error_in_json(sqlite_url: str, serving: Serving) -> None:
    http = (await serving(sqlite_url)).http
    for path in ("/nothing", "/metrics/", "/metrics/x", "//", "/%00", "/console/", "/api"):
        answer = await get(http, path)
        assert answer.status_code == 404, path
        assert answer.json() == {"error": {"reason": "NOT_FOUND", "message": "Not Found"}}


async def test_a_method_that_is_not_there(sqlite_url: str, serving: Serving) -> None:
    http = (await serving(sqlite_url)).http
    async with httpx.AsyncClient(base_url=f"http://{http}", timeout=60) as client:
        for path in ("/metrics", "/healthz", "/readyz", "/"):
            refused = await client.post(path, content=b"x")
            assert refused.status_code == 405, path
            assert refused.json()["error"]["reason"] == "METHOD_NOT_ALLOWED"
            assert set(refused.headers["allow"].split(", ")) == {"GET", "HEAD"}
            assert (await client.head(path)).status_code == 200
        value = await client.post("/api/values/a/b", content=b"x")
        assert value.headers["allow"] == "DELETE, GET, HEAD, PUT"
        operation = await client.options("/api/wallet/rewrap")
        assert (operation.status_code, operation.headers["allow"]) == (405, "POST")


async def test_the_page_may_load_nothing_from_elsewhere(sqlite_url: str, serving: Serving) -> None:
    http = (await serving(sqlite_url, tokens=TOKENS)).http
    page = await get(http, "/")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    loaded = re.findall(r'(?:src|href)="([^"]+)"', page.text)
    assert len(loaded) >= 3
    for path in ("/", *loaded):
        answer = await get(http, path)
        assert answer.status_code == 200, path
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        again = await get(http, path, **{"if-none-match": answer.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")


async def test_tokens_and_roles(
    sqlite_url: str, serving: Serving, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    http = (await serving(sqlite_url, tokens=TOKENS)).http
    for token in ("", "wrong", "reader-toke"):
        refused = await get(http, "/metrics", token)
        assert refused.status_code == 401
        assert refused.headers["www-authenticate"] == "Bearer"
        assert refused.json()["error"]["reason"] == "UNAUTHENTICATED"
    for token in ("reader-token", "writer-token", "admin-token"):
        assert (await get(http, "/metrics", token)).status_code == 200
    for path in ("/healthz", "/readyz"):
        assert (await get(http, path)).status_code == 200
    assert "er-token" not in caplog.text


@pytest.mark.parametrize("address", ["0.0.0.0:0", "[::]:0", ":0"])
async def test_an_open_address_is_refused(sqlite_url: str, serving: Serving, address: str) -> None:
    for options in ({}, {"tokens": TOKENS}, {"insecure": True}):
        with pytest.raises(tape.Unsafe):
            await serving(sqlite_url, http_address=address, **options)


async def test_an_open_address_with_tokens_and_tls(sqlite_url: str, serving: Serving) -> None:
    http = (await serving(sqlite_url, http_address="0.0.0.0:0", tokens=TOKENS, **TLS)).http
    assert http is not None
    url = f"https://localhost:{http.rpartition(':')[2]}/metrics"
    trusting = ssl.create_default_context(cafile=str(CERTS / "cert.pem"))
    async with httpx.AsyncClient(verify=trusting, timeout=60) as client:
        assert (await client.get(url)).status_code == 401
        assert (await client.get(url, headers=bearer("reader-token"))).status_code == 200
    async with httpx.AsyncClient(timeout=60) as client:
        with pytest.raises(httpx.ConnectError):
            await client.get(url)
        with pytest.raises(httpx.RemoteProtocolError):
            await client.get(url.replace("https", "http"))


@pytest.mark.parametrize("host", ["localhost", "[::1]"])
async def test_every_address_of_a_name(sqlite_url: str, serving: Serving, host: str) -> None:
    name = host.strip("[]")
    http = (await serving(sqlite_url, http_address=f"{host}:0")).http
    assert http is not None
    assert http.startswith(f"{host}:")
    port = int(http.rpartition(":")[2])
    found = {where[4] for where in socket.getaddrinfo(name, port, type=socket.SOCK_STREAM)}
    for where in found:
        answer = await get(f"[{where[0]}]:{port}" if ":" in str(where[0]) else
                           f"{where[0]}:{port}", "/healthz")  # fmt: skip
        assert answer.status_code == 200


@pytest.mark.parametrize(
    "options",
    [
        {"http_address": "nonsense"},
        {"http_address": "127.0.0.1:99999"},
        {"http_address": "no-such-host.invalid:0", "tokens": TOKENS, **TLS},
        {"tls_cert": CERTS / "cert.pem"},
        {"tls_cert": CERTS / "README.md", "tls_key": CERTS / "README.md"},
    ],
)
async def test_bad_settings(sqlite_url: str, serving: Serving, options: dict[str, Any]) -> None:
    with pytest.raises(tape.InvalidArgument):
        await serving(sqlite_url, **options)


async def test_a_taken_port_leaves_nothing_running(sqlite_url: str, serving: Serving) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        grpc = free.getsockname()
        free.close()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(tape.InvalidArgument, match=f"http: cannot listen on {address}"):
            await serving(sqlite_url, grpc_address=f"127.0.0.1:{grpc[1]}", http_address=address)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(grpc)


async def test_a_fault_is_an_error_in_json(
    sqlite_url: str, serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_accept: str) -> tuple[bytes, str]:
        raise ZeroDivisionError("inner workings")

    monkeypatch.setattr("tape.telemetry.exposition.render", broken)
    answer = await get((await serving(sqlite_url)).http, "/metrics")
    assert answer.status_code == 500
    assert answer.json()["error"]["reason"] == "INTERNAL"
    assert "inner" not in answer.text


async def test_no_http_unless_an_address_is_given(sqlite_url: str, serving: Serving) -> None:
    assert (await serving(sqlite_url, http_address=None)).http is None
