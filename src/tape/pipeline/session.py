"""A Spark session with what Tape's jobs rely on; local by default, a cluster's when given."""

import contextlib
import logging
import os
import re
import socket
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pyspark.java_gateway
from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # no py.typed in the wheel
from pyspark.errors import PySparkException, PySparkImportError
from pyspark.sql import SparkSession, is_remote

from tape.errors import InvalidArgument, SparkUnavailable
from tape.pipeline.java import find_java_home

log = logging.getLogger("tape.pipeline")

# They can be set in a session that is there already, a cluster's or a notebook's.
_NEEDED: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.python.filterPushdown.enabled": "true",
    # Of a key that is there twice the last counts, as it does for the server.
    "spark.sql.variant.allowDuplicateKeys": "true",
    # What is larger the JVM interprets for ever; Spark then makes smaller methods of it.
    "spark.sql.codegen.hugeMethodLimit": "8000",
}
_LOCAL: Final = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "8",
}
_PROGRESS: Final = "spark.ui.showConsoleProgress"
_LOG_LEVEL: Final = "spark.log.level"
_JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"
_LOG4J: Final = Path(__file__).with_name("log4j2.properties")
_MASTERS: Final = re.compile(
    r"local|local\[(\*|[1-9]\d*)(,\s*[1-9]\d*)?\]|local-cluster\[\s*\d+\s*,\s*\d+\s*,\s*\d+\s*\]"
    r"|yarn|spark://[^/\s]+|k8s://\S+"
)
_PORTS: Final = {"spark": "7077", "sc": "15002"}
REACH_S: Final = 5.0
_DEAF_TO_CTRL_C: Final = ("/bin/sh", "-c", 'trap "" INT; exec "$@"', "sh")
_gateway: Any = pyspark.java_gateway
KAFKA_PACKAGE: Final = "org.apache.spark:spark-sql-kafka-0-10_2.13:{version}"


def session(
    *,
    master: str = "",
    remote: str = "",
    app_name: str = "tape",
    packages: Sequence[str] = (),
    config: Mapping[str, str] | None = None,
    verbose: bool = False,
) -> SparkSession:
    """The session that is there, or a new one: on this machine, at a master, or by Spark Connect.

    `packages` are Maven coordinates. They, `app_name`, `config` and `verbose` count only for a
    session that is new. What is `verbose` logs warnings, too.
    """
    refuse_bad_address(master, remote)
    refuse_unreachable(master or remote)
    running = _running()
    if running is not None and (is_remote() or not remote):
        return prepared(running)
    # Workers must find the same Python and the same modules as this process.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(app_name)
    if remote:
        builder = builder.remote(remote)
    else:
        _bring_java()
        builder = builder.master(master or "local[*]")
        if not master or master.startswith("local"):
            builder = _configured(builder, _LOCAL)
        if not verbose:
            builder = _configured(builder, _quiet(config or {}))
        if packages:
            builder = builder.config("spark.jars.packages", ",".join(packages))
    builder = _configured(builder, {**_NEEDED, **(config or {})})
    try:
        with without_a_fork():
            spark = builder.getOrCreate()
    except (PySparkException, Py4JError, RuntimeError, OSError) as error:
        where = remote or master or "this machine"
        raise SparkUnavailable(f"Spark did not start on {where}: {_reason(error)}") from error
    return prepared(spark)


def _running() -> SparkSession | None:
    """The session of this process. A builder would set its options in that one, too."""
    try:
        running = SparkSession.active()
    except PySparkException:
        return None
    if is_remote():
        return running
    # Of a context that was stopped without its session, Spark has no public sign.
    return None if running.sparkContext._jsc is None else running  # noqa: SLF001


def refuse_bad_address(master: str, remote: str) -> None:
    """Refuse an address that Spark cannot mean; nobody is asked whether it is there."""
    if master and remote:
        raise InvalidArgument("give a master or a remote, not both", field="remote")
    if master and not _MASTERS.fullmatch(master):
        raise InvalidArgument(
            f"{master!r} is not a master; write local, local[4], spark://HOST:PORT, yarn or "
            "k8s://HOST:PORT", field="master",
        )  # fmt: skip
    if remote and not re.fullmatch(r"sc://[^/\s]+(/\S*)?", remote):
        raise InvalidArgument(f"{remote!r} is not sc://HOST:PORT", field="remote")


