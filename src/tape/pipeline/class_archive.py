"""Keeps Spark's classes as Java has loaded and verified them: Spark then starts in half the time.

Most of what a short job takes is Java loading some 19,000 classes. Java can write those it has
loaded to an archive when it exits (class data sharing, JEP 350), and a later Java of the same kind
maps them into its memory. Writing takes as long as the job itself, after the job, so it is left to
the second run: who runs one job in a container that is thrown away has nothing of it.

The archive lies in the user's cache, 160 MB for a version of Java and of Spark. Java ignores one
that does not fit it. It writes an archive's header last, so one whose writing was cut off begins
with zeros.
"""

import contextlib
import hashlib
import os
import subprocess
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Final

KEPT_S: Final = 30 * 24 * 3600
"""An archive that nobody has used for so long goes."""
_QUIET: Final = "-Xlog:disable"
"""Java's remarks on which classes it did not archive."""


def archive_options(java: Path, cache: Path) -> str:
    """Options for a Java that uses the archive, or in a second run writes it at its end."""
    if any(" " in str(path) for path in (java, cache)):
        return ""  # options are taken apart at spaces
    try:
        cache.mkdir(parents=True, exist_ok=True)
        archive = cache / f"spark-classes-{_digest(java, 'pyspark')}.jsa"
        is_whole, seen = _is_whole(archive), archive.with_suffix(".seen")
        if not is_whole and not seen.exists():
            seen.touch()
            return ""
        below = _archive_of_java(java, cache)
        if is_whole:
            os.utime(archive)
            mapped = f"{below}:{archive}" if below else str(archive)
            return f"{_QUIET} -XX:SharedArchiveFile={mapped}"
        _remove_unused(cache)
    except (OSError, subprocess.SubprocessError):
        return ""  # a cache that cannot be written, or a Java that cannot do it
    base = f"-XX:SharedArchiveFile={below} " if below else ""
    return f"{_QUIET} {base}-XX:ArchiveClassesAtExit={archive}"


def _archive_of_java(java: Path, cache: Path) -> Path | None:
    """An archive of Java's own classes, which ours extends; None if Java has it where it looks.

    The Java that comes as a wheel has none.
    """
    if Path(java.parent.parent, "lib", "server", "classes.jsa").is_file():
        return None
    archive = cache / f"java-classes-{_digest(java)}.jsa"
    if not _is_whole(archive):
        subprocess.run(  # noqa: S603 - the java that Spark itself would start
            [java, "-Xshare:dump", _QUIET, f"-XX:SharedArchiveFile={archive}"],
            capture_output=True, check=True, timeout=60,
        )  # fmt: skip
    os.utime(archive)
    return archive


def _digest(java: Path, *packages: str) -> str:
    """Which Java and which packages an archive is made for; either may be replaced in its place."""
    homes = [Path(spec.origin) for name in packages if (spec := find_spec(name)) and spec.origin]
    said = [f"{path} {path.stat().st_mtime_ns}" for path in (java, *homes)]
    return hashlib.sha256("\n".join(said).encode()).hexdigest()[:12]


def _is_whole(archive: Path) -> bool:
    try:
        with archive.open("rb") as file:
            return any(file.read(4))
    except FileNotFoundError:
        return False


def _remove_unused(cache: Path) -> None:
    for file in cache.glob("*-classes-*"):
        with contextlib.suppress(FileNotFoundError):  # somebody else was quicker
            if file.stat().st_mtime < time.time() - KEPT_S:
                file.unlink()
