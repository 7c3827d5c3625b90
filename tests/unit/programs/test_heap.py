"""Programs that run for long do not look for garbage among what they have when they begin."""

import subprocess
import sys

import pytest

READY = {
    "serve": "serve._announce(Addresses('127.0.0.1:1', None, None))",
    "worker": "worker._announce(Ready([], None, [], None), 'shared')",
}


@pytest.mark.parametrize("program", READY)
def test_what_is_there_when_it_is_ready_is_set_aside(program: str) -> None:
    code = (
        "import gc\n"
        "from tape.cli import serve, worker\n"
        "from tape.programs.serve import Addresses\n"
        "from tape.programs.worker import Ready\n"
        f"alive = len(gc.get_objects())\n{READY[program]}\n"
        "assert gc.get_freeze_count() >= alive, (gc.get_freeze_count(), alive)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
