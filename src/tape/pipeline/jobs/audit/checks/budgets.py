"""Checks of budgets: charges add up, and nobody goes on spending what there is not."""

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from tape.pipeline.jobs.audit.check import QUIET, Check, RowRule, violation_rows
from tape.pipeline.jobs.audit.frames import ENTRY_COLUMNS, Frames, FrameSource

KINDS: Final = ("budget",)
_COLUMNS: Final = "run_id usd_cap token_cap usd_spent tokens_spent last_charge"


def _in_order(frames: Frames) -> DataFrame:
    """Entries of budgets, each with the one before it as `b`."""
    run = Window.partitionBy("run_id").orderBy("seq", "global_seq")
    return frames.of("budget").withColumn("b", F.lag("p").over(run))


LINES: Final = FrameSource("budget_lines", _in_order, KINDS, {"journal": ENTRY_COLUMNS})

sums_differ: Final = RowRule(
    LINES,
    """(whole OR b IS NOT NULL) AND (
        p.usd_spent <> COALESCE(b.usd_spent, 0)
            + IF(verb = 'charged', COALESCE(p.usd, 0), 0)
        OR p.tokens_spent <> COALESCE(b.tokens_spent, 0)
            + IF(verb = 'charged', COALESCE(p.tokens, 0), 0))""",
    """CONCAT('it says ', p.usd_spent, ' USD and ', p.tokens_spent,
        ' tokens are spent; before, ', COALESCE(b.usd_spent, 0), ' and ',
        COALESCE(b.tokens_spent, 0), ' were')""",
)
charged_twice: Final = RowRule(
    LINES,
    "verb = 'charged' AND p.last_charge <> '' AND p.last_charge = b.last_charge",
    "'it was charged before'",
    key="p.last_charge",
)
overspent: Final = RowRule(
    LINES,
    """verb = 'charged' AND (
        (p.usd_cap > 0 AND b.usd_spent > p.usd_cap AND p.usd > 0)
        OR (p.token_cap > 0 AND b.tokens_spent > p.token_cap AND p.tokens > 0))""",
    """CONCAT('charged although ', b.usd_spent, ' of ', p.usd_cap, ' USD and ',
        b.tokens_spent, ' of ', p.token_cap, ' tokens were spent')""",
    key="p.last_charge",
)


def rows_differ(frames: Frames) -> DataFrame:
    newest = Window.partitionBy("run_id").orderBy(F.desc("seq"), F.desc("global_seq"))
    stand = (
        frames.of("budget")
        .where("whole AND quiet")
        .select("run_id", "global_seq", "p", F.row_number().over(newest).alias("place"))
        .where("place = 1")
    )
    rows = frames.rows_of_settled("budgets")
    faults = """CASE
        WHEN p IS NULL THEN 'it has a row and no entry'
        WHEN usd_cap IS NULL THEN 'it has no row'
        WHEN usd_cap <> p.usd_cap OR token_cap <> p.token_cap OR last_charge <> p.last_charge
            OR usd_spent <> p.usd_spent OR tokens_spent <> p.tokens_spent
            THEN CONCAT('its row says ', usd_spent, ' of ', usd_cap, ' USD, ', tokens_spent,
                ' of ', token_cap, ' tokens; its journal ', p.usd_spent, ' of ', p.usd_cap, ', ',
                p.tokens_spent, ' of ', p.token_cap)
    END"""
    both = stand.join(rows, "run_id", "full").withColumn("fault", F.expr(faults))
    return violation_rows(both.where("fault <> ''"), "fault")


CHECKS: Final[tuple[Check, ...]] = (
    Check("budget_sums", "The amount spent is the previous amount plus the charge.", sums_differ),
    Check("budget_charged_once", "A charge counts once.", charged_twice),
    # Two that were admitted before either was charged may both be charged.
    Check("budget_cap", "Nothing is charged after more than the cap was spent.", overspent,
          severity="warning"),
    Check("budget_row", "A budget's row agrees with its entries.", rows_differ, QUIET,
          reads={"journal": ENTRY_COLUMNS, "budgets": _COLUMNS}, kinds=KINDS),
)  # fmt: skip
