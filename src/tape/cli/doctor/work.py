"""Checks of the work: what is halted, given up, or waits for somebody."""

import time

from tape.bus import Operations
from tape.cli.doctor.finding import Finding, ok, some, warn
from tape.cli.doctor.subscriptions import check_subscriptions
from tape.cli.drainers import held_up_words
from tape.cli.output import span
from tape.model.drainer import DrainerState
from tape.ports.runs import WaitingRuns
from tape.runs.operations import WAITING_MS


async def check_work(operations: Operations) -> list[Finding]:
    drainers = await operations.ledger.list_drainers()
    letters = {
        state.reaction.reaction_id: state.dead_letters
        for state in await operations.reactions.list_reactions()
        if state.dead_letters
    }
    waiting = await operations.runs.list_waiting_runs()
    found = [_drainers(drainers), _dead_letters(letters), _waiting(waiting)]
    return found + await check_subscriptions(operations)


def _drainers(states: list[DrainerState]) -> Finding:
    held_up = [state for state in states if state.subscriptions and _is_held_up(state)]
    if not held_up:
        return ok("drainers", f"{len(states)}, none is halted or waits long")
    advice = "mend the cause and tape drainers resume, start a worker, or tape drainers skip"
    return warn("drainers", some([held_up_words(state) for state in held_up]), advice)


def _is_held_up(state: DrainerState) -> bool:
    drainer = state.drainer
    waited_ms = time.time_ns() // 1_000_000 - drainer.waiting_since_ms
    return bool(
        drainer.halted_on_event_id or (drainer.waiting_on_run_id and waited_ms > WAITING_MS)
    )


def _dead_letters(letters: dict[str, int]) -> Finding:
    if not letters:
        return ok("dead letters", "none")
    found = [f"{count} of {name}" for name, count in letters.items()]
    return warn("dead letters", some(found), "tape dlq list, then tape dlq replay or drop")


def _waiting(groups: list[WaitingRuns]) -> Finding:
    """Apps that some worker runs are late at most; the others may have nobody."""
    unserved = [group for group in groups if not group.running]
    if not unserved:
        return ok("waiting runs", "none without a worker")
    now_ms = time.time_ns() // 1_000_000
    found = [
        f"{group.waiting} of {group.app_name} in pool {group.pool} for "
        f"{span(now_ms - group.since_ms)}, and none is running"
        for group in unserved
    ]
    return warn("waiting runs", some(found), "start a worker with the app in that pool")
