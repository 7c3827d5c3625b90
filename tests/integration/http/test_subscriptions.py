"""Declared subscriptions over HTTP, with a client that plays their listener over gRPC."""

from base64 import b64decode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import httpx
import pytest

from tape.settings import KIB
from tape.wire.v1 import tape_pb2 as pb
from tests.integration.grpc.conftest import dialled
from tests.integration.grpc.listening import ORIGIN, accept, document, hold, line
from tests.integration.http.conftest import TOKENS, Serving, door

YAML = {"content-type": "application/yaml"}
NAME = "one.two-3"
PATH = f"/api/subscriptions/{NAME}"
SPEC = {
    "source": "file",
    "mode": "pull",
    "activation": "continuous",
    "folder": "/var/inbox",
    "pattern": "*.jsonl",
    "runtime": {"target": "cloud-run", "server_url": "https://tape.example"},
    "dispatch": {"playbook": "read_line", "execution_pool": "lines"},
}
NEW = {
    "name": NAME,
    "path": f"subscriptions/{NAME}",
    "source": "file",
    "mode": "pull",
    "activation": "continuous",
    "state": "registered",
    "revision": 1,
    "spec": SPEC,
    "counts": {
        "fetched": 0, "redelivered": 0, "accepted": 0, "deduplicated": 0, "dead_lettered": 0,
        "rejected": 0, "spooled": 0, "replayed": 0,
    },
    "in_flight": 0,
    "backlog": None,
    "last_accepted_at_ms": 0,
    "last_error": "",
    "circuits": [],
    "spool": {"items": 0, "bytes": 0, "oldest_at_ms": 0},
    "runtime": {"owner": "", "expires_at_ms": 0},
}  # fmt: skip


class Doors(NamedTuple):
    http: httpx.AsyncClient
    rpc: Any


@asynccontextmanager
async def doors(serving: Serving, url: str) -> AsyncIterator[Doors]:
    grpc, http, _ = await serving(url)
    async with (
        httpx.AsyncClient(base_url=f"http://{http}", timeout=30) as client,
        dialled(grpc) as rpc,
    ):
        yield Doors(client, rpc)


async def register(http: httpx.AsyncClient, text: str = "") -> httpx.Response:
    return await http.post(
        "/api/subscriptions", content=(text or document(NAME)).encode(), headers=YAML
    )


async def moved(http: httpx.AsyncClient, verb: str) -> tuple[int, str]:
    """The status, and the state that the answer tells."""
    answer = await http.post(f"{PATH}/{verb}")
    said = answer.json()
    return answer.status_code, said["error"]["state"] if "error" in said else said["state"]


async def test_a_document_is_registered_as_yaml_and_as_json(
    store_url: str, serving: Serving
) -> None:
    async with door(serving, store_url) as http:
        made = await register(http)
        assert made.status_code == 201
        assert made.json() == NEW
        assert list(made.json()) == list(NEW)
        same = {
            "apiVersion": "tape/v1",
            "kind": "Subscription",
            "metadata": {"name": NAME, "path": f"subscriptions/{NAME}"},
            "spec": SPEC,
        }
        again = await http.post("/api/subscriptions", json=same)
        assert (again.status_code, again.json()) == (200, NEW)
        changed = {**same, "spec": {**SPEC, "limits": {"max_in_flight": 5}}}
        revised = await http.post("/api/subscriptions", json=changed)
        assert (revised.status_code, revised.json()["revision"]) == (200, 2)
        assert revised.json()["spec"] == changed["spec"]
        await register(http, document("a"))
        listed = (await http.get("/api/subscriptions")).json()["subscriptions"]
        assert [each["name"] for each in listed] == ["a", NAME]
        assert (await http.get(PATH)).json() == listed[1] == revised.json()


