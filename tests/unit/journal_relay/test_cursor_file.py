"""The cursor file: replaced whole, kept from a second relay, refused where it is something else."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tape.errors import InvalidArgument
from tape.journal_relay.cursor_file import CursorFile, OldCursor


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "relay.cursor"


def test_what_was_written_is_read(path: Path) -> None:
    with CursorFile(path) as cursor:
        assert cursor.read() is None
        cursor.write(8421)
        assert cursor.read() == 8421
    assert path.read_text() == '{"last_global_seq":8421}\n'
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert {found.name for found in path.parent.iterdir()} == {path.name, f"{path.name}.lock"}


def test_the_old_shape_is_read(path: Path) -> None:
    path.write_text('{"from_ts_ms": 17, "last_run_id": "r", "last_seq": 3}')
    with CursorFile(path) as cursor:
        assert cursor.read() == OldCursor(17, "r", 3)
        cursor.write(5)
        assert cursor.read() == 5


@pytest.mark.parametrize(
    "text",
    [
        "", "{", "[]", "7", "null", "{}", '{"last_global_seq": -1}', '{"last_global_seq": "7"}',
        '{"last_global_seq": true}', '{"last_global_seq": 9223372036854775808}',
        '{"last_global_seq": 1.5}', '{"last_global_seq": 1, "x": 2}', '{"from_ts_ms": 1}',
        '{"from_ts_ms": 1, "last_run_id": 2, "last_seq": 3}', '{"name": "my-package"}', "\xff",
    ],
)  # fmt: skip
def test_a_file_that_is_no_cursor_is_refused_and_kept(path: Path, text: str) -> None:
    path.write_bytes(text.encode("latin-1"))
    with (
        CursorFile(path) as cursor,
        pytest.raises(InvalidArgument, match=r"cursor_path: .* is not"),
    ):
        cursor.read()
    assert path.read_bytes() == text.encode("latin-1")


@settings(deadline=None)  # a busy disk is not what this looks for
@given(text=st.binary(max_size=200))
def test_no_content_is_taken_for_a_position(
    text: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("cursor") / "file"
    path.write_bytes(text)
    with CursorFile(path) as cursor, pytest.raises(InvalidArgument):
        cursor.read()


def test_a_second_relay_is_refused(path: Path) -> None:
    with CursorFile(path), pytest.raises(InvalidArgument, match="another relay is working"):
        CursorFile(path).__enter__()
    with CursorFile(path) as cursor:
        assert cursor.read() is None


def test_one_that_did_not_settle_is_noticed(path: Path) -> None:
    with CursorFile(path) as cursor:
        assert not cursor.interrupted
    with CursorFile(path) as cursor:
        assert cursor.interrupted
        cursor.settle()
    with CursorFile(path) as cursor:
        assert not cursor.interrupted


def test_the_lock_goes_with_its_holder(path: Path) -> None:
    code = f"""
import os, signal
from pathlib import Path
from tape.journal_relay.cursor_file import CursorFile
CursorFile(Path({str(path)!r})).__enter__().write(3)
os.kill(os.getpid(), signal.SIGKILL)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -9
    with CursorFile(path) as cursor:
        assert cursor.interrupted
        assert cursor.read() == 3


def test_a_write_that_is_cut_off_leaves_the_old_position(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class CutOff(Exception):
        pass

    def cut_off(*_arguments: object) -> None:
        raise CutOff

    with CursorFile(path) as cursor:
        cursor.write(1)
        for step in ("write", "fsync"):
            with monkeypatch.context() as patch:
                patch.setattr(os, step, cut_off)
                with pytest.raises(CutOff):
                    cursor.write(2)
            assert cursor.read() == 1
        cursor.write(3)
        assert cursor.read() == 3


def test_a_symbolic_link_stays_one(path: Path) -> None:
    real = path.with_name("real")
    path.symlink_to(real)
    with CursorFile(path) as cursor:
        cursor.write(4)
    assert path.is_symlink()
    assert real.read_text() == '{"last_global_seq":4}\n'


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        CursorFile(tmp_path / "none" / "cursor").__enter__()
