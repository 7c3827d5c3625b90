"""The metrics: their names are promises, and they count what was committed."""

import asyncio
import re
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from prometheus_client import Metric
from prometheus_client import parser as prometheus
from prometheus_client.openmetrics import parser as openmetrics

from tape.errors import VersionMismatch
from tape.model.event import NewEvent
from tape.model.event_subscription import NewEventSubscription
from tape.model.lease import NewRun
from tape.model.run import RunName
from tape.model.run_end import CancelRun
from tape.model.value import Author
from tape.programs.connect import open_bus
from tape.programs.store_gauges import refresh_metrics
from tape.telemetry import exposition, metrics

PAGE = Path(__file__).parents[3] / "docs" / "observing.md"
ROW = re.compile(r"^\| `(tape_\w+)(?:\{([\w, ]+)\})?` \| (\w+) \|", re.MULTILINE)

NAMES = """
tape_entries_appended_total tape_append_batches_total tape_journal_head tape_store_up
tape_matcher_leading tape_matcher_position tape_reaction_lag_entries tape_reaction_matches_total
tape_outbox_waiting tape_outbox_unpromoted tape_outbox_oldest_seconds tape_outbox_failing
tape_outbox_promoted_total tape_outbox_published_total tape_outbox_leading tape_outbox_held_subjects
tape_outbox_repeats_total
tape_pipeline_rows_total
tape_pipeline_runs_total
tape_pipeline_seconds_total
tape_reaction_coalesced_total tape_reaction_predicate_errors_total tape_tasks_pending
tape_tasks_claimed tape_dead_letters tape_task_attempts_total tape_task_wait_seconds
tape_streams_open tape_cut_off_total
tape_task_handling_seconds tape_dispatcher_running tape_dispatcher_longest_running_seconds
tape_runs_ended_total tape_effect_outcomes_total tape_obligations_ended_total tape_effects_unchecked
tape_reactor_work_total tape_reactor_in_hand tape_loop_blocks_total tape_loop_blocked_seconds_total
tape_drainer_lag_entries tape_drainer_halted tape_drainer_events_total tape_drainer_halted_seconds
tape_drainer_waiting_seconds tape_runs_waiting tape_runs_waiting_seconds tape_wallet_opened_total
tape_runs_runnable tape_execute_outcomes_total tape_execute_batch_size
tape_subscription_messages_fetched_total tape_subscription_messages_total
tape_subscription_batch_dispatch_total tape_subscription_batch_messages_total
tape_subscription_rate_limited_total tape_subscription_lag_seconds tape_subscription_in_flight
tape_subscription_backlog tape_subscription_stalled_seconds tape_subscription_dead_letters
tape_subscription_state tape_subscription_held tape_subscription_scaling
tape_polled_messages_total
"""


@pytest.fixture(scope="module", autouse=True)
def _without_those_of_other_tests() -> None:
    """They leave thousands of series in this process, and a parser takes its time."""
    families = list(exposition.REGISTRY.collect())
    samples = [sample for family in families for sample in family.samples]
    for reaction_id in {sample.labels.get("reaction", "") for sample in samples}:
        metrics.forget_reaction(reaction_id)


def value(name: str, **labels: str) -> float | None:
    return exposition.REGISTRY.get_sample_value(name, labels)


def described() -> dict[str, str]:
    """Each of our metrics by its name as it is scraped, with its type."""
    return {
        f"{family.name}_total" if family.type == "counter" else family.name: family.type
        for family in exposition.REGISTRY.collect()
        if family.name.startswith("tape_")
    }


def test_names() -> None:
    assert sorted(described()) == sorted(NAMES.split())


def test_the_page_lists_each_with_its_type_and_labels() -> None:
    rows = ROW.findall(PAGE.read_text())
    assert {name: kind for name, _, kind in rows} == described()
    labelled = {family.name: ", ".join(family.label_names) for family in metrics.FAMILIES}
    assert {name.removesuffix("_total"): labels for name, labels, _ in rows} == labelled


