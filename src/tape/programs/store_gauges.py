"""The gauges of what a store holds, brought up to date when they are asked for."""

import time

from tape.bus import Operations


async def refresh_metrics(operations: Operations) -> None:
    """Bring the gauges of what the store holds up to date."""
    from tape.telemetry import metrics

    await _refresh_outbox(operations)
    head = (await operations.info()).head_global_seq
    metrics.JOURNAL_HEAD.set(head)
    states = await operations.reactions.list_reactions()
    for (reaction_id,) in metrics.LAG.series().keys() - {(s.reaction.reaction_id,) for s in states}:
        metrics.forget_reaction(reaction_id)
    for state in states:
        reaction_id = state.reaction.reaction_id
        metrics.LAG.labels(reaction_id).set(max(0, head - state.position))
        metrics.TASKS_PENDING.labels(reaction_id).set(state.pending)
        metrics.TASKS_CLAIMED.labels(reaction_id).set(state.claimed)
        metrics.DEAD_LETTERS.labels(reaction_id).set(state.dead_letters)
    await _refresh_drainers(operations)
    await _refresh_waiting_runs(operations)


async def _refresh_drainers(operations: Operations) -> None:
    from tape.telemetry import metrics

    states = [state for state in await operations.ledger.list_drainers() if state.subscriptions]
    names = {(state.drainer.drainer_id,) for state in states}
    for (drainer_id,) in (
        metrics.DRAINER_LAG.series().keys() | metrics.DRAINED.series().keys()
    ) - names:
        metrics.forget_drainer(drainer_id)
    for state in states:
        drainer_id = state.drainer.drainer_id
        metrics.DRAINER_LAG.labels(drainer_id).set(state.lag)
        drainer, now_ms = state.drainer, time.time() * 1000
        is_halted, is_waiting = drainer.halted_on_event_id, drainer.waiting_on_run_id
        halted_ms = max(0.0, now_ms - drainer.halted_at_ms) if is_halted else 0.0
        waiting_ms = max(0.0, now_ms - drainer.waiting_since_ms) if is_waiting else 0.0
        metrics.DRAINER_HALTED.labels(drainer_id).set(bool(is_halted))
        metrics.DRAINER_HALTED_SECONDS.labels(drainer_id).set(halted_ms / 1000)
        metrics.DRAINER_WAITING_SECONDS.labels(drainer_id).set(waiting_ms / 1000)


async def _refresh_waiting_runs(operations: Operations) -> None:
    from tape.telemetry import metrics

    groups = (await operations.runs.list_waiting_runs())[: metrics.RUNS_WAITING_SERIES]
    for app_name, _pool in metrics.RUNS_WAITING.series():
        metrics.RUNS_WAITING.forget(app_name)
        metrics.RUNS_WAITING_SECONDS.forget(app_name)
    for group in groups:
        labels = (group.app_name, group.pool)
        metrics.RUNS_WAITING.labels(*labels).set(group.waiting)
        waited_s = max(0.0, time.time() - group.since_ms / 1000)
        metrics.RUNS_WAITING_SECONDS.labels(*labels).set(waited_s)


async def _refresh_outbox(operations: Operations) -> None:
    from tape.telemetry import metrics

    status = await operations.outbox.outbox_status()
    metrics.OUTBOX_WAITING.set(status.waiting)
    metrics.OUTBOX_UNPROMOTED.set(status.unpromoted)
    metrics.OUTBOX_OLDEST.set(status.oldest_ms / 1000)
    metrics.OUTBOX_FAILING.set(len(status.failing))
