"""What led to an entry, and what it led to: found in the journal and in the rows beside it.

A cause is told by `caused_by`, and for what a run wrote by the run's name, if a drainer began it.
Tasks and runs are named after the entry that they were made of, so they are found by their names.
Every look is bounded, and a chain says so when there may be more.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from tape.bus import Operations
from tape.errors import NotFound
from tape.ledger.rules import invocation_id
from tape.model.entry import Entry
from tape.model.event_glob import parse_glob
from tape.model.event_subscription import RUN_USER
from tape.model.run import Run, RunName
from tape.model.task import Task, TaskKey
from tape.ports.ledger import RecentQuery
from tape.settings import Limits

CAUSES = 20
RELATED = 200
RUNS = 50
TASKS = 200
ATTEMPTS = 10
SCAN = 50_000
_EVENT_ID = re.compile(r"(?:^|[:/])([0-9A-HJKMNP-TV-Z]{26})(?:~[0-9]+)?$")


class Chain(NamedTuple):
    """`causes` from the nearest to the first; `effects` and `trace` in the order of the journal;
    `runs` that drainers and reactions began for it. Incomplete if there may be more.
    """

    entry: Entry
    causes: list[Entry]
    effects: Sequence[Entry]
    trace: Sequence[Entry]
    runs: list[Run]
    is_complete: bool


async def read_entry(operations: Operations, global_seq: int) -> Entry:
    """Read one entry by its place in the journal."""
    if 0 < global_seq <= (await operations.info()).head_global_seq:
        query = RecentQuery(before=global_seq + 1, limit=1, scan=1)
        for entry in (await operations.ledger.recent(query)).entries:
            if entry.global_seq == global_seq:
                return entry
    raise NotFound(f"the journal has no entry {global_seq}, or keeps it no more")


async def read_chain(operations: Operations, global_seq: int, limits: Limits) -> Chain:
    """Read an entry with what led to it and what it led to."""
    entry = await read_entry(operations, global_seq)
    causes, is_complete = await _causes(operations, entry)
    effects: Sequence[Entry] = ()
    trace: Sequence[Entry] = ()
    if entry.event_id:
        after = RecentQuery(entry.global_seq + SCAN, RELATED, caused_by=entry.event_id)
        effects = await _related(operations, after)
    if entry.trace_id:
        around = RecentQuery(entry.global_seq + SCAN // 2, RELATED, trace_id=entry.trace_id)
        trace = await _related(operations, around)
    runs = await _runs(operations, entry, limits)
    head = (await operations.info()).head_global_seq
    most = max(len(effects), len(trace), len(runs) * RELATED // RUNS)
    near_end = head < entry.global_seq + SCAN // 2
    return Chain(entry, causes, effects, trace, runs, is_complete and near_end and most < RELATED)


async def read_tasks(operations: Operations, entry: Entry) -> list[Task]:
    """Read the tasks that reactions made of an entry."""
    found: list[Task] = []
    for state in await operations.reactions.list_reactions(entry.subject):
        reaction = state.reaction
        for shard in range(max(1, reaction.num_shards)):
            key = TaskKey(reaction.reaction_id, shard, entry.global_seq)
            task = await operations.tasks.get_task(key.task_id)
            if task is not None:
                found.append(task)
                break
        if len(found) >= TASKS:
            break
    return found


async def _causes(operations: Operations, entry: Entry) -> tuple[list[Entry], bool]:
    """From the nearest to the first, and whether the first is among them."""
    causes: list[Entry] = []
    while event_id := await _cause_of(operations, entry):
        if len(causes) == CAUSES:
            return causes, False
        query = RecentQuery(entry.global_seq, 1, event_id=event_id, scan=SCAN)
        page = await operations.ledger.recent(query)
        if not page.entries:
            return causes, not page.before
        entry = page.entries[0]
        causes.append(entry)
    return causes, True


async def _cause_of(operations: Operations, entry: Entry) -> str:
    """The id of the event that caused an entry; empty if none is known."""
    told = _EVENT_ID.search(entry.caused_by)
    if told is None and entry.run_id:
        run = await operations.runs.get_run(entry.run_id)
        if run is not None and run.user_id == RUN_USER:
            told = _EVENT_ID.search(run.invocation_id)
    return told[1] if told is not None else ""


async def _related(operations: Operations, query: RecentQuery) -> list[Entry]:
    end = (await operations.info()).head_global_seq + 1
    bounded = query._replace(before=min(query.before, end), scan=SCAN)
    page = await operations.ledger.recent(bounded)
    return page.entries[::-1]


async def _runs(operations: Operations, entry: Entry, limits: Limits) -> list[Run]:
    found = await _runs_of_drainers(operations, entry, limits) if entry.event_type else []
    for state in await operations.reactions.list_reactions(entry.subject):
        reaction = state.reaction
        if reaction.agent_app and len(found) < RUNS:
            invocation = f"{reaction.reaction_id}/{entry.global_seq}"
            run = await operations.runs.get_run(
                RunName(reaction.agent_app, "", "", invocation).run_id
            )
            found += [run] if run is not None else []
    return found


async def _runs_of_drainers(operations: Operations, event: Entry, limits: Limits) -> list[Run]:
    found: list[Run] = []
    for subscription in await operations.ledger.list_event_subscriptions():
        glob = parse_glob(subscription.event_type_glob, limits)
        for attempt in range(1, ATTEMPTS + 1):
            if len(found) >= RUNS or not glob.matches(event.event_type):
                break
            name = RunName(
                subscription.workflow_type,
                RUN_USER,
                subscription.subscription_id,
                invocation_id(event, attempt, limits),
            )
            run = await operations.runs.get_run(name.run_id)
            if run is None:
                break
            found.append(run)
    return found
