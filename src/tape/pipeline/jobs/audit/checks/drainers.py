"""Checks of drainers: where they are, and where they halt."""

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tape.pipeline.jobs.audit.check import LATER, Check, told
from tape.pipeline.jobs.audit.frames import Frames

_ROW: Final = "looks at one row, which is written whole"


def drainers_ahead(frames: Frames) -> DataFrame:
    odd = frames.table("event_drain_state").where(F.col("last_global_seq") > frames.moment.head)
    words = f"CONCAT('it is at ', last_global_seq, ', the journal ends at {frames.moment.head}')"
    return told(odd, words, key="drainer_id", global_seq="last_global_seq", run_id="''")


def halted_behind(frames: Frames) -> DataFrame:
    """What it halted at is before it: that event was passed, though it was not dispatched."""
    odd = frames.table("event_drain_state").where(
        "halted_on_event_id <> '' AND halted_on_global_seq <= last_global_seq"
    )
    words = "CONCAT('it is halted at ', halted_on_global_seq, ' and has come to ', last_global_seq)"
    return told(odd, words, key="drainer_id", global_seq="halted_on_global_seq", run_id="''")


CHECKS: Final[tuple[Check, ...]] = (
    Check("drainer_ahead", "No drainer is ahead of the journal.", drainers_ahead, LATER),
    Check("drainer_halted", "A drainer has not passed the event it is halted at.", halted_behind,
          _ROW),
)  # fmt: skip
