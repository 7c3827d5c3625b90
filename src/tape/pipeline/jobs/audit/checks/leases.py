"""Checks of leases: tokens only grow, and whoever has none of the last one writes nothing."""

from typing import Final

from tape.pipeline.jobs.audit.check import Check, RowRule
from tape.pipeline.jobs.audit.frames import RUN_LINES

CLOCK_MS: Final = 1_000
"""A lease is judged by the store's clock as a process last heard it, which may differ a little."""
BY_DRIVER: Final = """(
    kind IN ('decision', 'budget', 'value', 'event')
    OR (kind = 'effect' AND verb = 'pending')
    OR (kind = 'gate' AND verb = 'waiting')
    OR (kind = 'timer' AND verb IN ('set', 'cancelled'))
)"""
"""What only the holder of the lease may write."""

tokens_skipped: Final = RowRule(
    RUN_LINES,
    """is_grant AND (whole OR lease_before IS NOT NULL)
    AND p.fencing_token <> COALESCE(lease_before.token, 0) + 1""",
    "CONCAT('token ', p.fencing_token, ' follows ', COALESCE(lease_before.token, 0))",
)
stale_tokens: Final = RowRule(
    RUN_LINES,
    """kind = 'run' AND NOT is_grant AND (whole OR lease_before IS NOT NULL)
    AND p.fencing_token <> COALESCE(lease_before.token, 0)""",
    "CONCAT(verb, ' carries token ', p.fencing_token, ', the lease was last granted with ', "
    "COALESCE(lease_before.token, 0))",
)
without_lease: Final = RowRule(
    RUN_LINES,
    f"{BY_DRIVER} AND status_before <> 'running'",
    "CONCAT(kind, ' ', verb, ' while the run was ', status_before)",
)
early_takeovers: Final = RowRule(
    RUN_LINES,
    f"""is_grant AND status_before = 'running' AND p.owner <> lease_before.owner
    AND ts_ms < lease_before.until_ms - {CLOCK_MS}""",
    "CONCAT(p.owner, ' took over ', lease_before.until_ms - ts_ms, ' ms before the lease of ', "
    "lease_before.owner, ' ran out')",
)

CHECKS: Final[tuple[Check, ...]] = (
    Check("lease_token_next", "Every lease has the next fencing token.", tokens_skipped),
    Check("lease_token_stale", "The process that releases or ends a run has the last token.",
          stale_tokens),
    Check("lease_held", "A run's driver writes only while it holds the lease.", without_lease),
    # Its holder may itself have made a lease shorter, which leaves no entry.
    Check("lease_takeover", "A lease is taken over only after it has expired.", early_takeovers,
          severity="warning"),
)  # fmt: skip
