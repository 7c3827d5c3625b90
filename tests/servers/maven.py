"""Jars for tests: fetched by Maven once, then kept in the user's cache."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

RESOLVE_S = 300.0
_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>tape</groupId><artifactId>for-tests</artifactId><version>1</version>
  <packaging>pom</packaging>
  <dependencies>{dependencies}</dependencies>
</project>
"""
_DEPENDENCY = (
    "<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
    "<version>{version}</version>{rest}</dependency>"
)
_ALONE = (
    "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
)


class JarsUnavailable(RuntimeError):
    """Maven, or what it was to fetch, cannot be had here."""


class Coordinates(NamedTuple):
    """`alone`: without what it depends on itself."""

    group: str
    artifact: str
    version: str
    alone: bool = False


def fetched_jars(name: str, wanted: Sequence[Coordinates]) -> Path:
    """The folder with the jars; JarsUnavailable says why not."""
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tape"
    jars = root / name
    if not jars.is_dir():
        maven = shutil.which("mvn")
        if maven is None:
            raise JarsUnavailable("Maven (mvn) is not installed")
        root.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=root) as work:
            _resolve(maven, Path(work), wanted)
            # Renamed whole, so that a fetch that was cut off leaves nothing behind.
            if not jars.is_dir():
                (Path(work) / "jars").rename(jars)
    return jars


def _resolve(maven: str, work: Path, wanted: Sequence[Coordinates]) -> None:
    dependencies = "".join(
        _DEPENDENCY.format(**one._asdict(), rest=_ALONE if one.alone else "") for one in wanted
    )
    (work / "pom.xml").write_text(_POM.format(dependencies=dependencies))
    command = [maven, "-q", "-B", _COPY, "-DincludeScope=runtime", f"-DoutputDirectory={work}/jars"]
    try:
        done = subprocess.run(
            command, cwd=work, capture_output=True, text=True, check=False, timeout=RESOLVE_S
        )
    except subprocess.TimeoutExpired:
        raise JarsUnavailable(f"Maven did not answer within {RESOLVE_S:.0f} s") from None
    if done.returncode:
        raise JarsUnavailable("Maven could not fetch them: is a repository within reach?")
