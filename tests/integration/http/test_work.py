"""Runs, tasks and reactions over HTTP, with a worker that drives the runs."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any

import httpx

import tape
from tape.programs.worker import WorkerOptions, work
from tape.reactions.declare import Registry
from tape.runs.declare import Apps
from tests.integration.http.conftest import Serving, door
from tests.integration.http.following import events
from tests.integration.http.some_of_everything import fill
from tests.servers.tape_server import ServerProcess


def apps() -> Apps:
    declared = Apps()

    @tape.app("double", registry=declared)
    async def double(_run: tape.Context, given: dict[str, Any]) -> int:
        if given["n"] < 0:
            raise tape.GiveUp("no negative numbers")
        return 2 * int(given["n"])

    @tape.app("wait", registry=declared)
    async def wait(run: tape.Context, _given: Any) -> Any:
        return await run.gate("approval")

    return declared


@asynccontextmanager
async def working(grpc: str) -> AsyncIterator[None]:
    stop, ready = asyncio.Event(), asyncio.Event()
    options = WorkerOptions(url=f"tape://{grpc}", apps=apps(), registry=Registry())
    task = asyncio.create_task(work(options, on_ready=lambda _ready: ready.set(), stop=stop))
    await asyncio.wait(
        (task, asyncio.create_task(ready.wait())), return_when=asyncio.FIRST_COMPLETED
    )
    try:
        yield
    finally:
        stop.set()
        await task


async def test_execute_and_its_batch(store_url: str, serving: Serving) -> None:
    grpc, http, _ = await serving(store_url)
    async with httpx.AsyncClient(base_url=f"http://{http}", timeout=60) as client, working(grpc):
        body = {"workflow_type": "double", "input": {"n": 21}, "invocation_id": "1", "wait_s": 30}
        first = (await client.post("/api/execute", json=body)).json()
        assert (first["status"], first["output"], first["resumed"]) == ("terminal", 42, False)
        again = (await client.post("/api/execute", json=body)).json()
        assert again == {**first, "resumed": True}
        items: list[Any] = [
            {"workflow_type": "double", "input": {"n": 1}, "wait_s": 30},
            {"workflow_type": ""},
            "nonsense",
            {"workflow_type": "double", "input": {"n": -1}, "wait_s": 30},
            {"workflow_type": "double\0"},
            {"workflow_type": "double", "input": {"n": 3}, "wait_s": 30},
        ]
        answer = await client.post("/api/execute/batch", json={"items": items})
        assert answer.status_code == 200
        results = answer.json()["results"]
        told = [r["result"] and (r["result"]["status"], r["result"]["output"]) for r in results]
        assert told == [("terminal", 2), None, None, ("failed", None), None, ("terminal", 6)]
        assert "no negative numbers" in str(results[3]["result"]["error"])
        assert [r["error"] and r["error"].get("field") for r in results] == [
            None, "workflow_type", None, None, "app_name", None,
        ]  # fmt: skip
        run = (await client.get(f"/api/runs/{first['run_id']}")).json()
        assert (run["app_name"], run["output"], run["error"]) == ("double", 42, None)


async def test_too_many_items(sqlite_url: str, serving: Serving) -> None:
    async with door(serving, sqlite_url) as client:
        items = [{"workflow_type": "double"}] * 1_001
        refused = await client.post("/api/execute/batch", json={"items": items})
        assert refused.status_code == 400
        assert refused.json()["error"]["field"] == "items"
        assert (await client.get("/api/runs")).json()["runs"] == []


async def test_a_run_is_signalled_and_cancelled(sqlite_url: str, serving: Serving) -> None:
    grpc, http, _ = await serving(sqlite_url)
    async with httpx.AsyncClient(base_url=f"http://{http}", timeout=60) as client, working(grpc):
        begun = (await client.post("/api/execute", json={"workflow_type": "wait"})).json()
        path = f"/api/runs/{begun['run_id']}"
        word = {"gate_name": "approval", "resolution": {"by": "me"}}
        signalled = await client.post(f"{path}/signal", json=word)
        assert signalled.json()["accepted"] is True
        name = {"workflow_type": "wait", "wait_s": 30}
        run = (await client.get(path)).json()
        again = {**name, "invocation_id": run["invocation_id"]}
        ended = (await client.post("/api/execute", json=again)).json()
        assert (ended["status"], ended["output"]) == ("terminal", {"by": "me"})
        assert (await client.post(f"{path}/signal", json=word)).json()["accepted"] is False
        refused = await client.post(f"{path}/resume", json={})
        assert (refused.status_code, refused.json()["error"]["reason"]) == (409, "RUN_ENDED")
        other = (await client.post("/api/execute", json={"workflow_type": "nobody's"})).json()
        cancel = f"/api/runs/{other['run_id']}/cancel"
        assert (await client.post(cancel, json={"reason": "why"})).json()["status"] == "cancelled"
        listed = (await client.get("/api/runs", params={"status": "cancelled"})).json()["runs"]
        assert [run["run_id"] for run in listed] == [other["run_id"]]
        for verb, body in (("cancel", {}), ("signal", word), ("resume", {})):
            missing = await client.post(f"/api/runs/nothing/{verb}", json=body)
            assert missing.status_code == 404


async def test_an_execute_that_waits_does_not_hold_up_the_end(sqlite_url: str) -> None:
    with ServerProcess(sqlite_url) as server:
        async with httpx.AsyncClient(base_url=f"http://{server.http}", timeout=60) as client:
            body: dict[str, Any] = {"workflow_type": "nobody's", "wait_s": 0.05}
            short = (await client.post("/api/execute", json=body)).json()
            assert (short["status"], short["output"]) == ("runnable", None)
            body |= {"wait_s": 60, "invocation_id": "long"}
            waiting = asyncio.create_task(client.post("/api/execute", json=body))
            tail = events(server.http, "/api/events/stream?after=1&subject=/tape/run/**")
            async with asyncio.timeout(20), aclosing(tail) as begun:
                while (await anext(begun)).data is None:
                    pass
                assert await asyncio.to_thread(server.stop) == 0
                assert (await waiting).json()["status"] == "runnable"


async def test_a_chain_leads_from_an_event_to_its_run_and_back(
    sqlite_url: str, serving: Serving
) -> None:
    grpc, http, _ = await serving(sqlite_url)
    async with httpx.AsyncClient(base_url=f"http://{http}", timeout=60) as client, working(grpc):
        recipes = {"n": "$.payload"}
        body = {"event_type_glob": "n.*", "workflow_type": "double", "input_mapper": recipes}
        (await client.put("/api/event-subscriptions/doubling", json=body)).raise_for_status()
        event = {"event_type": "n.added", "payload": 4}
        seq = (await client.post("/api/events/record", json=event)).json()["global_seq"]
        tail = events(http or "", "/api/events/stream?after=1&subject=/tape/run/terminal/**")
        async with asyncio.timeout(20), aclosing(tail) as ended:
            while (told := await anext(ended)).data is None:
                pass
        chain = (await client.get(f"/api/events/{seq}/chain")).json()
        (run,) = chain["runs"]
        assert (run["status"], run["output"], run["run_id"]) == ("terminal", 8, told.data["run_id"])
        back = (await client.get(f"/api/events/{told.data['global_seq']}/chain")).json()
        assert [cause["global_seq"] for cause in back["causes"]] == [seq]


async def test_dead_letters(sqlite_url: str, serving: Serving) -> None:
    addresses = await serving(sqlite_url)
    await fill(addresses)
    async with httpx.AsyncClient(base_url=f"http://{addresses.http}", timeout=60) as client:

        async def dead() -> list[str]:
            listed = await client.get("/api/tasks", params={"status": "dlq"})
            return [task["task_id"] for task in listed.json()["tasks"]]

        letters = await dead()
        assert len(letters) >= 1
        (reaction,) = (await client.get("/api/reactions")).json()["reactions"]
        assert reaction["dead_letters"] == len(letters)
        body: dict[str, Any] = {"reaction_id": "route_orders", "task_ids": letters[:1]}
        assert (await client.post("/api/tasks/replay", json=body)).json() == {"count": 1}
        assert await dead() == letters[1:]
        body = {"reaction_id": "route_orders"}
        dropped = await client.post("/api/tasks/drop", json=body)
        assert dropped.json() == {"count": len(letters) - 1}
        assert await dead() == []
        body = {"reaction_id": "route_orders", "task_ids": ["nonsense"]}
        refused = await client.post("/api/tasks/replay", json=body)
        assert refused.status_code == 404


async def test_pages_are_bounded(sqlite_url: str, serving: Serving) -> None:
    async with door(serving, sqlite_url) as client:
        for path in ("/api/runs", "/api/tasks", "/api/events/recent"):
            for limit in ("0", "1001", "-1", "x", "1.0", "9" * 30):
                refused = await client.get(path, params={"limit": limit})
                assert refused.status_code == 400, (path, limit)
                assert refused.json()["error"]["field"] == "limit"


async def test_what_waits_for_a_worker(store_url: str, serving: Serving) -> None:
    async with door(serving, store_url) as client:
        assert (await client.get("/api/runs/waiting")).json() == {"waiting": []}
        begun = (await client.post("/api/execute", json={"workflow_type": "nobody"})).json()
        url = "/api/runs/waiting?older_than_ms=0"
        (group,) = (await client.get(url)).json()["waiting"]
        assert group.pop("since_ms") > 0
        assert group == {
            "pool": "shared", "app_name": "nobody", "waiting": 1, "running": 0,
            "run_id": begun["run_id"],
        }  # fmt: skip
        assert (await client.get("/api/runs/waiting?older_than_ms=-1")).status_code == 400
        new = {"event_type_glob": "a", "workflow_type": "nobody", "drainer_id": "d", "pool": "gpu"}
        await client.put("/api/event-subscriptions/s", json=new)
        event = {"event_type": "a"}
        event_id = (await client.post("/api/events/record", json=event)).json()["event_id"]
        async with asyncio.timeout(30):
            while True:
                (drainer,) = (await client.get("/api/drainers")).json()["drainers"]
                if drainer["waiting_on_run_id"]:
                    break
        assert (drainer["waiting_on_app"], drainer["waiting_on_pool"]) == ("nobody", "gpu")
        assert (drainer["waiting_on_event_id"], drainer["halted_on_event_id"]) == (event_id, "")
        skip = {"event_id": event_id, "reason": "nobody has the app"}
        skipped = (await client.post("/api/drainers/d/skip", json=skip)).json()
        assert (skipped["skipped_total"], skipped["waiting_on_run_id"]) == (1, "")
