"""Every check, in the order in which a report names them."""

from collections.abc import Sequence
from typing import Final

from tape.pipeline.jobs.audit.check import Check
from tape.pipeline.jobs.audit.checks import (
    accepted,
    budgets,
    columns,
    decisions,
    drainers,
    effects,
    entries,
    gates,
    leases,
    obligations,
    outbox,
    reactions,
    relays,
    runs,
    sessions,
    subjects,
    subscriptions,
    tasks,
    timers,
    values,
    wallet,
    writes,
)

GROUPS: Final[Sequence[tuple[Check, ...]]] = (
    entries.CHECKS,
    subjects.CHECKS,
    runs.CHECKS,
    leases.CHECKS,
    decisions.CHECKS,
    effects.CHECKS,
    obligations.CHECKS,
    gates.CHECKS,
    timers.CHECKS,
    values.CHECKS,
    budgets.CHECKS,
    reactions.CHECKS,
    tasks.CHECKS,
    drainers.CHECKS,
    relays.CHECKS,
    outbox.CHECKS,
    wallet.CHECKS,
    subscriptions.CHECKS,
    accepted.CHECKS,
    writes.CHECKS,
    sessions.CHECKS,
    columns.CHECKS,
)
"""By noun: the checks of a group look at the same frames, and are computed together."""

CHECKS: Final[dict[str, Check]] = {check.name: check for group in GROUPS for check in group}
