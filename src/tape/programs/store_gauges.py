"""The gauges of what a store holds, brought up to date when they are asked for."""

import time
from collections import Counter
from typing import Final

import orjson

from tape.bus import Operations
from tape.model.subscription import SubscriptionState
from tape.subscriptions.operations import AcceptOutcome, SubscriptionView

NO_DELAY_MS: Final = 0


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
    await _refresh_runnable_runs(operations)
    await _refresh_subscriptions(operations)


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


async def _refresh_runnable_runs(operations: Operations) -> None:
    """A pool that had some keeps its series at 0, as long as there is room: what scales by it is
    not to be left without an answer."""
    from tape.telemetry import metrics

    runnable = Counter[str]()
    for group in await operations.runs.list_waiting_runs(NO_DELAY_MS):
        runnable[group.pool] += group.waiting
    shown = dict(runnable.most_common(metrics.RUNS_RUNNABLE_SERIES))
    for (pool,) in metrics.RUNS_RUNNABLE.series():
        if len(shown) < metrics.RUNS_RUNNABLE_SERIES:
            shown.setdefault(pool, 0)
        elif pool not in shown:
            metrics.RUNS_RUNNABLE.forget(pool)
    for pool, count in shown.items():
        metrics.RUNS_RUNNABLE.labels(pool).set(count)


async def _refresh_subscriptions(operations: Operations) -> None:
    from tape.telemetry import metrics

    before = metrics.named_subscriptions()
    views = {
        view.subscription.name: view for view in await operations.subscriptions.list_subscriptions()
    }
    for gone in before - views.keys():
        metrics.forget_subscription(gone)
    for name, view in views.items():
        if metrics.subscription_label(name):
            _set_subscription(name, view)


def _set_subscription(name: str, view: SubscriptionView) -> None:
    from tape.telemetry import metrics

    listener, state = view.listener, view.subscription.state
    for outcome in AcceptOutcome:
        count = getattr(listener, outcome.value)
        metrics.SUBSCRIPTION_MESSAGES.labels(name, outcome.value).restate(count)
    metrics.SUBSCRIPTION_DEAD_LETTERS.labels(name).set(view.dead_letters)
    metrics.SUBSCRIPTION_SCALING.forget(name)
    for setting, number in _scaling(view.document_json).items():
        metrics.SUBSCRIPTION_SCALING.labels(name, setting).set(number)
    metrics.SUBSCRIPTION_STATE.forget(name)
    metrics.SUBSCRIPTION_STATE.labels(name, state).set(1)
    if view.subscription.mode != "pull":
        return
    metrics.SUBSCRIPTION_HELD.labels(name).set(view.is_held)
    if (name,) not in metrics.SUBSCRIPTION_LAG.series():  # else its listener here knows better
        metrics.SUBSCRIPTION_IN_FLIGHT.labels(name).set(listener.in_flight)
    if listener.backlog < 0:
        metrics.SUBSCRIPTION_BACKLOG.forget(name)
    else:
        metrics.SUBSCRIPTION_BACKLOG.labels(name).set(listener.backlog)
    is_stalled = state == SubscriptionState.ACTIVE and listener.backlog > 0
    since_ms = max(listener.last_accepted_at_ms, view.subscription.changed_at_ms)
    stalled_s = max(0.0, time.time() - since_ms / 1000) if is_stalled else 0.0
    metrics.SUBSCRIPTION_STALLED.labels(name).set(stalled_s)


def _scaling(document_json: str) -> dict[str, float]:
    """The numbers that it gives for an autoscaler."""
    if '"scaling"' not in document_json:
        return {}
    keda = orjson.loads(document_json)["spec"].get("scaling", {}).get("keda", {})
    return {name: value for name, value in keda.items() if isinstance(value, int | float)}


async def _refresh_outbox(operations: Operations) -> None:
    from tape.telemetry import metrics

    status = await operations.outbox.outbox_status()
    metrics.OUTBOX_WAITING.set(status.waiting)
    metrics.OUTBOX_UNPROMOTED.set(status.unpromoted)
    metrics.OUTBOX_OLDEST.set(status.oldest_ms / 1000)
    metrics.OUTBOX_FAILING.set(len(status.failing))
