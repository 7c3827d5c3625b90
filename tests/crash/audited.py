"""What tests of crashes end with: the store's own audit, by the command, finds nothing wrong."""

import subprocess
import sys

AUDIT_S = 300.0


def check_audit(url: str) -> None:
    """About ten seconds, most of which Spark takes to start."""
    command = [sys.executable, "-m", "tape.cli", "pipeline", "audit", "--store", url, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=AUDIT_S, check=False)
    assert done.returncode == 0, f"{url}: {done.stdout[-4000:]}\n{done.stderr[-2000:]}"
