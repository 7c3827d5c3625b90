"""Recording and tailing through the command, in process and through a server alike."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.cli.command import start, tape
from tests.servers.tape_server import ServerProcess


@pytest.fixture(params=["sqlite", "migrated_postgres", "server"])
def where(request: pytest.FixtureRequest, sqlite_url: str) -> Iterator[list[str]]:
    """The options that name the journal."""
    if request.param != "server":
        yield ["--store", request.getfixturevalue(f"{request.param}_url")]
        return
    with ServerProcess(sqlite_url) as server:
        yield ["--url", server.url]


def _without_progress(text: str) -> str:
    """What was told besides how far it is, which on busy cores comes now and then."""
    lines = text.splitlines(keepends=True)
    return "".join(line for line in lines if not line.startswith("… "))


def _lines(count: int, bad: int = 0) -> str:
    events = [{"event_type": "tick", "payload": {"n": n}, "idempotency_key": f"k{n}"}
              for n in range(1, count + 1)]  # fmt: skip
    texts = [json.dumps(event) for event in events]
    if bad:
        texts[bad - 1] = '{"event_type": "", "payload": 1}'
    return "\n".join(texts)


def test_an_event_there_and_back(where: list[str], tmp_path: Path) -> None:
    first = tape(
        "record", "order.placed", "--entity", "order/7",
        "--payload", '{"big": 12345678901234567890123}',
        "--key", "k", "--caused-by", "c", "--source", "s", "--json", *where, folder=tmp_path,
    )  # fmt: skip
    again = tape("record", "order.placed", "--key", "k", "--json", *where, folder=tmp_path)
    assert (first.code, first.records[0]["duplicate"]) == (0, False)
    assert again.records[0] == first.records[0] | {"duplicate": True}
    tail = tape("tail", "--no-follow", "--json", *where, folder=tmp_path)
    assert tail.err == ""
    (entry,) = tail.records
    assert entry["subject"] == "/tape/event/recorded/order.placed/order/7"
    assert entry["payload"] == {"big": 12345678901234567890123}
    assert (entry["caused_by"], entry["source"], entry["idempotency_key"]) == ("c", "s", "k")


def test_a_batch_in_several_requests(where: list[str], tmp_path: Path) -> None:
    done = tape("record", "--batch", "-", "--json", *where, folder=tmp_path, stdin=_lines(2_500))
    assert (done.code, _without_progress(done.err)) == (0, "")
    assert [record["line"] for record in done.records] == list(range(1, 2_501))
    places = [record["global_seq"] for record in done.records]
    assert places == sorted(set(places))


def test_a_bad_line_is_named_and_takes_its_request_along(where: list[str], tmp_path: Path) -> None:
    text = _lines(2_500, bad=1_700)
    done = tape("record", "--batch", "-", *where, folder=tmp_path, stdin=text)
    assert done.code == 2
    assert _without_progress(done.err).startswith("error: line 1700: event_type")
    assert "lines up to 1000 are recorded" in done.err
    tail = tape("tail", "--no-follow", "--json", *where, folder=tmp_path)
    assert [record["payload"]["n"] for record in tail.records] == list(range(1, 1_001))


def test_what_no_predicate_decides_is_counted(where: list[str], tmp_path: Path) -> None:
    for payload in ('{"n": 1}', '{"n": 3}', "null"):
        tape("record", "tick", "--payload", payload, *where, folder=tmp_path)
    done = tape("tail", "--no-follow", "--where", "payload.n > 2", *where, folder=tmp_path)
    assert done.code == 0
    assert [line.split(maxsplit=3)[3] for line in done.out.splitlines()] == ['{"n": 3}']
    assert "note: 1 entry was left out" in done.err


def test_tail_is_live_and_ends_with_ctrl_c(where: list[str], tmp_path: Path) -> None:
    tape("record", "before", *where, folder=tmp_path)
    with start("tail", "--from", "start", "--json", *where, folder=tmp_path) as tail:
        assert tail.stdout is not None
        assert json.loads(tail.stdout.readline())["event_type"] == "before"
        tape("record", "after", *where, folder=tmp_path)
        assert json.loads(tail.stdout.readline())["event_type"] == "after"
        tail.send_signal(signal.SIGINT)
        out, err = tail.communicate(timeout=30)
    assert (tail.returncode, out, err) == (0, "", "")


def test_tail_takes_a_limit_and_a_cursor(where: list[str], tmp_path: Path) -> None:
    tape("record", "--batch", "-", *where, folder=tmp_path, stdin=_lines(10))
    done = tape("tail", "--from", "4", "--limit", "3", "--json", *where, folder=tmp_path)
    assert [record["global_seq"] for record in done.records] == [5, 6, 7]


def test_a_reader_that_leaves_is_no_error(sqlite_url: str, tmp_path: Path) -> None:
    tape("record", "--batch", "-", "--store", sqlite_url, folder=tmp_path, stdin=_lines(5_000))
    arguments = ("tail", "--no-follow", "--json", "--store", sqlite_url)
    with start(*arguments, folder=tmp_path) as tail:
        assert tail.stdout is not None
        assert tail.stderr is not None
        tail.stdout.readline()
        tail.stdout.close()
        assert tail.wait(30) == 0
        assert tail.stderr.read() == ""


def test_a_payload_over_several_lines_stays_on_one(sqlite_url: str, tmp_path: Path) -> None:
    store = ("--store", sqlite_url)
    (tmp_path / "p.json").write_text('{\n  "text": ":smile:\\u001b",\r\n  "n": 1\n}')
    tape("record", "x", "--payload", "@p.json", *store, folder=tmp_path)
    (entry,) = tape("tail", "--no-follow", "--json", *store, folder=tmp_path).records
    assert entry["payload"] == {"text": ":smile:\x1b", "n": 1}
    shown = tape("tail", "--no-follow", *store, folder=tmp_path).out
    assert shown.endswith('{ "text": ":smile:\\u001b", "n": 1 }\n')