async def test_what_is_committed_is_counted(sqlite_url: str) -> None:
    entries, batches = metrics.ENTRIES_APPENDED.value, metrics.APPEND_BATCHES.value
    bus = await open_bus(sqlite_url)
    await bus.record_events([NewEvent("a"), NewEvent("b", idempotency_key="k")])
    await bus.record_events([NewEvent("b", idempotency_key="k")])  # known: nothing is appended
    with pytest.raises(VersionMismatch):
        await bus.values.write_value("n", "k", "1", 7, Author())
    await bus.close()
    assert value("tape_entries_appended_total") == entries + 2
    assert value("tape_append_batches_total") == batches + 1


def test_buckets_hold_what_is_not_longer_than_their_bound() -> None:
    for seconds in (0.0005, 0.001, 0.0011, 5_000.0):
        metrics.TASK_WAIT.labels("buckets").observe(seconds)
    bucket = "tape_task_wait_seconds_bucket"
    for bound, wanted in (("0.001", 2), ("0.0025", 3), ("1800.0", 3), ("+Inf", 4)):
        assert value(bucket, reaction="buckets", le=bound) == wanted
    assert value("tape_task_wait_seconds_count", reaction="buckets") == 4
    assert value("tape_task_wait_seconds_sum", reaction="buckets") == pytest.approx(5_000.0026)
    metrics.forget_reaction("buckets")


def test_labels_are_as_many_as_there_are() -> None:
    for values in ((), ("r", "x")):
        with pytest.raises(ValueError, match="tape_reaction_matches has the labels"):
            metrics.MATCHES.labels(*values)
    metrics.DISPATCHER_RUNNING.labels("r").inc(3)
    metrics.DISPATCHER_RUNNING.labels("r").dec()
    assert value("tape_dispatcher_running", reaction="r") == 2
    metrics.forget_reaction("r")


def test_a_reaction_that_is_gone_has_no_series() -> None:
    metrics.MATCHES.labels("gone").inc(2)
    metrics.MATCHES.labels("stays").inc()
    for outcome in metrics.AttemptOutcome:
        metrics.TASK_ATTEMPTS.labels("gone", outcome).inc()
    metrics.TASK_WAIT.labels("gone").observe(0.2)
    assert value("tape_task_attempts_total", reaction="gone", outcome="dead_lettered") == 1
    metrics.forget_reaction("gone")
    metrics.forget_reaction("never was")
    text, _ = exposition.render()
    assert b"gone" not in text
    assert value("tape_reaction_matches_total", reaction="stays") == 1
    metrics.forget_reaction("stays")


def test_the_text_is_one_that_prometheus_reads() -> None:
    metrics.MATCHES.labels('odd "id"\n').inc()
    text, kind = exposition.render()
    assert kind.startswith("text/plain; version=0.0.4")
    read = prometheus.text_string_to_metric_families(text.decode())
    names = {family.name for family in read}
    assert {"tape_entries_appended", "process_cpu_seconds", "python_info"} <= names
    text, kind = exposition.render("application/openmetrics-text;version=1.0.0,text/plain;q=0.5")
    assert kind.startswith("application/openmetrics-text; version=1.0.0")
    parse: Callable[[str], Iterable[Metric]] = openmetrics.text_string_to_metric_families
    assert list(parse(text.decode()))
    metrics.forget_reaction('odd "id"\n')


def test_a_store_in_process_loads_neither_metrics_nor_http() -> None:
    heavy = ("prometheus_client", "starlette", "uvicorn", "opentelemetry.sdk")
    code = f"import sys, tape; print(*({set(heavy)} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == ""


def test_counting_from_threads_loses_nothing() -> None:
    before = value("tape_entries_appended_total") or 0

    async def many() -> None:
        work = [asyncio.to_thread(_add_often) for _ in range(4)]
        await asyncio.gather(*work)

    asyncio.run(many())
    assert value("tape_entries_appended_total") == before + 4 * 3 * 5_000


def _add_often() -> None:
    for _ in range(5_000):
        metrics.ENTRIES_APPENDED.inc(3)


