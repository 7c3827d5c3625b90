"""Some of everything on a server, for who looks at all of it."""

import httpx

from tape.bus import Operations
from tape.model.event import NewEvent
from tape.model.lease import NewRun
from tape.model.message import SourceMessage
from tape.model.reaction import HandlerKind, NewReaction
from tape.model.run import RunName
from tape.model.task import TaskOutcome
from tape.model.value import ANY_VERSION, Author
from tape.ports.tasks import Claim, Want
from tape.programs.connect import open_operations
from tape.programs.serve import Addresses
from tape.settings import Settings
from tape.subscriptions.operations import AcceptMessagesRequest, HoldSubscription
from tests.integration.grpc.listening import ORIGIN, document

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
        await _listen(operations)
    finally:
        await operations.close()
    await _subscribe(f"http://{addresses.http}", token)


async def _listen(operations: Operations) -> None:
    """A subscription that is held, with a run and a dead letter."""
    subscriptions = operations.subscriptions
    await subscriptions.register_subscription(document("0"))
    await subscriptions.move_subscription("0", "activate")
    held = await subscriptions.hold_subscription(HoldSubscription("0", "me", 3_600_000))
    messages = [
        SourceMessage("file", ORIGIN, str(number), body, (("X-A", b"\xff"),))
        for number, body in enumerate((b"{}", b"no"))
    ]
    await subscriptions.accept_messages(
        AcceptMessagesRequest("0", held.revision, held.fencing_token, messages)
    )


async def _subscribe(url: str, token: str) -> None:
    headers = {"authorization": f"Bearer {token}"} if token else {}
    async with httpx.AsyncClient(base_url=url, headers=headers, timeout=60) as client:
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
