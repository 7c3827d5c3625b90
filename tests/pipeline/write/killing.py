"""Runs a driver that is killed again and again, with kill -9, until one comes to its end.

What is killed: the driver alone with its JVM, so that its Python workers are left behind and may
still be at work; everything at once; or only the Python workers, and the driver goes on.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Literal

Victims = Literal["driver", "everything", "workers"]
Sign = Callable[[], bool]
PATIENCE_S = 280.0


def run_killed(command: Sequence[str], kills: Sequence[tuple[Victims, Sign]]) -> int:
    """Start the command; at each sign, kill. How many drivers it took."""
    left = list(kills)
    started = 0
    while True:
        started += 1
        was_hurt = False
        driver = subprocess.Popen(
            [sys.executable, *command],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        try:
            while left and _await_sign(driver, left[0][1]):
                victims, _sign = left.pop(0)
                was_hurt = True
                _kill(driver, victims)
                if victims != "workers":
                    break
            else:
                _out, said = driver.communicate(timeout=PATIENCE_S)
                if driver.returncode == 0:
                    return started
                assert was_hurt, f"nobody was killed, and yet: {said.decode()[-3000:]}"
        finally:
            _kill(driver, "everything")
            driver.wait(30)
            assert driver.stderr is not None
            driver.stderr.close()


def _await_sign(driver: "subprocess.Popen[bytes]", sign: Sign) -> bool:
    """Whether it came before the driver ended. What it waits for may last milliseconds."""
    while driver.poll() is None:
        if sign():
            return True
        time.sleep(0.001)
    return False


def _kill(driver: "subprocess.Popen[bytes]", victims: Victims) -> None:
    if driver.poll() is not None:
        return
    found = list(_descendants(driver.pid))
    if victims == "driver":
        chosen = [pid for pid, name in found if "java" in name]
    elif victims == "workers":
        chosen = [pid for pid, name in found if "pyspark.daemon" in name]
    else:
        chosen = [pid for pid, _name in found]
    if victims != "workers":
        chosen.insert(0, driver.pid)
    for pid in chosen:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _descendants(pid: int) -> Iterator[tuple[int, str]]:
    """Children and theirs, with their command lines. One that ends meanwhile is left out."""
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                with contextlib.suppress(OSError):
                    yield int(child), Path(f"/proc/{child}/cmdline").read_text()
                yield from _descendants(int(child))
