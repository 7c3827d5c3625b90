"""The job: a reaction over any part of history, as if it had been registered then."""

import asyncio
import contextlib
import logging
import signal
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # no py.typed in the wheel
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tape.errors import InvalidArgument
from tape.model.reaction import Reaction
from tape.pipeline.job import CheckContext, JobContext, JobProgress, Summary
from tape.pipeline.jobs.backfill.following import BackfillFollower
from tape.pipeline.jobs.backfill.history import Span, archived, find_span, read_later, read_span
from tape.pipeline.jobs.backfill.matching import FEW_ENTRIES, NumberedReaction, decided, numbered
from tape.pipeline.jobs.backfill.queueing import DecidedRow, Queueing, SettingsChanged, chosen
from tape.pipeline.jobs.backfill.survey import survey
from tape.pipeline.places import refuse_no_lake
from tape.ports.matching import RegisteredReactions
from tape.ports.store import Store
from tape.predicates.to_spark import left_to_python

log = logging.getLogger("tape.pipeline")

TOTALS = ("matched", "coalesced", "errors", "made", "already_there")


class _BackfillPlan(NamedTuple):
    book: RegisteredReactions
    rules: list[NumberedReaction]
    span: Span
    native: bool
    """Whether Spark's columns decide what they can, or Python all."""


