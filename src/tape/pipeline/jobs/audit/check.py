"""A check: what must hold, in a sentence, and how whatever breaks it is found."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

from pyspark.sql import DataFrame

from tape.pipeline.jobs.audit.frames import Frames

Severity = Literal["error", "warning"]
"""A warning is what Tape itself lets happen, and what is seldom meant."""

# How a check bears with a journal that is being written to while it is audited. See `frames`.
ENTRIES: Final = "looks at entries up to the head alone, and those never change"
QUIET: Final = "compares rows of runs to which nothing was written since before they were read"
VERSIONS: Final = "a row tells by its number which entry it must equal, whatever came later"
BOUNDS: Final = "holds a row to no less than what was there before it was read, no more than after"
LATER: Final = "rows were read before the head, so what they name is at or below it"
TWICE: Final = "compares only what was the same before and after the rest was read"


@dataclass(frozen=True, slots=True)
class Check:
    """`find` gives the violations: global_seq, run_id, key (0 or "" if there is none) and found."""

    name: str
    holds: str
    find: Callable[[Frames], DataFrame]
    live: str = ENTRIES
    severity: Severity = "error"


def told(
    frame: DataFrame,
    found: str,
    *,
    key: str = "''",
    global_seq: str = "global_seq",
    run_id: str = "run_id",
) -> DataFrame:
    """Rows of a frame as violations; all are SQL expressions, `found` the words."""
    return frame.selectExpr(
        f"CAST(COALESCE({global_seq}, 0) AS BIGINT) AS global_seq",
        f"CAST(COALESCE({run_id}, '') AS STRING) AS run_id",
        f"CAST(COALESCE({key}, '') AS STRING) AS key",
        f"CAST({found} AS STRING) AS found",
    )
