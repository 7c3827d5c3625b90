"""Commands in processes that begin as a copy of one in which everything is imported already.

Such a process differs from a fresh interpreter in nothing but that: it has its own arguments,
environment, folder and standard streams, and ends as an interpreter ends. Run as a program, this
module is the one that is copied; its only argument is the socket where it is told what to run.

Not the process that crash tests are forked from: that has the tests' own apps declared and their
folders on its path, which a command would see.
"""

import atexit
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

# Those that `tape` imports when a command needs them. Not gRPC, which does not survive a fork.
IMPORTED = (
    "asyncpg", "tape.cli", "tape.cli.config", "tape.cli.migrate", "tape.cli.record",
    "tape.cli.relay", "tape.cli.runs", "tape.cli.schema", "tape.cli.tail", "tape.cli.values",
    "tape.cli.worker", "tape.stores.postgres.store", "tape.stores.sqlite.store",
)  # fmt: skip
LARGEST = 100_000


class Ended(NamedTuple):
    code: int
    out: str
    err: str


def run_forked(
    arguments: Sequence[str], *, folder: Path, env: Mapping[str, str], stdin: str, timeout_s: float
) -> Ended:
    """Like `subprocess.run` of `python -m tape.cli` with these arguments."""
    with ExitStack() as stack:
        streams = [stack.enter_context(tempfile.TemporaryFile()) for _ in range(3)]
        streams[0].write(stdin.encode())
        streams[0].seek(0)
        ours, theirs = socket.socketpair()
        stack.enter_context(ours)
        with theirs:
            asked = json.dumps(
                {"arguments": list(arguments), "folder": str(folder), "env": {**env}}
            )
            handed = [*(stream.fileno() for stream in streams), theirs.fileno()]
            socket.send_fds(_original(), [asked.encode()], handed)
        told = stack.enter_context(ours.makefile())  # it holds on to the socket
        pid = int(told.readline())
        ours.settimeout(timeout_s)
        try:
            code = int(told.readline())
        except TimeoutError:
            os.kill(pid, signal.SIGKILL)
            raise
        for stream in streams:
            stream.seek(0)
        _stdin, out, err = (stream.read().decode() for stream in streams)
        return Ended(code, out, err)


@cache
def _original() -> socket.socket:
    """Where the process that is copied listens. It ends when we do."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    process = subprocess.Popen(
        [sys.executable, __file__, str(theirs.fileno())],
        pass_fds=[theirs.fileno()],
        stdin=subprocess.DEVNULL,
    )
    theirs.close()
    atexit.register(process.wait)
    atexit.register(ours.close)  # first, for it ends when there is nobody to ask
    return ours


def _next_command(asking: socket.socket) -> dict[str, Any]:
    """Returns in a new process for each command, with its streams in place."""
    while True:
        asked, handed, *_rest = socket.recv_fds(asking, LARGEST, 4)
        if not asked:
            os._exit(0)
        if os.fork() == 0:
            break
        for descriptor in handed:
            os.close(descriptor)
        with suppress(ChildProcessError):  # none is left
            while os.waitpid(-1, os.WNOHANG) != (0, 0):
                pass
    asking.close()
    *streams, telling = handed
    pid = os.fork()
    if pid:  # whoever asked is told how it ends
        os.write(telling, f"{pid}\n".encode())
        _pid, status = os.waitpid(pid, 0)
        os.write(telling, f"{os.waitstatus_to_exitcode(status)}\n".encode())
        os._exit(0)
    for number, descriptor in enumerate(streams):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.close(telling)
    command: dict[str, Any] = json.loads(asked)
    return command


def _be_the_command() -> None:
    for name in IMPORTED:
        import_module(name)
    assert "grpc" not in sys.modules
    command = _next_command(socket.socket(fileno=int(sys.argv[1])))
    os.chdir(command["folder"])
    os.environ.clear()
    os.environ.update(command["env"])
    sys.path[0] = command["folder"]
    sys.argv[1:] = command["arguments"]
    import_module("tape.cli").main()


if __name__ == "__main__":
    _be_the_command()
