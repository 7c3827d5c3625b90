"""Some of everything on a server, for who looks at all of it."""

import httpx

from tape.model.event import NewEvent
from tape.model.lease import NewRun
from tape.model.reaction import HandlerKind, NewReaction
from tape.model.run import RunName
from tape.model.task import TaskOutcome
from tape.model.value import ANY_VERSION, Author
from tape.ports.tasks import Claim, Want
from tape.programs.connect import open_operations
from tape.programs.serve import Addresses
from tape.settings import Settings

TRACE = "0af7651916cd43dd8448eb211c80319c"


async def fill(addresses: Addresses, token: str = "") -> None:
    operations = await open_operations(f"tape://{addresses.grpc}", token, Settings())
    try:
        reaction = NewReaction("route_orders", "/tape/event/**", HandlerKind.TASK)
        await operations.reactions.register_reaction(reaction)
        placed = NewEvent("order.placed", '{"order": 7}', "order", "7", trace_id=TRACE)
        (recorded,) = await operations.record_events([placed])
        routed = NewEvent(
            "order.routed",
            '{\n "to": "desk"\n}',
            caused_by=recorded.event_id,
            source="router",
        )
        filled = NewEvent("order.filled", "null", "order", "7", "fill-7", trace_id=TRACE)
        await operations.record_events([routed, filled])
        for key in ("0", "a/b"):
            await operations.values.write_value("0", key, '{"limit": 5}', ANY_VERSION, Author("me"))
        begun = await operations.runs.begin_run(NewRun(RunName("route_order", "", "", "1"), "{}"))
        assert begun.run.run_id
        claim = Claim("me", 60_000, [Want("route_orders", -1, 2)])
        for task in await operations.tasks.claim_tasks(claim, wait_ms=10_000):
            refused = TaskOutcome(task.task_id, "refused", "no luck", "at the desk")
            await operations.tasks.settle_tasks("me", [refused])
    finally:
        await operations.close()
    await _subscribe(f"http://{addresses.http}", token)


async def _subscribe(url: str, token: str) -> None:
    headers = {"authorization": f"Bearer {token}"} if token else {}
    async with httpx.AsyncClient(base_url=url, headers=headers) as client:
        for number, app in enumerate(("route_order", "another")):
            body = {
                "event_type_glob": "order.*", "workflow_type": app,
                "drainer_id": f"drainer-{number}",
            }  # fmt: skip
            made = await client.put(f"/api/event-subscriptions/{number}", json=body)
            made.raise_for_status()
        drained = await client.post(
            "/api/events/drain", json={"drainer_id": "drainer-0", "await_s": 0}
        )
        drained.raise_for_status()
