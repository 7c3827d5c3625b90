"""A webhook receiver in a process of its own, for killing: `python -m … PORT FILE`.

It appends each delivery to the file before it answers, so what it acknowledged outlives it.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

import orjson

from tests.conformance.broker import Received
from tests.servers.webhook import Delivery, WebhookReceiver


class ReceiverProcess:
    """Use with `with`; it keeps its port and its file over a kill."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._process: subprocess.Popen[str] | None = None
        self.port = 0

    def __enter__(self) -> "ReceiverProcess":
        self.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.kill()

    @property
    def target(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"

    def start(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, str(self.port), str(self._file)],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())

    def kill(self) -> None:
        """kill -9."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(30)
            assert self._process.stdout is not None
            self._process.stdout.close()
            self._process = None

    def received(self) -> list[Received]:
        written = self._file.read_bytes() if self._file.exists() else b""
        # The last line may be half written: it is not acknowledged yet.
        events = [orjson.loads(line) for line in written.split(b"\n")[:-1]]
        return [
            Received(event["id"], event["partitionkey"], event.get("tapeattempt", 1), b"")
            for event in events
        ]


def main(port: int, file: Path) -> None:
    out = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def keep(delivery: Delivery) -> None:
        os.write(out, delivery.body.replace(b"\n", b" ") + b"\n")

    with WebhookReceiver(port=port) as receiver:
        receiver.fail = keep
        print(receiver.port, flush=True)
        signal.sigwait({signal.SIGTERM, signal.SIGINT})


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
