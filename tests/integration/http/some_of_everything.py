"""Some of everything on a server, for who looks at all of it."""

from tape.app import open_operations
from tape.config import Settings
from tape.model.event import NewEvent
from tape.model.lease import NewRun
from tape.model.reaction import HandlerKind, NewReaction
from tape.model.run import RunName
from tape.model.task import TaskOutcome
from tape.model.value import ANY_VERSION, Author
from tape.ports.tasks import Claim, Want

TRACE = "0af7651916cd43dd8448eb211c80319c"


async def fill(server_url: str, token: str = "") -> None:
    operations = await open_operations(server_url, token, Settings())
    try:
        reaction = NewReaction("route_orders", "/tape/event/**", HandlerKind.TASK)
        await operations.register_reaction(reaction)
        placed = NewEvent("order.placed", '{"order": 7}', "order", "7", trace_id=TRACE)
        (recorded,) = await operations.record_events([placed])
        routed = NewEvent("order.routed", '{\n "to": "desk"\n}', caused_by=recorded.event_id)
        filled = NewEvent("order.filled", "null", "order", "7", "fill-7", trace_id=TRACE)
        await operations.record_events([routed, filled])
        for key in ("0", "a/b"):
            await operations.write_value("0", key, '{"limit": 5}', ANY_VERSION, Author("me"))
        begun = await operations.runs.begin_run(NewRun(RunName("route_order", "", "", "1"), "{}"))
        assert begun.run.run_id
        claim = Claim("me", 60_000, [Want("route_orders", -1, 2)])
        for task in await operations.claim_tasks(claim, wait_ms=10_000):
            await operations.settle_tasks("me", [TaskOutcome(task.task_id, "refused", "no luck")])
    finally:
        await operations.close()
