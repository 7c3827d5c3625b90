"""The tour of the treasury that `make demo` ends with."""

import subprocess
import sys

from tests.integration.cli.command import clean_environment
from tests.integration.docs.pages import ROOT


def test_one_of_everything() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "examples.treasury.tour"],
        cwd=ROOT, env=clean_environment(), capture_output=True, text=True, timeout=110, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    first, *timeline, last = done.stdout.splitlines()
    assert first == "the broker has crashed with the order made, and the worker was killed"
    assert last == "sweeps: 1, fees: 1, hedges: 1, batches: 1"
    assert any("is found to be confirmed" in line and "order-1" in line for line in timeline)
