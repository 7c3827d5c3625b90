"""A real standalone Spark cluster on loopback: a master and two workers, each a process of its own.

Executors on it have other processes and other working directories than the driver, which is what
a test wants of a cluster: nothing that the driver holds in memory or in its folder helps them.
"""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import pyspark

from tape.pipeline.java import find_java_home

WORKERS = 2
START_S = 90.0
QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_SPARK_HOME = Path(pyspark.__file__).parent


class Cluster(NamedTuple):
    """Where it is, what a driver's session needs to use it, and where its workers work."""

    master: str
    config: dict[str, str]
    folder: Path


@contextlib.contextmanager
def spark_cluster() -> Iterator[Cluster]:
    """Up with all its workers when it is handed out; ended, process by process, at the end."""
    port, ui_port = _free_port(), _free_port()
    master = f"spark://127.0.0.1:{port}"
    with TemporaryDirectory(prefix="tape-cluster-") as name, contextlib.ExitStack() as running:
        folder = Path(name)
        started = _start(
            running, folder, "master.Master", "--host", "127.0.0.1", "--port", str(port),
            "--webui-port", str(ui_port),
        )  # fmt: skip
        _wait_for(started, folder, "I have been elected leader")
        works = [folder / f"worker-{number}" for number in range(WORKERS)]
        workers = [_start_worker(running, work, master) for work in works]
        for worker, work in zip(workers, works, strict=True):
            _wait_for(worker, work, "Successfully registered with master")
        yield Cluster(master, _driver_config(), folder)


@contextlib.contextmanager
def spark_connect() -> Iterator[str]:
    """A server of Spark Connect with a local Spark behind it; its address."""
    port = _free_port()
    settings = {
        **_driver_config(),
        "spark.master": "local[2]",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.log.level": "INFO",
    }
    with TemporaryDirectory(prefix="tape-connect-") as name, contextlib.ExitStack() as running:
        conf = [part for item in settings.items() for part in ("--conf", "=".join(item))]
        server = "org.apache.spark.sql.connect.service.SparkConnectServer"
        started = _start(running, Path(name), "SparkSubmit", "--class", server, *conf, memory="1g")
        _wait_for(started, Path(name), "Spark Connect server started at")
        yield f"sc://127.0.0.1:{port}"


def _driver_config() -> dict[str, str]:
    return {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.executor.memory": "512m",
        "spark.executor.extraJavaOptions": QUICK_JAVA,
        "spark.executor.cores": "1",
        "spark.cores.max": str(WORKERS),
        "spark.sql.shuffle.partitions": str(WORKERS),
        "spark.executorEnv.PYSPARK_PYTHON": sys.executable,
    }


def _start_worker(
    running: contextlib.ExitStack, folder: Path, master: str
) -> "subprocess.Popen[bytes]":
    folder.mkdir()
    return _start(
        running, folder, "worker.Worker", "--host", "127.0.0.1", "--cores", "1", "--memory", "640m",
        "--work-dir", str(folder), "--webui-port", str(_free_port()), master,
    )  # fmt: skip


def _start(
    running: contextlib.ExitStack, folder: Path, kind: str, *arguments: str, memory: str = "256m"
) -> "subprocess.Popen[bytes]":
    home = find_java_home()
    environment = os.environ | {
        "SPARK_HOME": str(_SPARK_HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": memory,
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_NO_DAEMONIZE": "1",
    }
    if home is not None:
        environment["JAVA_HOME"] = str(home)
    log = running.enter_context((folder / "log").open("wb"))
    process = subprocess.Popen(
        [_SPARK_HOME / "bin" / "spark-class", f"org.apache.spark.deploy.{kind}", *arguments],
        cwd=folder, env=environment, stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
    )  # fmt: skip
    running.callback(_end, process)
    return process


def _end(process: "subprocess.Popen[bytes]") -> None:
    """With the executors it has started, which are in its own process group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _wait_for(process: "subprocess.Popen[bytes]", folder: Path, line: str) -> None:
    give_up = time.monotonic() + START_S
    while line not in (said := (folder / "log").read_text(errors="replace")):
        if process.poll() is not None or time.monotonic() > give_up:
            raise RuntimeError(f"Spark did not come up:\n{said}")
        time.sleep(0.05)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