@contextlib.contextmanager
def silenced_java() -> Iterator[None]:
    """Whatever is started meanwhile has nowhere to talk to: Java greets whoever starts it.

    It does not keep the output open either, for a reader who waits for its end. If it cannot
    start, its last words are part of the reason.
    """
    before = [os.dup(1), os.dup(2)]
    with tempfile.TemporaryFile() as heard:
        sys.stdout.flush()
        os.dup2(heard.fileno(), 1)
        os.dup2(heard.fileno(), 2)
        try:
            yield
        except SparkUnavailable as fault:
            heard.seek(0)
            words = _last_words(heard.read().decode(errors="replace"))
            raise SparkUnavailable(f"{fault} ({words})" if words else str(fault)) from fault
        finally:
            for number, earlier in enumerate(before, start=1):
                os.dup2(earlier, number)
                os.close(earlier)


def _last_words(heard: str) -> str:
    """The last line that names an exception or an error, else the last; none of a stack trace."""
    lines = [line.strip() for line in heard.split("\n")]
    words = [line for line in lines if line and not line.startswith(("at ", "..."))]
    faults = [line for line in words if "Exception" in line or "Error" in line]
    return (faults or words or [""])[-1]


def refuse_unreachable(address: str) -> None:
    """Spark itself would try for a minute and then say that its context was stopped."""
    scheme, separator, rest = address.partition("://")
    if not separator or scheme not in _PORTS:
        return
    if faults := reached(rest.partition("/")[0], _PORTS[scheme]):
        raise SparkUnavailable(
            f"Spark at {address} cannot be reached: {faults}. Is it running, and is the address "
            "right? Without one, jobs run on this machine"
        )


def reached(places: str, default_port: str) -> str:
    """Why nobody answers at any of these HOST:PORT, with commas between them; empty if one does."""
    faults = []
    for place in places.split(","):
        host, _, port = place.rpartition(":") if ":" in place else (place, "", default_port)
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=REACH_S).close()
        except ValueError:
            faults.append(f"{place} is not HOST:PORT")
        except OSError as fault:
            faults.append(f"nobody answers on {place} ({fault})")
        else:
            return ""
    return "; ".join(faults)


def _reason(error: Exception) -> str:
    """The first line: what follows is Java's."""
    if isinstance(error, PySparkImportError):
        return f"{error}; pip install 'tape-bus[spark]' installs what it needs"
    lines = [line for line in str(error).splitlines() if line.strip(" :")]
    return " ".join(lines[:2])


def prepared(spark: SparkSession) -> SparkSession:
    """The session, with the settings on which Tape's results rely."""
    for name, value in _NEEDED.items():
        spark.conf.set(name, value)
    return spark


def _quiet(config: Mapping[str, str]) -> dict[str, str]:
    """Settings by which Java logs errors alone, from its start on, unless a file says otherwise."""
    if _JAVA_OPTIONS in config or os.environ.get("SPARK_CONF_DIR"):
        return {_PROGRESS: "false", _LOG_LEVEL: "ERROR"}
    # Not by the level, too: Spark would say that it sets it.
    return {
        _PROGRESS: "false",
        _JAVA_OPTIONS: f"-Dlog4j2.configurationFile={_LOG4J.as_uri()}",
    }


def _configured(builder: SparkSession.Builder, values: Mapping[str, str]) -> SparkSession.Builder:
    for name, value in values.items():
        builder = builder.config(name, value)
    return builder


def _bring_java() -> None:
    home = find_java_home()
    if home is not None:
        log.info("Spark runs on the Java of the wheel, in %s", home)
        os.environ["JAVA_HOME"] = str(home)
    # The command `python` of this environment, for tools that Spark starts by name.
    scripts = sysconfig.get_path("scripts")
    if scripts not in os.environ.get("PATH", "").split(os.pathsep):
        os.environ["PATH"] = scripts + os.pathsep + os.environ.get("PATH", "")


@contextlib.contextmanager
def without_a_fork() -> Iterator[None]:
    """Have a Java that PySpark starts meanwhile begin as a process of its own, without a fork.

    PySpark has Ctrl-C ignored by a function that runs in a copy of this process before it becomes
    Java. gRPC begins its threads again in such a copy, and they end it when they find their files
    closed (gRPC's issue 43055). A shell that ignores Ctrl-C and then becomes Java needs no copy.
    """
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
