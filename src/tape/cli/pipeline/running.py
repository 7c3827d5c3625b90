"""Runs a job for the command line: a session, progress on the terminal, a summary, metrics."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar

from tape.cli.output import printable
from tape.cli.pipeline.summary import print_summary
from tape.cli.target import Target, refuse_absent_store
from tape.errors import SparkUnavailable
from tape.settings.file import settings_path
from tape.stores.blocking import Stores
from tape.telemetry.exposition import render
from tape.telemetry.metrics import PIPELINE_ROWS, PIPELINE_RUNS, PIPELINE_SECONDS

if TYPE_CHECKING:  # Spark is loaded only where a job really runs
    from tape.pipeline.job import Job, JobProgress, Report, Summary

F = TypeVar("F", bound=Callable[..., Any])

LINE_S = 1.0
LOG_LEVEL = "spark.log.level"
SPARK_EXTRA = "the pipeline needs Spark: pip install 'tape-bus[spark]'"


def job_options(command: F) -> F:
    """What every job takes: where Spark runs, and how the job tells of itself."""
    for option in (
        click.option("--metrics-file", type=click.Path(path_type=Path), metavar="FILE",
                     help="Write metrics to this file, for Prometheus' textfile collector."),
        click.option("--json", "as_json", is_flag=True,
                     help="Print the summary as one JSON object."),
        click.option("--conf", multiple=True, metavar="NAME=VALUE",
                     help="Set an option of Spark. Repeatable."),
        click.option("--remote", default="", metavar="URL",
                     help="Use Spark Connect at sc://HOST:PORT."),
        click.option("--master", default="", metavar="URL",
                     help="Use this Spark master; by default local."),
    ):  # fmt: skip
        command = option(command)
    return command


@contextlib.contextmanager
def needing_spark() -> Iterator[None]:
    """Say how to install Spark where what is imported meanwhile is not there."""
    try:
        yield
    except ModuleNotFoundError as missing:
        raise SparkUnavailable(f"{SPARK_EXTRA} ({missing.name} is missing)") from missing


def existing_store(target: Target, *, changes: bool, declared: str = "") -> str:
    """The store that a job works on. No job creates one: an audit of nothing finds nothing."""
    url = target.store_to_open(changes=changes, declared=declared)
    asyncio.run(refuse_absent_store(url, target.settings))
    return url


def run_jobs(
    target: Target,
    jobs: "Sequence[Job]",
    *,
    store: str,
    master: str,
    remote: str,
    conf: Sequence[str],
    as_json: bool,
    metrics_file: Path | None,
    packages: Sequence[str] = (),
) -> int:
    """One after another, until one fails; the exit code.

    Whatever is wrong with any of them is said before Spark starts.
    """
    with needing_spark():
        from tape.pipeline.job import CheckContext, JobContext
        from tape.pipeline.places import refuse_unwritable_file
        from tape.pipeline.session import refuse_bad_address
        from tape.pipeline.spark_errors import raising_tape_errors
        from tape.spark import StoredLogins
    settings = dict(_setting(item) for item in conf)
    refuse_bad_address(master, remote)
    if metrics_file is not None:
        refuse_unwritable_file(metrics_file, "metrics_file")
    stores = Stores(target.settings)
    use_store, logins = stores.store(store), StoredLogins(stores, stores.located(store))
    before = CheckContext(use_store, remote=remote, logins=logins)
    for job in jobs:
        job.check_options(before)
    spark = _started(target, master, remote, packages, settings)
    file = settings_path(target.config_path)
    config = str(file.resolve()) if file else ""
    code = 0
    try:
        for job in jobs:
            with _watching(job.name, as_json=as_json) as report, raising_tape_errors():
                summary = job.run(
                    JobContext(spark, store, use_store, report, target.settings, config, logins)
                )
            print_summary(summary, store, as_json=as_json)
            _count(summary, metrics_file)
            if summary.failed:
                code = 1
                break
    finally:
        with contextlib.suppress(Exception):  # a Java that has died has stopped
            spark.stop()
    return code


def _started(
    target: Target, master: str, remote: str, packages: Sequence[str], settings: dict[str, str]
) -> Any:
    """A session. Java's own lines are for who asks for them."""
    from tape.pipeline.session import session, silenced_java

    if target.verbose or LOG_LEVEL in settings:
        return session(
            master=master, remote=remote, packages=packages, config=settings, verbose=target.verbose
        )
    with silenced_java():
        return session(
            master=master, remote=remote, packages=packages, config={LOG_LEVEL: "OFF", **settings}
        )


def _setting(item: str) -> tuple[str, str]:
    name, separator, value = item.partition("=")
    if not separator or not name:
        raise click.UsageError(f"--conf {item}: write NAME=VALUE")
    return name, value


class _watching:  # noqa: N801 - reads as a verb where it is used
    """Progress on a terminal as a bar; elsewhere as lines on stderr, at most one a second."""

    def __init__(self, job: str, *, as_json: bool) -> None:
        self._job = job
        self._console = Console(stderr=True)
        self._told_at = -LINE_S
        self._bar: Bar | None = None
        if self._console.is_terminal and not as_json:
            self._bar = Bar(
                TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(),
                TextColumn("{task.fields[detail]}"), TimeElapsedColumn(),
                console=self._console, transient=True,
            )  # fmt: skip

    def __enter__(self) -> "Report":
        if self._bar is None:
            return self._line
        self._bar.start()
        self._task = self._bar.add_task(self._job, total=None, detail="")
        return self._show

    def __exit__(self, *_exception: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def _show(self, progress: "JobProgress") -> None:
        if self._bar is not None:
            total = progress.total or None
            self._bar.update(
                self._task, completed=progress.done, total=total, detail=progress.detail
            )

    def _line(self, progress: "JobProgress") -> None:
        now, is_done = time.monotonic(), 0 < progress.total <= progress.done
        if now - self._told_at >= LINE_S or is_done:
            self._told_at = now
            of = f" of {progress.total:,}" if progress.total else ""
            detail = f": {progress.detail}" if progress.detail else ""
            line = f"{progress.job}: {progress.done:,}{of} {progress.unit}{detail}"
            click.echo(printable(line), err=True)


def _count(summary: "Summary", metrics_file: Path | None) -> None:
    for name, count in summary.counts.items():
        PIPELINE_ROWS.labels(summary.job, name).inc(count)
    PIPELINE_SECONDS.labels(summary.job).inc(summary.seconds)
    PIPELINE_RUNS.labels(summary.job, "failed" if summary.failed else "done").inc()
    if metrics_file is not None:
        fresh = metrics_file.with_suffix(metrics_file.suffix + ".new")
        text, _kind = render()
        fresh.write_bytes(text)
        fresh.replace(metrics_file)