@pytest.mark.parametrize(
    ("text", "field", "line_number"),
    [
        (document().replace("mode: pull", "mode: push"), "spec.mode", 6),
        (document().replace("pattern:", "patern:"), "spec.patern", 9),
        (document().replace("inbox", "In Box", 1), "metadata.name", 3),
        ("kind: [", "document", 1),
        ("", "document", None),
    ],
)
async def test_a_refusal_names_field_and_line(
    sqlite_url: str, serving: Serving, text: str, field: str, line_number: int | None
) -> None:
    async with door(serving, sqlite_url) as http:
        refused = await http.post("/api/subscriptions", content=text.encode(), headers=YAML)
        assert refused.status_code == 400
        error = refused.json()["error"]
        assert (error["reason"], error["field"]) == ("INVALID_ARGUMENT", field)
        assert error.get("line") == line_number
        assert (await http.get("/api/subscriptions")).json() == {"subscriptions": []}


async def test_a_refused_json_document_names_its_field(sqlite_url: str, serving: Serving) -> None:
    async with door(serving, sqlite_url) as http:
        bad = {"apiVersion": "tape/v1", "kind": "Subscription", "metadata": {"name": NAME}}
        refused = await http.post("/api/subscriptions", json=bad)
        assert refused.status_code == 400
        assert refused.json()["error"]["field"] == "metadata.path"
        for body, line_number in (
            (b'{"kind":\n\n', 3),
            (b"kind: Subscription", 1),
            (b'"text"', 1),
            (b"[]", 1),
            (b"NaN", 1),
            (b'{"kind": "\\ud800"}', 1),
        ):
            refused = await http.post(
                "/api/subscriptions", content=body, headers={"content-type": "application/json"}
            )
            assert refused.status_code == 400, body
            error = refused.json()["error"]
            assert (error["field"], error["line"]) == ("document", line_number), body


async def test_what_a_body_may_be(sqlite_url: str, serving: Serving) -> None:
    async with door(serving, sqlite_url) as http:
        text = document(NAME).encode()
        for kind in ("text/plain", "text/yaml", "application/x-www-form-urlencoded", ""):
            refused = await http.post(
                "/api/subscriptions", content=text, headers={"content-type": kind}
            )
            assert refused.status_code == 415
            assert "application/yaml" in refused.json()["error"]["message"]
        bare = await http.post("/api/subscriptions")
        assert bare.status_code == 415
        exact = text + b"#" * (64 * KIB - len(text))
        assert (await register(http, exact.decode())).status_code == 201
        refused = await http.post("/api/subscriptions", content=exact + b"#", headers=YAML)
        assert (refused.status_code, refused.json()["error"]["reason"]) == (413, "TOO_LARGE")
        latin = await http.post("/api/subscriptions", content=b"kind: \xe9", headers=YAML)
        assert (latin.status_code, latin.json()["error"]["field"]) == (400, "document")
        with_charset = {"content-type": "application/yaml; charset=utf-8"}
        said = await http.post("/api/subscriptions", content=exact, headers=with_charset)
        assert said.status_code == 200
        other = await http.put("/api/values/n/k", content=b"value: 1", headers=YAML)
        assert other.status_code == 415