async def test_a_drainer_without_subscriptions_has_no_series(sqlite_url: str) -> None:
    bus = await open_bus(sqlite_url)
    new = NewEventSubscription("s", "a", "app", "desk", '{"n":"$.payload.n"}')
    await bus.ledger.put_event_subscription(new)
    await bus.record_events([NewEvent("b"), NewEvent("a")])
    await bus.ledger.drain("desk")
    await refresh_metrics(bus)
    assert value("tape_drainer_events_total", drainer="desk") == 1
    assert value("tape_drainer_halted", drainer="desk") == 1
    assert value("tape_drainer_halted_seconds", drainer="desk") is not None
    assert value("tape_drainer_waiting_seconds", drainer="desk") == 0
    assert value("tape_drainer_lag_entries", drainer="desk") == 3  # the event and what told of it
    await bus.ledger.put_event_subscription(new._replace(enabled=False))
    await refresh_metrics(bus)
    await bus.close()
    for name in ("events_total", "halted", "lag_entries"):
        assert value(f"tape_drainer_{name}", drainer="desk") is None


async def test_what_waits_for_a_worker_has_a_series_while_it_waits(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics, "RUNS_WAITING_SERIES", 2)
    bus = await open_bus(sqlite_url)
    really = bus.runs.list_waiting_runs
    monkeypatch.setattr(bus.runs, "list_waiting_runs", lambda *_after: really(0))
    begun = [
        await bus.runs.begin_run(NewRun(RunName(app, "", "", str(n)), pool=pool))
        for n, (app, pool) in enumerate([("a", "p"), ("a", "q"), ("a", "p"), ("b", "p")])
    ]
    await refresh_metrics(bus)
    assert value("tape_runs_waiting", app="a", pool="p") == 2
    assert value("tape_runs_waiting", app="a", pool="q") == 1
    assert value("tape_runs_waiting", app="b", pool="p") is None  # no more series than that
    assert value("tape_runs_runnable", pool="p") == 3
    assert value("tape_runs_runnable", pool="q") == 1
    for one in begun:
        await bus.runs.change_run(one.run.run_id, CancelRun("enough"))
    await refresh_metrics(bus)
    await bus.close()
    for name in ("tape_runs_waiting", "tape_runs_waiting_seconds"):
        assert value(name, app="a", pool="p") is None
    assert value("tape_runs_runnable", pool="p") == 0  # whoever scales by it gets an answer
    metrics.RUNS_RUNNABLE.forget("p")
    metrics.RUNS_RUNNABLE.forget("q")


async def test_runnable_runs_are_counted_at_once(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not after ten seconds, as those that wait are; and of a bounded number of pools."""
    monkeypatch.setattr(metrics, "RUNS_RUNNABLE_SERIES", 2)
    bus = await open_bus(sqlite_url)
    for number, pool in enumerate(["one", "two", "two", "three", "three", "three"]):
        await bus.runs.begin_run(NewRun(RunName("a", "", "", str(number)), pool=pool))
    await refresh_metrics(bus)
    await bus.close()
    assert metrics.RUNS_WAITING.series() == {}
    counts = {pool: series.value for (pool,), series in metrics.RUNS_RUNNABLE.series().items()}
    assert counts == {"three": 3, "two": 2}
    for pool in counts:
        metrics.RUNS_RUNNABLE.forget(pool)


def test_sizes_have_buckets_of_their_own() -> None:
    up_to_five, up_to_ten = (
        value("tape_execute_batch_size_bucket", le=most) or 0 for most in ("5.0", "10.0")
    )
    metrics.EXECUTE_BATCH_SIZE.observe(7)
    assert value("tape_execute_batch_size_bucket", le="5.0") == up_to_five
    assert value("tape_execute_batch_size_bucket", le="10.0") == up_to_ten + 1
    text, _ = exposition.render()
    assert b'tape_execute_batch_size_bucket{le="1000.0"}' in text


def test_no_label_names_a_run_or_a_trace() -> None:
    named = {label for family in metrics.FAMILIES for label in family.label_names}
    assert not {label for label in named if "run" in label or "trace" in label or "span" in label}
