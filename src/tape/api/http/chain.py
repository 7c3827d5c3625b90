"""`GET /api/events/{global_seq}/chain`: what led to an entry, and what it led to.

A cause is told by `caused_by`, and for what a run wrote by the run's name, if a drainer began it.
Every look is bounded, and the answer says so when there may be more.
"""

import re
from collections.abc import Sequence
from typing import Any

from fastapi import Response

from tape.api.auth import Role
from tape.api.http.door import Door
from tape.api.http.entry import EntryReply, entry_record, json_response
from tape.api.http.fields import PathPosition, Reply
from tape.api.http.recent import entry_at
from tape.api.http.routes import Routes, TheDoor
from tape.api.http.runs import RunReply, run_reply
from tape.ledger.rules import invocation_id
from tape.model.entry import Entry
from tape.model.event_glob import parse_glob
from tape.model.event_subscription import RUN_USER
from tape.model.run import Run, RunName
from tape.ports.ledger import RecentQuery

routes = Routes("events")

CAUSES = 20
RELATED = 200
RUNS = 50
ATTEMPTS = 10
SCAN = 50_000
_EVENT_ID = re.compile(r"(?:^|[:/])([0-9A-HJKMNP-TV-Z]{26})(?:~[0-9]+)?$")


class ChainReply(Reply):
    """`causes` are ordered from the nearest to the first; `effects` and `trace` as in the journal;
    `runs` are those that drainers started for it. `complete` is false if there may be more.
    """

    event: EntryReply
    causes: list[EntryReply]
    effects: list[EntryReply]
    trace: list[EntryReply]
    runs: list[RunReply]
    complete: bool


@routes.add(
    "GET", "/api/events/{global_seq:int}/chain", role=Role.READ, reply=ChainReply, refusals=(404,)
)
async def get_chain(door: TheDoor, global_seq: PathPosition) -> Response:
    """Get the causes and the effects of an entry, and the other entries of its trace."""
    entry = await entry_at(door, global_seq)
    causes, complete = await _causes(door, entry)
    effects: Sequence[Entry] = ()
    trace: Sequence[Entry] = ()
    if entry.event_id:
        after = RecentQuery(entry.global_seq + SCAN, RELATED, caused_by=entry.event_id)
        effects = await _related(door, after)
    if entry.trace_id:
        around = RecentQuery(entry.global_seq + SCAN // 2, RELATED, trace_id=entry.trace_id)
        trace = await _related(door, around)
    runs = await _runs(door, entry) if entry.event_type else []
    head = (await door.operations.info()).head_global_seq
    most = max(len(effects), len(trace), len(runs) * RELATED // RUNS)
    return json_response(
        {
            "event": entry_record(entry),
            "causes": _records(causes),
            "effects": _records(effects),
            "trace": _records(trace),
            "runs": [run_reply(run).model_dump() for run in runs],
            "complete": complete and head < entry.global_seq + SCAN // 2 and most < RELATED,
        }
    )


async def _causes(door: Door, entry: Entry) -> tuple[list[Entry], bool]:
    """From the nearest to the first, and whether the first is among them."""
    causes: list[Entry] = []
    while event_id := await _cause_of(door, entry):
        if len(causes) == CAUSES:
            return causes, False
        query = RecentQuery(entry.global_seq, 1, event_id=event_id, scan=SCAN)
        page = await door.operations.ledger.recent(query)
        if not page.entries:
            return causes, not page.before
        entry = page.entries[0]
        causes.append(entry)
    return causes, True


async def _cause_of(door: Door, entry: Entry) -> str:
    """The id of the event that caused an entry; empty if none is known."""
    told = _EVENT_ID.search(entry.caused_by)
    if told is None and entry.run_id:
        run = await door.operations.runs.get_run(entry.run_id)
        if run is not None and run.user_id == RUN_USER:
            told = _EVENT_ID.search(run.invocation_id)
    return told[1] if told is not None else ""


async def _related(door: Door, query: RecentQuery) -> list[Entry]:
    end = (await door.operations.info()).head_global_seq + 1
    bounded = query._replace(before=min(query.before, end), scan=SCAN)
    page = await door.operations.ledger.recent(bounded)
    return page.entries[::-1]


async def _runs(door: Door, event: Entry) -> list[Run]:
    """A drainer's run is named after its event, so it is found by its name."""
    found: list[Run] = []
    for subscription in await door.operations.ledger.list_subscriptions():
        glob = parse_glob(subscription.event_type_glob, door.limits)
        for attempt in range(1, ATTEMPTS + 1):
            if len(found) >= RUNS or not glob.matches(event.event_type):
                break
            name = RunName(
                subscription.workflow_type,
                RUN_USER,
                subscription.subscription_id,
                invocation_id(event, attempt, door.limits),
            )
            run = await door.operations.runs.get_run(name.run_id)
            if run is None:
                break
            found.append(run)
    return found


def _records(entries: Sequence[Entry]) -> list[dict[str, Any]]:
    return [entry_record(entry) for entry in entries]