async def test_a_whole_life(store_url: str, serving: Serving) -> None:
    async with doors(serving, store_url) as (http, rpc):
        assert (await register(http)).status_code == 201
        for verb in ("pause", "resume", "drain", "deactivate"):
            assert await moved(http, verb) == (409, "registered")
        assert await moved(http, "activate") == (200, "active")
        assert await moved(http, "activate") == (200, "active")
        token = (await hold(rpc, NAME, lease_owner="me-1")).fencing_token
        headers = [
            pb.MessageHeader(name="X-Route", value=b"a"),
            pb.MessageHeader(name="x-route", value=b"b"),
        ]
        bad = line(3, b"\xffno", headers=headers, message_id="m3")
        outcomes = await accept(rpc, token, [line(1), line(2), bad, line(4, b"{")], NAME)
        assert [outcome for outcome, _run_id in outcomes] == [
            "accepted", "accepted", "dead_lettered", "dead_lettered",
        ]  # fmt: skip
        await hold(
            rpc, NAME, fencing_token=token, fetched=4, in_flight=1, backlog=9, last_error="e"
        )
        told = (await http.get(PATH)).json()
        assert (told["in_flight"], told["backlog"], told["last_error"]) == (1, 9, "e")
        assert told["runtime"]["owner"] == "me-1"
        assert told["runtime"]["expires_at_ms"] > told["last_accepted_at_ms"] > 0
        counts = {name: count for name, count in told["counts"].items() if count}
        assert counts == {"fetched": 4, "accepted": 2, "dead_lettered": 2}
        runs = (await http.get("/api/runs", params={"subscription": NAME})).json()["runs"]
        assert {run["run_id"] for run in runs} == {run_id for _outcome, run_id in outcomes[:2]}
        assert {(run["user_id"], run["session_id"]) for run in runs} == {("subscription", NAME)}
        others = await http.get("/api/runs", params={"subscription": "other"})
        assert others.json()["runs"] == []

        assert await moved(http, "pause") == (200, "paused")
        assert await moved(http, "resume") == (200, "active")
        assert await moved(http, "drain") == (200, "draining")
        refused = await http.delete(PATH)
        assert (refused.status_code, refused.json()["error"]["state"]) == (409, "draining")
        await hold(rpc, NAME, fencing_token=token, letting_go=True)
        assert await moved(http, "drain") == (200, "deactivated")
        assert await moved(http, "resume") == (409, "deactivated")
        assert (await http.delete(PATH)).json() == {"deleted": True}
        assert (await http.delete(PATH)).json() == {"deleted": False}
        assert (await http.get(PATH)).status_code == 404


async def test_dead_letters(store_url: str, serving: Serving) -> None:
    letters = f"{PATH}/dead-letters"
    async with doors(serving, store_url) as (http, rpc):
        await register(http)
        await moved(http, "activate")
        token = (await hold(rpc, NAME)).fencing_token
        headers = [
            pb.MessageHeader(name="X-Route", value=b"a"),
            pb.MessageHeader(name="x-route", value=b"\xff"),
            pb.MessageHeader(name="Other", value="é".encode()),
        ]
        bodies = (b"\xff\x001", b"2x", b"3x", b"4x")
        bad = [line(n, body, headers=headers) for n, body in enumerate(bodies, 1)]
        await accept(rpc, token, bad, NAME)
        found = (await http.get(letters)).json()
        assert found["after"] is None
        first = found["dead_letters"][0]
        ids = [letter["id"] for letter in found["dead_letters"]]
        assert [b64decode(letter["body"]) for letter in found["dead_letters"]] == list(bodies)
        assert first["headers"] == {"x-route": ["a", "\ufffd"], "other": "é"}
        assert (first["place"], first["message_id"]) == (f"{ORIGIN}/1", f"{ORIGIN}/1")
        assert (first["reason"], first["attempts"]) == ("not_json", 1)
        assert list(first) == [
            "id", "place", "message_id", "reason", "detail", "attempts", "at_ms", "headers", "body",
        ]  # fmt: skip
        page = (await http.get(letters, params={"limit": 3})).json()
        assert ([letter["id"] for letter in page["dead_letters"]], page["after"]) == (
            ids[:3],
            ids[2],
        )
        rest = (await http.get(letters, params={"limit": 3, "after": page["after"]})).json()
        assert ([letter["id"] for letter in rest["dead_letters"]], rest["after"]) == (ids[3:], None)

        async def settle(verb: str, wanted: list[str] | None = None) -> Any:
            body: dict[str, Any] = {} if wanted is None else {"json": {"ids": wanted}}
            return (await http.post(f"{letters}/{verb}", **body)).json()

        assert await settle("replay", [ids[0]]) == {"count": 0}
        assert (await http.get(letters)).json()["dead_letters"][0]["attempts"] == 2
        assert await settle("drop", [ids[1], "none"]) == {"count": 1}
        text = document(NAME).replace("{playbook:", "{payload_from: message.body, playbook:")
        assert (await register(http, text)).status_code == 200
        assert await settle("replay", [ids[2]]) == {"count": 1}
        assert await settle("replay") == {"count": 2}
        assert await settle("drop") == {"count": 0}
        assert (await http.get(letters)).json() == {"dead_letters": [], "after": None}
        counts = (await http.get(PATH)).json()["counts"]
        assert (counts["dead_lettered"], counts["replayed"]) == (4, 3)