@dataclass(frozen=True, slots=True)
class Backfill:
    """Entries after `from_seq` up to `upto`; by default all there are. With `follow` it goes on
    matching the reactions whose engine is Spark, all of them or those named."""

    name: ClassVar[str] = "backfill"
    reactions: tuple[str, ...] = ()
    from_seq: int | None = None
    upto: int | None = None
    lake: str = ""
    dry_run: bool = False
    follow: bool = False
    batch_entries: int = 200_000

    def check_options(self, before: CheckContext) -> None:
        self._refuse_contradictions()
        refuse_no_lake(self.lake, before)
        before.use_store(self._check_reactions if self.follow else self._plan)

    def run(self, work: JobContext) -> Summary:
        began = time.monotonic()
        self._refuse_contradictions()
        if self.follow:
            return self._follow(work, began)
        done = self._survey if self.dry_run else self._fill
        in_python = False
        while True:
            plan = work.use_store(self._plan)
            if in_python:
                plan = plan._replace(native=False)
            try:
                return done(work, plan, began)
            except SettingsChanged:
                log.warning("a reaction was registered with other settings: matching it again")
            except (PySparkException, Py4JError) as fault:
                why = left_to_python(fault)
                if in_python or not why:
                    raise
                log.warning("Python evaluates all entries: %s", why)
                in_python = True

    def _refuse_contradictions(self) -> None:
        if self.batch_entries < 1:
            raise InvalidArgument("must be at least 1", field="batch_entries")
        if not self.follow:
            if not self.reactions:
                raise InvalidArgument("name at least one reaction", field="reactions")
            if self.upto is not None and self.upto < (self.from_seq or 0):
                told = f"{self.upto} is before {self.from_seq}, where it begins"
                raise InvalidArgument(told, field="upto")
            return
        for name in ("from_seq", "upto"):
            if getattr(self, name) is not None:
                raise InvalidArgument(
                    "does not go with follow: each reaction starts at its own cursor", field=name
                )
        if self.dry_run:
            raise InvalidArgument("does not go with follow, which makes the tasks", field="dry_run")

    async def _plan(self, store: Store) -> _BackfillPlan:
        book = await store.matching.read_reactions()
        reactions = chosen(book, self.reactions)
        span = await find_span(store, self.from_seq, self.upto, reactions)
        native = span.upto - (span.after or 0) > FEW_ENTRIES
        return _BackfillPlan(book, numbered(reactions), span, native)

    def _decided(self, work: JobContext, plan: _BackfillPlan) -> tuple[DataFrame, DataFrame]:
        """Entries, and what was decided of them."""
        entries = read_span(work, self.lake, plan.span)
        later = read_later(work, self.lake, plan.span)
        found = decided(entries, plan.rules, later=later, native=plan.native)
        return entries, found.where(F.col("global_seq") <= plan.span.upto)

    def _survey(self, work: JobContext, plan: _BackfillPlan, began: float) -> Summary:
        entries, found = self._decided(work, plan)
        tasks = None
        if work.use_store(lambda store: _has_tasks(store, plan.rules)):
            tasks = work.spark.read.format("tape").options(url=work.store_url, table="tasks").load()
        records = survey(found, entries, tasks, plan.rules)
        names = ("matched", "coalesced", "errors", "already_there", "would_fire")
        totals = {name: sum(record[name] for record in records) for name in names}
        return self._summary(plan, totals, began, {"reactions": records})

    def _fill(self, work: JobContext, plan: _BackfillPlan, began: float) -> Summary:
        _entries, found = self._decided(work, plan)
        rows = found.select(*DecidedRow._fields).toLocalIterator(prefetchPartitions=True)
        counts = work.use_store(lambda store: self._queue(store, work, plan, rows))
        records = [{"reaction_id": name, **_named(of)} for name, of in counts.items()]
        totals = _named(sum(counts.values(), Counter()))
        return self._summary(plan, totals, began, {"reactions": records})

    async def _queue(
        self, store: Store, work: JobContext, plan: _BackfillPlan, rows: Iterator[Any]
    ) -> dict[str, Counter[str]]:
        queueing = Queueing(store, plan.book, plan.rules, archived(self.lake))
        while await queueing.take(rows):
            made = sum(of["made"] for of in queueing.counts.values())
            work.report(JobProgress(
                self.name, queueing.through, plan.span.upto, "entries", f"{made:,} tasks"
            ))  # fmt: skip
        return queueing.counts

    def _summary(
        self, plan: _BackfillPlan, counts: dict[str, int], began: float, facts: dict[str, object]
    ) -> Summary:
        span = {"from": plan.span.after or 0, "upto": plan.span.upto, "dry_run": self.dry_run}
        return Summary(self.name, counts, time.monotonic() - began, {**span, **facts})

    def _follow(self, work: JobContext, began: float) -> Summary:
        def read(after: int, upto: int) -> DataFrame:
            return read_span(work, self.lake, Span(after, upto))

        follower = BackfillFollower(read, self.reactions, self.batch_entries)

        def tell(head: int) -> None:
            detail = f"{follower.counts['made']:,} tasks"
            work.report(JobProgress(self.name, follower.position, head, "entries", detail))

        async def run(store: Store) -> None:
            await self._check_reactions(store)
            stopped = asyncio.Event()
            with _on_signals(stopped):
                await follower.run(store, stopped, tell)

        work.use_store(run)
        counts = {"entries": follower.counts["entries"], **_named(follower.counts)}
        return Summary(self.name, counts, time.monotonic() - began, {"position": follower.position})

    async def _check_reactions(self, store: Store) -> None:
        self._refuse_others((await store.matching.read_reactions()).reactions)

    def _refuse_others(self, known: list[Reaction]) -> None:
        engines = {reaction.reaction_id: reaction.engine for reaction in known}
        for reaction_id in self.reactions:
            if engines.get(reaction_id, "spark") != "spark":
                raise InvalidArgument(
                    f"{reaction_id!r} is matched by the server: run without --follow to make the "
                    "tasks that it missed", field="reactions",
                )  # fmt: skip


async def _has_tasks(store: Store, rules: list[NumberedReaction]) -> bool:
    for rule in rules:
        if await store.tasks.list_tasks(rule.reaction.reaction_id, None, None, 1):
            return True
    return False


def _named(counts: Mapping[str, int]) -> dict[str, int]:
    return {name: counts.get(name, 0) for name in TOTALS}


@contextlib.contextmanager
def _on_signals(stopped: asyncio.Event) -> Iterator[None]:
    """SIGTERM and SIGINT set it, where this is the thread that hears of them."""
    loop = asyncio.get_running_loop()
    heard = []
    for number in (signal.SIGTERM, signal.SIGINT):
        with contextlib.suppress(ValueError, RuntimeError, NotImplementedError):
            loop.add_signal_handler(number, stopped.set)
            heard.append(number)
    try:
        yield
    finally:
        for number in heard:
            loop.remove_signal_handler(number)
