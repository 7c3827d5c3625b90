"""The part of history that a backfill is about."""

from dataclasses import dataclass
from functools import partial

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tape.errors import InvalidArgument
from tape.model.reaction import Reaction
from tape.pipeline.job import JobContext
from tape.pipeline.jobs.backfill.queueing import Recall
from tape.pipeline.lake.frames import history
from tape.pipeline.lake.log import LakeLog
from tape.pipeline.lake.reading import read_entries
from tape.pipeline.source.frames import journal
from tape.ports.store import ReadEntries, Store


@dataclass(frozen=True, slots=True)
class Span:
    """Entries with `after < global_seq <= upto`; from the oldest there is if `after` is None.

    `later_upto` and `later_before_ms` say which entries beyond `upto` may belong to a burst that
    began within.
    """

    after: int | None
    upto: int
    later_upto: int = 0
    later_before_ms: int = 0


async def find_span(
    store: Store, after: int | None, upto: int | None, reactions: list[Reaction]
) -> Span:
    """What was asked for, within what there is."""
    head = store.head
    for name, seq in (("from", after), ("upto", upto)):
        if seq is not None and not 0 <= seq <= head:
            raise InvalidArgument(f"{seq} is not in 0..{head}, the end of this journal", field=name)
    if after is not None and upto is not None and upto < after:
        raise InvalidArgument(f"{upto} is before {after}, where it begins", field="upto")
    window = max((reaction.debounce_ms for reaction in reactions), default=0)
    if upto is None or upto == head or not window:
        return Span(after, head if upto is None else upto)
    following = await store.read_entries(ReadEntries(upto, head, 1, 1))
    if not following.entries:
        return Span(after, upto)
    return Span(after, upto, head, following.entries[0].ts_ms + window)


def read_span(work: JobContext, lake: str, span: Span) -> DataFrame:
    """Its entries, archived and live."""
    return _read(work, lake, span.after, span.upto)


def read_later(work: JobContext, lake: str, span: Span) -> DataFrame | None:
    """Entries beyond that a burst may go on with; None if no burst can."""
    if not span.later_upto:
        return None
    later = _read(work, lake, span.upto, span.later_upto)
    return later.where(F.col("ts_ms") < span.later_before_ms)


def archived(lake: str) -> Recall:
    """How entries come back that only the lake still has."""
    if not lake:
        return lambda _numbers: ()
    return partial(read_entries, LakeLog(lake))


def _read(work: JobContext, lake: str, after: int | None, upto: int) -> DataFrame:
    options = {"upto": str(upto)} | ({} if after is None else {"from": str(after)})
    if lake:
        return history(work.spark, work.store_url, lake, payload="variant", **options)
    return journal(work.spark, work.store_url, **options)
