"""Java is started without a fork of this process.

PySpark has Ctrl-C ignored by a function that runs in a copy of this process before it becomes Java.
gRPC begins its threads again in such a copy, and they end it when they find their files closed
(gRPC's issue 43055). A shell that ignores Ctrl-C and then becomes Java needs no copy.
"""

import contextlib
import subprocess
from collections.abc import Iterator, Sequence
from typing import Any

import pyspark.java_gateway

_DEAF_TO_CTRL_C = ("/bin/sh", "-c", 'trap "" INT; exec "$@"', "sh")
_gateway: Any = pyspark.java_gateway


@contextlib.contextmanager
def without_a_fork() -> Iterator[None]:
    """Have a Java that PySpark starts meanwhile begin as a process of its own."""
    before = _gateway.Popen
    _gateway.Popen = _start
    try:
        yield
    finally:
        _gateway.Popen = before


def _start(command: Sequence[str], **options: Any) -> "subprocess.Popen[bytes]":
    if options.pop("preexec_fn", None):
        command = [*_DEAF_TO_CTRL_C, *command]
    return subprocess.Popen(command, **options)  # noqa: S603 - Spark's own command
