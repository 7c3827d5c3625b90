"""Google's Pub/Sub emulator for tests, where google-cloud-sdk has it. It keeps nothing on disk."""

import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path

from tests.servers.ports import await_port, free_port, start_on_free_port

START_S = 60.0
_INSTALLS = ("/usr/lib/google-cloud-sdk", "/opt/google-cloud-sdk", "/usr/local/google-cloud-sdk")


def emulator_jar() -> Path | None:
    """The emulator, None where it is not installed."""
    for install in (*_beside_gcloud(), *map(Path, _INSTALLS), Path.home() / "google-cloud-sdk"):
        found = sorted((install / "platform/pubsub-emulator/lib").glob("*.jar"))
        if found:
            return found[-1]
    return None


def why_no_emulator() -> str:
    """Empty where it can be started."""
    if emulator_jar() is None:
        return "the Pub/Sub emulator of google-cloud-sdk is not installed"
    return "" if shutil.which("java") else "the Pub/Sub emulator needs Java"


class PubSubEmulator:
    """Start with `with PubSubEmulator() as emulator:`, and set PUBSUB_EMULATOR_HOST to `host`."""

    def __init__(self) -> None:
        jar, java = emulator_jar(), shutil.which("java")
        if jar is None or java is None:
            raise RuntimeError(why_no_emulator())
        self._jar, self._java = jar, java
        self._folder = Path(tempfile.mkdtemp(prefix="tape-pubsub-"))
        self._process: subprocess.Popen[bytes] | None = None
        self.port = free_port()

    def __enter__(self) -> "PubSubEmulator":
        start_on_free_port(self)
        return self

    def __exit__(self, *_error: object) -> None:
        self.kill()
        shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start on the same port, nothing if it runs; after a kill no topic is left."""
        if self._process is not None:
            return
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [self._java, "-Xmx256m", "-XX:TieredStopAtLevel=1", "-jar", str(self._jar),
                 "--host=127.0.0.1", f"--port={self.port}"],
                stdout=log, stderr=log,
            )  # fmt: skip
        await_port(self.port, self._process, START_S)

    def pause(self) -> None:
        """It takes connections and bytes, and answers nothing."""
        if self._process is not None:
            self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """kill -9."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait(30)
            self._process = None


def _beside_gcloud() -> Iterable[Path]:
    gcloud = shutil.which("gcloud")
    return [Path(gcloud).resolve().parents[1]] if gcloud else []
