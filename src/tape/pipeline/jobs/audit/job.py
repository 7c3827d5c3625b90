"""The job: read, check, tell."""

import time
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import ClassVar

from tape.errors import InvalidArgument
from tape.pipeline.job import CheckContext, JobContext, JobProgress, Summary
from tape.pipeline.jobs.audit.catalogue import CHECKS
from tape.pipeline.jobs.audit.finding import run_checks
from tape.pipeline.jobs.audit.frames import EVERY
from tape.pipeline.jobs.audit.reading import read_frames
from tape.pipeline.jobs.audit.report import Audited, form_of, plain
from tape.pipeline.jobs.audit.small_tables import sized_for
from tape.pipeline.places import refuse_no_lake, refuse_unwritable_file

EXAMPLES = 3


@dataclass(frozen=True, slots=True)
class Audit:
    """Hold the journal and the tables beside it to what must be true of them.

    `lake` brings back what was pruned; `check` names checks, all by default; at most `limit`
    violations of each are told, and always how many there are.
    """

    name: ClassVar[str] = "audit"

    lake: str = ""
    check: tuple[str, ...] = ()
    report: str = ""
    limit: int = 20

    def check_options(self, before: CheckContext) -> None:
        _refuse_unknown(self.check)
        if self.limit < 0:
            raise InvalidArgument(
                "is how many violations to show; it must be 0 or more", field="limit"
            )
        if self.report:
            form_of(self.report)
            refuse_unwritable_file(self.report, "report")
        refuse_no_lake(self.lake, before)

    def run(self, work: JobContext) -> Summary:
        started = time.monotonic()
        self.check_options(CheckContext(work.use_store))
        form = form_of(self.report) if self.report else None
        total = len(self.check) or len(CHECKS)

        def done(count: int, name: str) -> None:
            work.report(JobProgress(self.name, count, total, "checks", name))

        done(0, "reading")
        frames = read_frames(work, self.check, self.lake)
        moment = frames.moment
        try:
            with sized_for(
                work.spark, moment.head - moment.begins_after, local=frames.keep_local is not None
            ):
                entries = frames.present[EVERY[0]]
                results = list(run_checks(frames, self.check, limit=self.limit, done=done))
        finally:
            frames.release()
        audited = Audited(moment.store, moment.begins_after, moment.head, entries, results)
        if form is not None:
            Path(self.report).write_text(form(audited))
        return self._summary(audited, time.monotonic() - started)

    def _summary(self, audited: Audited, seconds: float) -> Summary:
        errors, warnings = audited.count("error"), audited.count("warning")
        facts: dict[str, object] = {"upto": audited.upto}
        if audited.broken:
            facts["violations"] = {r.check.name: r.count for r in audited.broken}
        for result in audited.broken:
            facts[result.check.name] = [
                plain(" ".join(filter(None, (str(v.global_seq or ""), v.run_id, v.key, v.found))))
                for v in result.violations[:EXAMPLES]
            ]
        if self.report:
            facts["report"] = self.report
        counts = {
            "checks": len(audited.results), "entries": audited.entries, "errors": errors,
            "warnings": warnings,
        }  # fmt: skip
        failed = f"{errors:,} violations of what must hold" if errors else ""
        return Summary(self.name, counts, seconds, facts, failed)


def _refuse_unknown(names: tuple[str, ...]) -> None:
    for name in names:
        if name not in CHECKS:
            near = get_close_matches(name, CHECKS, n=1)
            meant = f"did you mean {near[0]}?" if near else "--list names them all"
            raise InvalidArgument(f"there is no check {name!r}; {meant}", field="check")
