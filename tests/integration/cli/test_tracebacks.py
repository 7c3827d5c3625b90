"""What the code of a program raised: in the log of its worker, and shown by the command."""

import json
import signal
from pathlib import Path

import pytest

from tests.integration.cli.command import Done, start, tape

MODULE = """
import tape

def reverse(response):
    raise RuntimeError("the bank is closed")

@tape.effect(compensate=reverse, compensate_attempts=1)
def wire(cents):
    return "w1"

@tape.app("pay")
def pay(ctx, order):
    if order["undo"]:
        wire(1)
    raise ValueError("no \\x1b[31mfunds\\nERROR:tape:forged")

@tape.on("/tape/event/recorded/order/**", reaction_id="orders", retry_max=0)
def handle(envelope):
    raise LookupError("no such\\nERROR:tape:forged")
"""
STORE = ("--store", "sqlite:tape.db")


def said(folder: Path, *arguments: str, code: int = 0) -> Done:
    done = tape(*arguments, *STORE, folder=folder)
    assert done.code == code, done.err
    return done


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "desk.py").write_text(MODULE)
    return tmp_path


def started(folder: Path, *, undo: bool) -> str:
    order = json.dumps({"undo": undo})
    (run,) = said(folder, "runs", "start", "pay", "--input", order, "--json").records
    return str(run["run_id"])


def worked(folder: Path, *awaited: str) -> list[str]:
    """What a worker logs until it has said all of that."""
    worker = start("worker", "-m", "desk", *STORE, folder=folder)
    lines: list[str] = []
    missing = set(awaited)
    try:
        assert worker.stdout is not None
        assert worker.stderr is not None
        worker.stdout.readline()
        said(folder, "record", "order")
        for line in worker.stderr:
            lines.append(line.rstrip("\n"))
            missing -= {word for word in missing if word in line}
            if not missing:
                break
        worker.send_signal(signal.SIGTERM)
        rest = worker.stderr.read()  # not by communicate, which does not know what was read ahead
    finally:
        worker.kill()
        worker.communicate()
    return lines + rest.splitlines()


def test_a_worker_logs_what_its_code_raised_and_the_command_shows_it(folder: Path) -> None:
    said(folder, "migrate")
    run_id, stuck_id = started(folder, undo=False), started(folder, undo=True)
    log = worked(folder, "dead-lettered", f"run {run_id}", "is stuck after 1 attempts")
    heads = [line for line in log if not line.startswith("    ")]
    assert not [line for line in heads if line.startswith("ERROR:tape:forged")]
    (failed,) = [line for line in heads if f"run {run_id} of pay has failed" in line]
    assert failed.startswith("ERROR:tape.runs:")
    assert r"ValueError: no \x1b[31mfunds\nERROR:tape:forged" in failed
    below = log[log.index(failed) + 1 :]
    assert below[0] == "    Traceback (most recent call last):"
    assert below[1].endswith("in pay")
    (task,) = [line for line in heads if "dead-lettered" in line]
    assert task.startswith("WARNING:tape.dispatcher:task orders/0/")
    assert log[log.index(task) + 2].endswith("in handle")
    (undone,) = [line for line in heads if "WARNING:tape.reactors:obligation" in line]
    assert log[log.index(undone) + 2].endswith("in reverse")

    run = said(folder, "runs", "show", run_id).out
    assert "\n  Traceback (most recent call last):\n  " in run
    assert run.endswith("  ValueError: no \\x1b[31mfunds\n  ERROR:tape:forged\n")
    assert "ERROR:tape:forged" not in run.splitlines()
    (shown,) = said(folder, "runs", "show", run_id, "--json").records
    assert shown["traceback"] == shown["outcome"]["traceback"]
    assert shown["timeline"][-1]["traceback"] == shown["traceback"]
    assert "in pay" in shown["traceback"]
    full = said(folder, "runs", "show", run_id, "--full").out
    assert full.count("Traceback (most recent call last):") == 1
    stuck = said(folder, "runs", "show", stuck_id).out
    assert stuck.endswith("  RuntimeError: the bank is closed\n")
    assert "in reverse" in stuck

    (letter,) = said(folder, "dlq", "list", "--json").records
    for command in ("dlq", "tasks"):
        text = said(folder, command, "show", letter["task_id"]).out
        assert "\n\n  Traceback (most recent call last):\n" in text
        assert text.endswith("  LookupError: no such\n  ERROR:tape:forged\n")
        (record,) = said(folder, command, "show", letter["task_id"], "--json").records
        assert "in handle" in record["last_traceback"]
