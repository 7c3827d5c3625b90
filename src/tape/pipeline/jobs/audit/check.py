"""A check: what must hold, in a sentence, what it reads, and how whatever breaks it is found."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from pyspark.sql import DataFrame

from tape.pipeline.jobs.audit.frames import AuditScope, Frames, FrameSource

Severity = Literal["error", "warning"]
"""A warning is what Tape itself lets happen, and what is seldom meant."""

# How a check bears with a journal that is being written to while it is audited. See `frames`.
ENTRIES: Final = "looks at entries up to the head alone, and those never change"
QUIET: Final = "compares rows of runs to which nothing was written since before they were read"
VERSIONS: Final = "a row tells by its number which entry it must equal, whatever came later"
BOUNDS: Final = "holds a row to no less than what was there before it was read, no more than after"
LATER: Final = "rows were read before the head, so what they name is at or below it"
TWICE: Final = "compares only what was the same before and after the rest was read"
ROW: Final = "looks at one row, which is written whole"

Words = str | Callable[[AuditScope], str]
"""A SQL expression; or how it is made where it depends on which part of the journal is there."""


@dataclass(frozen=True, slots=True)
class RowRule:
    """Rows of a source for which `where` is true are violations; all but `source` is SQL.

    Rules of one source are decided in one pass over it.
    """

    source: FrameSource
    where: Words
    found: Words
    key: str = "''"
    global_seq: str = "global_seq"
    run_id: str = "run_id"


@dataclass(frozen=True, slots=True)
class Check:
    """`find` is a rule, or gives the violations: global_seq, run_id, key (0 or "" if none), found.

    `reads` has the tables that it looks at (`journal` is one) with their columns, and `kinds` the
    kinds of entries; a rule's source has its own. Nothing else is read for it, and where all of it
    is empty the check is not computed, for there is nothing that it could find. `about` names the
    tables and kinds that must not all be empty, where the others alone show nothing.
    """

    name: str
    holds: str
    find: Callable[[Frames], DataFrame] | RowRule
    live: str = ENTRIES
    severity: Severity = "error"
    reads: Mapping[str, str] = field(default_factory=dict)
    kinds: tuple[str, ...] = ()
    about: tuple[str, ...] = ()

    @property
    def inputs(self) -> FrameSource:
        """All that it looks at."""
        if isinstance(self.find, RowRule):
            return self.find.source.with_more(self.kinds, self.reads)
        return FrameSource(self.name, lambda frames: frames.entries, self.kinds, self.reads)


def columns_read(checks: Mapping[str, Check]) -> dict[str, tuple[str, ...]]:
    """For each table the columns that these checks look at."""
    read: dict[str, dict[str, None]] = {}
    for check in checks.values():
        for table, columns in check.inputs.reads.items():
            read.setdefault(table, {}).update(dict.fromkeys(columns.split()))
    return {table: tuple(columns) for table, columns in read.items()}


def violation_columns(found: str, key: str, global_seq: str, run_id: str) -> list[str]:
    """Rows as violations; all are SQL expressions, `found` the words."""
    return [
        f"CAST(COALESCE({global_seq}, 0) AS BIGINT) AS global_seq",
        f"CAST(COALESCE({run_id}, '') AS STRING) AS run_id",
        f"CAST(COALESCE({key}, '') AS STRING) AS key",
        f"CAST({found} AS STRING) AS found",
    ]


def violation_rows(
    frame: DataFrame,
    found: str,
    *,
    key: str = "''",
    global_seq: str = "global_seq",
    run_id: str = "run_id",
) -> DataFrame:
    """Rows of a frame as violations."""
    return frame.selectExpr(*violation_columns(found, key, global_seq, run_id))
