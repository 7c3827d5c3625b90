"""What is particular to files: they grow, are replaced, cut off, and locked."""

import asyncio
import errno
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tape.errors import MessageRefused, SourceRefused, SourceUnavailable
from tape.model.message import SourceMessage, body_json
from tape.ports.source import Source
from tape.settings import Limits
from tape.sources import files_folder, files_lines, files_reading, files_state
from tape.sources.files import FileSource
from tape.sources.files_folder import FolderReader
from tape.sources.files_identity import FileIdentity
from tests.conformance.source import (
    BOUND_S,
    ack,
    bodies,
    by_place,
    fetch_count,
    numbered,
    opened,
)
from tests.integration.docs.pages import ROOT
from tests.integration.sources.far_sides import FileSide

STATE = ".tape/read.jsonl"


@pytest.fixture
def side(tmp_path: Path) -> FileSide:
    return FileSide(tmp_path)


def write(side: FileSide, name: str, *lines: str, end: str = "\n") -> Path:
    path = side.folder / name
    path.write_text("\n".join(lines) + end)
    return path


def texts(received: Any) -> list[str]:
    return [body.decode() for body in bodies(received)]


async def nothing(source: Source) -> bool:
    return await source.fetch(100, 0.3) == []


async def test_a_line_is_a_message(side: FileSide) -> None:
    """A landed one as it says, any other as its own body."""
    path = write(
        side, "a.jsonl",
        '{"headers": {"Kind": ["a", "b"]}, "key": "k", "timestamp_ms": 7, "position": "p/1", '
        '"body": {"n": 1}}',
        '{"n": 2}', "", "   ", "no JSON", '{"body": 1, "more": 2}', '{"body": "\r"}\r',
        '{"timestamp_ms": 9223372036854775808, "body": "x"}',
    )  # fmt: skip
    async with opened(side) as source:
        first, second, third, fourth, fifth, last = await fetch_count(source, 6)
        message = first.message
        assert (message.body, message.key, message.timestamp_ms) == (b'{"n":1}', "k", 7)
        assert message.headers == (("Kind", b"a"), ("Kind", b"b"))
        assert message.message_id == "p/1"
        assert re.fullmatch(rf"file{path}@[0-9a-f]{{16}}/1", message.place)
        assert texts([second, third, fourth]) == ['{"n": 2}', "no JSON", '{"body": 1, "more": 2}']
        assert third.message.place == message.place.removesuffix("1") + "5"
        assert second.message.timestamp_ms == path.stat().st_mtime_ns // 1_000_000
        assert last.message.body == b'{"timestamp_ms": 9223372036854775808, "body": "x"}'
        assert last.message.timestamp_ms == second.message.timestamp_ms
        assert fifth.message.body == b'{"body": "' + b"\r" + b'"}'  # which is no JSON
        await ack(source, [first, second, third, fourth, fifth, last])
        assert await source.backlog() == 0


async def test_a_line_that_nests_too_deeply_is_its_own_body(side: FileSide) -> None:
    """And becomes a dead letter by the rules of bodies; it holds up nothing."""
    deep = "[" * 1010 + "]" * 1010
    lines = [f'{{"body": {deep}}}', f'{{"body": 1, "key": {deep}}}', '{"body": 2}']
    write(side, "a.jsonl", *lines)
    async with opened(side) as source:
        found = await fetch_count(source, 3)
        assert texts(found) == [*lines[:2], "2"]
        for each in found[:2]:
            with pytest.raises(MessageRefused) as refusal:
                body_json(each.message.body, Limits())
            assert refusal.value.because == "too_deep"
        await ack(source, found)
        assert await source.backlog() == 0
        assert await source.passed() == {found[0].message.origin: 3}


