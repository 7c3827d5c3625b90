"""Entries as lines of a file: whole, in order, and continued after whatever had ended it."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import tape
from tape.errors import BrokerUnavailable
from tape.model.entry import Entry
from tape.programs.file_sink import FileSink
from tape.reactors import run_journal_relay

ENTRY = Entry(
    1, "r", 1, "run", "/tape/run/runnable/a/u/s/r", '{\n"n":1}', 1, "", "", "", 5, "e1", "", "", "",
    "", "", 5, "",
)  # fmt: skip


def numbered(upto: int) -> list[Entry]:
    return [ENTRY._replace(global_seq=n, event_id=f"e{n}") for n in range(1, upto)]


async def written(path: Path, *entries: Entry) -> object:
    """What the sink found at the end of the file."""
    sink = FileSink(path)
    found = await sink.open()
    await sink.send(entries)
    await sink.close()
    return found and found["event_id"]


def records(path: Path) -> list[str]:
    return [json.loads(line)["event_id"] for line in path.read_text().splitlines()]


async def test_a_line_is_an_entry(tmp_path: Path) -> None:
    path = tmp_path / "events"
    assert (
        await written(path, ENTRY, ENTRY._replace(subject="/tape/x/\u202e", event_id="e2")) is None
    )
    first, second = path.read_text().splitlines()
    assert json.loads(first) == {
        **{k: v for k, v in ENTRY._asdict().items() if k != "payload_json"}, "payload": {"n": 1},
    }  # fmt: skip
    assert "\u202e" not in second
    assert await written(path, ENTRY._replace(event_id="e3")) == "e2"
    assert records(path) == ["e1", "e2", "e3"]


@pytest.mark.parametrize("cut", [1, 7, 20, 100, 240])
async def test_a_torn_line_is_cut_off(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "events"
    await written(path, *numbered(4))
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:cut])
    assert await written(path, ENTRY._replace(event_id="next")) == "e3"
    assert records(path) == ["e1", "e2", "e3", "next"]


@pytest.mark.parametrize("text", ["no line", "{}", "notes\nmore", '{"global_seq"\n', "[1]\n", "\n"])
async def test_what_others_wrote_stays(tmp_path: Path, text: str) -> None:
    path = tmp_path / "notes"
    path.write_text(text)
    assert await written(path, ENTRY) is None
    before, _, line = path.read_text().rstrip("\n").rpartition("\n")
    assert before == text.removesuffix("\n")
    assert json.loads(line)["event_id"] == "e1"


async def test_a_full_disk_leaves_no_half_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "events"
    sink, write = FileSink(path), os.write
    await sink.send(numbered(3))

    def full(file: int, lines: bytes) -> int:
        if len(lines) < 300:
            raise OSError(28, "No space left on device")
        return write(file, lines[:250])

    with monkeypatch.context() as patching:
        patching.setattr("tape.programs.file_sink.os.write", full)
        with pytest.raises(BrokerUnavailable, match="events: No space left on device"):
            await sink.send(numbered(3))
    assert records(path) == ["e1", "e2"]
    await sink.send([ENTRY._replace(event_id="e3")])
    await sink.close()
    assert records(path) == ["e1", "e2", "e3"]


def test_what_was_sent_survives_a_kill(tmp_path: Path) -> None:
    """Every entry of a `send` that has returned is there; at most one more line is torn."""
    code = """
import asyncio, sys
from tape.programs.file_sink import FileSink
from tests.integration.brokers.test_file_sink import ENTRY

async def main():
    sink = FileSink(sys.argv[1])
    n = 0
    while True:
        n += 3
        await sink.send([ENTRY._replace(global_seq=k, event_id=f"e{k}") for k in (n - 2, n - 1, n)])
        print(n, flush=True)

asyncio.run(main())
"""
    path = tmp_path / "events"
    with subprocess.Popen(
        [sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        last = 0
        while last < 300:
            last = int(process.stdout.readline())
        process.kill()
        last = int([str(last), *process.stdout.read().split("\n")[:-1]][-1])
    found = asyncio.run(written(path))
    assert records(path)[:last] == [f"e{n}" for n in range(1, last + 1)]
    assert found == records(path)[-1]


def test_the_relay_of_the_journal_sends_to_a_file(sqlite_url: str, tmp_path: Path) -> None:
    with tape.connect(sqlite_url) as client:
        for n in range(3):
            client.record("order.shipped", {"n": n}, entity_type="order", entity_id="7")
    path = tmp_path / "journal.jsonl"
    run_journal_relay(
        sqlite_url, sink=tape.sinks.FileSink(path), cursor_path=tmp_path / "cursor", live=False
    )
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["payload"] for line in lines if line["kind"] == "event"] == [
        {"n": n} for n in range(3)
    ]