async def test_dead_letters_come_in_pages_that_fit(
    sqlite_url: str, serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tape.api.http.entry.ANSWER_BYTES", 100_000)
    async with doors(serving, sqlite_url) as (http, rpc):
        await register(http)
        await moved(http, "activate")
        token = (await hold(rpc, NAME)).fencing_token
        await accept(rpc, token, [line(n, b"x" * 30_000) for n in range(1, 8)], NAME)
        found: list[str] = []
        after: str | None = ""
        pages = 0
        while after is not None:
            page = (await http.get(f"{PATH}/dead-letters", params={"after": after})).json()
            found += [letter["place"] for letter in page["dead_letters"]]
            after, pages = page["after"], pages + 1
        assert found == [f"{ORIGIN}/{n}" for n in range(1, 8)]
        assert pages == 4


async def test_roles(sqlite_url: str, serving: Serving) -> None:
    async with door(serving, sqlite_url, tokens=TOKENS) as http:

        def bearer(name: str) -> dict[str, str]:
            return {"authorization": f"Bearer {name}-token"}

        await http.post(
            "/api/subscriptions",
            content=document(NAME).encode(),
            headers={**YAML, **bearer("admin")},
        )
        requests = [
            ("GET", "/api/subscriptions", "reader"),
            ("GET", PATH, "reader"),
            ("GET", f"{PATH}/dead-letters", "reader"),
            ("POST", f"{PATH}/dead-letters/replay", "writer"),
            ("POST", f"{PATH}/dead-letters/drop", "writer"),
            ("POST", f"{PATH}/activate", "admin"),
            ("POST", f"{PATH}/pause", "admin"),
            ("POST", f"{PATH}/resume", "admin"),
            ("POST", f"{PATH}/drain", "admin"),
            ("POST", f"{PATH}/deactivate", "admin"),
            ("DELETE", PATH, "admin"),
            ("POST", "/api/subscriptions", "admin"),
        ]
        order = ("reader", "writer", "admin")
        for method, path, least in requests:
            assert (await http.request(method, path)).status_code == 401
            for name in order:
                answer = await http.request(method, path, headers=bearer(name))
                is_allowed = order.index(name) >= order.index(least)
                assert (answer.status_code == 403) == (not is_allowed), (method, path, name)


@pytest.mark.parametrize("verb", ["activate", "dead-letters/replay", "dead-letters/drop"])
async def test_what_is_not_there(sqlite_url: str, serving: Serving, verb: str) -> None:
    async with door(serving, sqlite_url) as http:
        for answer in (
            await http.get("/api/subscriptions/none"),
            await http.get("/api/subscriptions/none/dead-letters"),
            await http.post(f"/api/subscriptions/none/{verb}"),
        ):
            assert (answer.status_code, answer.json()["error"]["reason"]) == (404, "NOT_FOUND")
        assert (await http.post("/api/subscriptions/none/explode")).status_code in (404, 405)
        assert (
            await http.post("/api/subscriptions/none/activate", json={"x": 1})
        ).status_code == 400
        from_a_page = {"origin": "https://elsewhere.example"}
        posted = await http.post("/api/subscriptions/none/activate", headers=from_a_page)
        assert posted.status_code == 415