async def test_a_line_that_could_not_be_read_is_read_again(
    side: FileSide, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(side, "a.jsonl", "1", "2", "3")
    line_message = files_lines.line_message
    faults = [OSError(errno.EIO, "bad disk"), RuntimeError("a fault of the program")]

    def at_fault(file: int, line: files_lines.FileLine, *told: Any) -> SourceMessage:
        if line.number == 2 and faults:
            raise faults.pop()
        return line_message(file, line, *told)

    monkeypatch.setattr(files_reading, "line_message", at_fault)
    async with opened(side) as source:
        with pytest.raises(RuntimeError, match="a fault of the program"):
            await source.fetch(10, 0)
        assert texts(await source.fetch(10, 0)) == ["1"]
        assert "bad disk" in source.warnings()[0]
        assert texts(await fetch_count(source, 2)) == ["2", "3"]


async def test_files_are_read_in_the_order_of_their_names(side: FileSide) -> None:
    for name in ("b.jsonl", "a.jsonl", "c.txt", "d/e.jsonl"):
        (side.folder / name).parent.mkdir(exist_ok=True)
        write(side, name, f'"{name} 1"', f'"{name} 2"')
    async with opened(side) as source:
        found = await fetch_count(source, 4)
        assert texts(found) == ['"a.jsonl 1"', '"a.jsonl 2"', '"b.jsonl 1"', '"b.jsonl 2"']


@pytest.mark.parametrize("pattern", ["**/*", "**"])
async def test_files_of_all_folders_in_it(side: FileSide, pattern: str) -> None:
    for name in ("a.jsonl", "b.jsonl", "c.txt", "d/e.jsonl"):
        (side.folder / name).parent.mkdir(exist_ok=True)
        write(side, name, f'"{name} 1"', f'"{name} 2"')
    source = await side.open(pattern=pattern)
    assert len(await fetch_count(source, 8)) == 8  # and nothing of what is remembered
    assert await nothing(source)
    await source.close()


@pytest.mark.parametrize("pattern", ["**.jsonl", "../*.jsonl", "/x.jsonl", "a/**b"])
async def test_a_pattern_that_cannot_be_looked_for_is_refused(side: FileSide, pattern: str) -> None:
    with pytest.raises(
        SourceRefused, match=r"^pattern: .* is not a pattern of files in the folder"
    ):
        await side.open(pattern=pattern)


async def test_files_grow_and_only_complete_lines_count(side: FileSide) -> None:
    path = write(side, "a.jsonl", "1", "2", "thr", end="")
    async with opened(side) as source:
        await ack(source, await fetch_count(source, 2))
        assert await nothing(source)
        assert await source.backlog() == 0
        with path.open("a") as file:
            file.write("ee\n4")
        (third,) = await fetch_count(source, 1)
        assert (third.message.body, third.message.position) == (b"three", "3")
    with path.open("a") as file:
        file.write("\n")
    async with opened(side) as source:
        assert texts(await fetch_count(source, 2)) == ["three", "4"]


def renamed_over(path: Path, text: str) -> None:
    beside = path.with_suffix(".new")
    beside.write_text(text)
    beside.replace(path)


def deleted_and_made(path: Path, text: str) -> None:
    path.unlink()
    path.write_text(text)


def written_over(path: Path, text: str) -> None:
    path.write_text(text)  # the same inode


MIDDLE = ["1", "2", "X", "4"]


@pytest.mark.parametrize("while_read", [True, False])
@pytest.mark.parametrize(
    ("replace", "lines"),
    [
        (replace, lines)
        for replace in (renamed_over, deleted_and_made, written_over)
        for lines in (["x", "y"], ["1", "other", "lines", "and", "more"], MIDDLE)
        # What is written over where it was, but for lines in the middle, nobody can see.
        if lines is not MIDDLE or replace is not written_over
    ],
)
async def test_a_file_that_is_replaced_is_another_one(
    side: FileSide, replace: Callable[[Path, str], None], while_read: bool, lines: list[str]
) -> None:
    """Its first lines may be those of the one before."""
    path = write(side, "a.jsonl", "1", "2", "3", "4")
    source = await side.open()
    first = await fetch_count(source, 4)
    await ack(source, first[:3])
    if not while_read:
        await source.close()
    replace(path, "\n".join(lines) + "\n")
    if not while_read:
        source = await side.open()
    found = await fetch_count(source, len(lines))
    assert texts(found) == lines
    assert not by_place(found).keys() & by_place(first).keys()
    await ack(source, first)
    await ack(source, found[:1])
    await source.close()
    replace(path, "once more\n")
    async with opened(side) as source:
        (once_more,) = await fetch_count(source, 1)
        assert texts([once_more]) == ["once more"]
        assert once_more.message.place not in by_place([*first, *found])


async def test_a_name_that_was_gone_for_a_while(side: FileSide) -> None:
    places: set[str] = set()
    for number in range(3):
        path = write(side, "a.jsonl", "same")
        async with opened(side) as source:
            found = await fetch_count(source, 1)
            await ack(source, found)
            places |= by_place(found).keys()
            path.unlink()
            assert await nothing(source)
        assert len(places) == number + 1


async def read_through(side: FileSide) -> dict[str, bytes]:
    async with opened(side) as source:
        found = await fetch_count(source, 2)
        await ack(source, found)
        return by_place(found)


async def test_files_of_a_folder_that_was_made_again_are_others(side: FileSide) -> None:
    """Also if their lines are those of the files before them."""
    write(side, "a.jsonl", "same", "2")
    first = await read_through(side)
    shutil.rmtree(side.folder)
    side.folder.mkdir()
    write(side, "a.jsonl", "same", "2")
    assert not (await read_through(side)).keys() & first.keys()


@pytest.mark.parametrize("lost", [STATE, ".tape"])
async def test_a_folder_whose_state_is_lost_has_its_places_still(side: FileSide, lost: str) -> None:
    """So none of its messages becomes a second run, whichever file had the name before."""
    for text in ("of a file before", "1"):
        renamed_over(side.folder / "a.jsonl", f"{text}\n2\n")
        first = await read_through(side)
    gone = side.folder / lost
    gone.unlink() if gone.is_file() else shutil.rmtree(gone)
    assert await read_through(side) == first


async def test_a_file_that_was_taken_away_and_comes_back_has_its_places_still(
    side: FileSide,
) -> None:
    path = write(side, "a.jsonl", "1", "2")
    first = await read_through(side)
    away = path.rename(path.with_suffix(".away"))
    write(side, "a.jsonl", "3", "4")
    assert not (await read_through(side)).keys() & first.keys()
    away.replace(path)
    assert await read_through(side) == first


async def test_where_nobody_says_when_a_file_was_made_its_generations_are_counted(
    side: FileSide, monkeypatch: pytest.MonkeyPatch
) -> None:
    def not_told(file: int) -> FileIdentity:
        return FileIdentity(os.fstat(file).st_ino, 0)

    monkeypatch.setattr(files_reading, "identity_of", not_told)
    places: set[str] = set()
    for number in range(3):
        path = write(side, "a.jsonl", "same", str(number))
        places |= (await read_through(side)).keys()
        path.unlink()
    assert len(places) == 6


async def test_what_is_acknowledged_is_remembered_line_by_line(side: FileSide) -> None:
    write(side, "a.jsonl", *map(str, range(10)))
    async with opened(side) as source:
        found = await fetch_count(source, 10)
        await ack(source, [found[n] for n in (0, 1, 4, 5, 8)])
        assert await source.backlog() == 5
        assert [*(await source.passed()).values()] == [2]
    last = json.loads((side.folder / STATE).read_text().splitlines()[-1])
    assert (last["lines"], last["done"]) == (2, [[5, 6], [9, 9]])
    async with opened(side) as source:
        again = await fetch_count(source, 5)
        assert texts(again) == ["2", "3", "6", "7", "9"]
        await ack(source, again)
        assert await source.backlog() == 0
    async with opened(side) as source:
        assert await nothing(source)


@pytest.mark.parametrize("cut", range(1, 200, 13))
async def test_a_state_that_was_cut_off(side: FileSide, cut: int) -> None:
    """As by a crash: what was written last may be missing, and then comes again."""
    write(side, "a.jsonl", *map(str, range(6)))
    async with opened(side) as source:
        found = await fetch_count(source, 6)
        await ack(source, found[:2])
        await ack(source, found[2:4])
    state = side.folder / STATE
    text = state.read_bytes()
    state.write_bytes(text[:-cut])
    async with opened(side) as source:
        again = await fetch_count(source, 2)
        assert by_place(again).keys() <= by_place(found).keys()
        while len(again) < 6 and (more := await source.fetch(10, 0.3)):
            again += more
        assert texts(again)[-2:] == ["4", "5"]


async def test_a_state_of_somebody_else_is_refused(side: FileSide) -> None:
    write(side, "a.jsonl", "1")
    (side.folder / ".tape").mkdir()
    for text in ("not a state\n", '{"name": 1}\n', "[]\n", '{"done": [1]}\n'):
        (side.folder / STATE).write_text(text)
        with pytest.raises(SourceRefused, match=r"read\.jsonl line 1 is not a reader's"):
            await side.open()
        assert (side.folder / STATE).read_text() == text


async def test_the_state_is_written_anew_when_much_is_superseded(
    side: FileSide, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files_state, "COMPACT_LINES", 10)
    write(side, "a.jsonl", *map(str, range(50)))
    write(side, "b.jsonl", "b")
    async with opened(side) as source:
        for received in await fetch_count(source, 51):
            await ack(source, [received])
        assert len((side.folder / STATE).read_text().splitlines()) <= 15
    async with opened(side) as source:
        assert await nothing(source)
        assert await source.backlog() == 0


async def test_a_disk_that_does_not_take_it(
    side: FileSide, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(side, "a.jsonl", "1", "2", "3")

    def full(*_args: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    async with opened(side) as source:
        found = await fetch_count(source, 3)
        with monkeypatch.context() as broken:
            broken.setattr(files_state, "write_all", full)
            await ack(source, found[:2])  # does not fail
            with pytest.raises(SourceUnavailable, match="No space left on device") as away:
                await source.fetch(1, 0.1)
            assert away.value.at == str(side.folder)
        assert await source.fetch(100, 1.0) == []  # after a pause; and now it is remembered
    async with opened(side) as source:
        assert texts(await fetch_count(source, 1)) == ["3"]


async def test_a_folder_that_nothing_can_be_kept_in(side: FileSide) -> None:
    if os.geteuid() == 0:
        (side.folder / ".tape").write_text("a file")
        with pytest.raises(SourceUnavailable):
            await side.open()
        return
    side.folder.chmod(0o500)
    with pytest.raises(SourceRefused, match="this process may not write there"):
        await side.open()


async def test_lines_that_are_too_long_are_cut(
    side: FileSide, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files_lines, "LONGEST_LINE", 1_000)
    monkeypatch.setattr(files_lines, "CHUNK", 300)
    write(side, "a.jsonl", "x" * 5_000, "short", "y" * 1_001, "z" * 1_000)
    async with opened(side) as source:
        found = await fetch_count(source, 4)
        assert texts(found) == ["x" * 1_000, "short", "y" * 1_000, "z" * 1_000]
        await ack(source, found)
    async with opened(side) as source:
        assert await nothing(source)


async def test_no_more_than_so_many_lines_behind_one(
    side: FileSide, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files_reading, "MOST_BEHIND", 20)
    write(side, "a.jsonl", *map(str, range(50)))
    async with opened(side) as source:
        found = await fetch_count(source, 20)
        await ack(source, found[1:])
        assert await nothing(source)
        await ack(source, found[:1])
        found += await fetch_count(source, 20)
        await ack(source, found)
        found += await fetch_count(source, 10)
        assert texts(found) == [str(number) for number in range(50)]


async def test_one_reader_at_a_time_over_processes(side: FileSide) -> None:
    write(side, "a.jsonl", *map(str, range(5)))
    program = (
        "import asyncio, sys\n"
        "from tape.model.subscription_spec import SourceKind, SourceSpec\n"
        "from tape.sources.files import open_files\n"
        "async def hold():\n"
        "    source = await open_files(SourceSpec(SourceKind.FILE, folder=sys.argv[1]), name='x')\n"
        "    print(len(await source.fetch(10, 5)), flush=True)\n"
        "    await asyncio.sleep(600)\n"
        "asyncio.run(hold())\n"
    )
    holder = start(program, str(side.folder))
    try:
        assert holder.stdout is not None
        assert await asyncio.to_thread(holder.stdout.readline) == b"5\n"
        async with opened(side) as source:
            assert await nothing(source)
            assert await source.backlog() is None
            assert "another reader has the folder" in source.warnings()[0]
            holder.kill()
            async with asyncio.timeout(BOUND_S):
                assert texts(await fetch_count(source, 5)) == ["0", "1", "2", "3", "4"]
            assert source.warnings() == []
    finally:
        holder.kill()
        holder.wait(30)
        assert holder.stdout is not None
        holder.stdout.close()


def start(program: str, *args: str) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [sys.executable, "-c", program, *args], stdout=subprocess.PIPE, cwd=ROOT
    )


async def test_what_cannot_be_read_is_told_of_and_holds_nobody_up(
    side: FileSide, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(side, "a.jsonl", "1")
    write(side, "b.jsonl", "2")
    real = os.open

    def opening(path: Any, *args: Any, **kwargs: Any) -> int:
        if str(path).endswith("a.jsonl"):
            raise PermissionError(errno.EACCES, "Permission denied")
        return real(path, *args, **kwargs)

    async with opened(side) as source:
        with monkeypatch.context() as broken:
            broken.setattr(os, "open", opening)
            assert texts(await fetch_count(source, 1)) == ["2"]
            assert "a.jsonl cannot be read: Permission denied" in source.warnings()[0]
        assert texts(await fetch_count(source, 1)) == ["1"]
        assert source.warnings() == []


async def test_nothing_of_the_files_is_changed(side: FileSide) -> None:
    await side.send(numbered(20))
    path = side.folder / "a.jsonl"
    before = path.read_bytes(), path.stat().st_mtime_ns
    async with opened(side) as source:
        assert isinstance(source, FileSource)
        await ack(source, await fetch_count(source, 20))
    assert (path.read_bytes(), path.stat().st_mtime_ns) == before
    assert {each.name for each in side.folder.iterdir()} == {".tape", "a.jsonl"}


async def test_counting_long_files_holds_nothing_up(
    side: FileSide, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It goes on where it has stopped, and knows what was read before."""
    monkeypatch.setattr(files_folder, "COUNT_S", 0.0)
    monkeypatch.setattr(files_folder, "CHUNK", 1 << 10)
    write(side, "a.jsonl", *(f'{{"n": {n}}}' for n in range(1_000)))
    write(side, "b.jsonl", *(f'{{"n": {n}}}' for n in range(1_000)))
    async with opened(side) as source:
        calls = 0
        while (waiting := await source.backlog()) is None:
            calls += 1
            assert calls < 50
        assert (waiting, calls > 10) == (2_000, True)
        await ack(source, await fetch_count(source, 1_500))
    async with opened(side) as source:
        calls = 0
        while (waiting := await source.backlog()) is None:
            calls += 1
        assert (waiting, calls < 8) == (500, True)


async def test_a_close_that_nobody_waits_for_lets_go_of_the_folder(side: FileSide) -> None:
    write(side, "a.jsonl", "1")
    source = await side.open()
    assert isinstance(source, FileSource)
    let_go_on = threading.Event()
    source._thread.submit(let_go_on.wait)  # what takes long
    closing = asyncio.create_task(source.close())
    await asyncio.sleep(0)
    closing.cancel()
    await asyncio.gather(closing, return_exceptions=True)
    let_go_on.set()
    async with opened(side) as other:
        assert texts(await fetch_count(other, 1)) == ["1"]


async def test_files_that_are_read_are_not_opened_again(
    side: FileSide, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        write(side, f"{number}.jsonl", "1", "2")
    opened_files: list[Path] = []
    really = files_folder._opened

    def noting(path: Path) -> Any:
        opened_files.append(path)
        return really(path)

    monkeypatch.setattr(files_folder, "_opened", noting)
    async with opened(side) as source:
        await ack(source, await fetch_count(source, 10))
        assert await nothing(source)  # and now each is known to be read
        opened_files.clear()
        assert await nothing(source)
        assert not opened_files
        grown = side.folder / "3.jsonl"
        grown.write_text("1\n2\n3\n")
        assert texts(await fetch_count(source, 1)) == ["3"]
        assert {*opened_files} == {grown}


async def test_a_folder_that_cannot_be_read_is_tried_less_and_less_often(
    side: FileSide, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(side, "a.jsonl", "1")
    tries = 0

    def failing(_reader: FolderReader, _most: int) -> Any:
        nonlocal tries
        tries += 1
        raise OSError(errno.EIO, "Input/output error")

    async with opened(side) as source:
        began = time.monotonic()
        with monkeypatch.context() as patching:
            patching.setattr(FolderReader, "take", failing)
            for _ in range(10):
                with pytest.raises(SourceUnavailable, match="Input/output error"):
                    await source.fetch(10, 0.05)
        # A pause of half a second, or up to a fifth less, which doubles.
        assert 0.4 * (2 ** (tries - 1) - 1) <= time.monotonic() - began
        async with asyncio.timeout(BOUND_S):
            while True:
                try:
                    assert texts(await source.fetch(10, 0.5)) == ["1"]
                except SourceUnavailable:
                    continue
                break


async def test_a_file_that_is_renamed_is_what_the_page_says(side: FileSide) -> None:
    """Another file, where the pattern takes the new name; else what was not fetched is gone."""
    write(side, "a.jsonl", "1", "2")
    write(side, "b.jsonl", "3")
    async with opened(side) as source:
        first = await fetch_count(source, 3)
        await ack(source, first)
        with (side.folder / "b.jsonl").open("a") as file:
            file.write("4\n")
        (side.folder / "a.jsonl").rename(side.folder / "a-1.jsonl")
        (side.folder / "b.jsonl").rename(side.folder / "b.jsonl.1")
        again = await fetch_count(source, 2)
        assert texts(again) == ["1", "2"]
        assert not by_place(again).keys() & by_place(first).keys()
        await ack(source, again)
        assert await nothing(source)
