"""What is wrong with a job's options is said in one sentence before Spark starts; so is what only
Spark finds."""

import os
import socket
import sys
from pathlib import Path

import pytest
from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # no py.typed in the wheel
from pyspark.errors import AnalysisException, PythonException

import tape
from tape.cli.root import run
from tape.errors import InvalidArgument, Pruned, SparkUnavailable, TapeError
from tape.pipeline import session as sessions
from tape.pipeline.job import CheckContext, JobContext, Summary
from tape.pipeline.jobs.archive.job import Archive
from tape.pipeline.jobs.audit.job import Audit
from tape.pipeline.places import refuse_unwritable_file
from tape.pipeline.source.options import read_options
from tape.pipeline.spark_errors import as_tape_error, raising_tape_errors
from tape.stores.blocking import Stores
from tests.integration.grpc.listening import document

INGEST = "ingest files --path in --checkpoint c --quarantine q"
NATS = "ingest nats --server nats://127.0.0.1:1 --stream S --checkpoint c --quarantine q"
KAFKA = "ingest kafka --server 127.0.0.1:1 --topic t --checkpoint c --quarantine q"
WRONG = {
    "audit --master nowhere": "master: 'nowhere' is not a master; write local, local[4], spark://HO",
    "audit --master local[x]": "master: 'local[x]' is not a master",
    "audit --master spark:h:7077": "master: 'spark:h:7077' is not a master",
    "audit --remote h:15002": "remote: 'h:15002' is not sc://HOST:PORT",
    "audit --master local --remote sc://h": "remote: give a master or a remote, not both",
    "audit --conf nonsense": "--conf nonsense: write NAME=VALUE",
    "audit --metrics-file no/such/m.prom": "--metrics-file: there is no folder no/such for m.prom",
    "audit --report no/such/a.html": "report: there is no folder no/such for a.html",
    "audit --report a.pdf": "report",
    "audit --check nonsense": "check: there is no check 'nonsense'",
    "audit --limit -1": "limit: is how many violations to show; it must be 0 or more",
    "audit --lake nowhere": "nowhere is not a lake: archive into it first",
    "archive --lake file": "file is not a folder",
    "archive --lake file/lake": "file/lake is not a folder",
    "archive --lake in": "in contains a.json and is not a lake: name an empty folder",
    "archive --lake new --older-than soon": "--older-than: 'soon' is not a length of time",
    "archive --lake new --keep-orphans x": "--keep-orphans: 'x' is not a length of time",
    "archive --lake new --rows-per-file 0": "0 is not in the range",
    "archive --lake s3://bucket/lake": "'s3://bucket/lake' is not a folder",
    "backfill": "REACTION: name at least one reaction",
    "backfill r --from 9 --upto 3": "upto: 3 is before 9, where it begins",
    "backfill --follow --dry-run": "--dry-run: does not go with follow, which makes the tasks",
    "backfill r --lake nowhere": "nowhere is not a lake",
    "backfill known --from 99": "from: 99 is not in 0..",
    "rollup --out file/x": "out: file/x cannot be written: ",
    "rollup --out o --window 7m": "window: 7m does not divide a day",
    "rollup --out o --to 90s --base 1m": "to: 90s is not made of 1m",
    "rollup --out o --lake nowhere": "nowhere is not a lake",
    "ingest files --path none --checkpoint c --quarantine q": "path: there is no file or folder no",
    "ingest files --path none/*.json --checkpoint c --quarantine q": "path: there is no file or fo",
    "ingest files --path in/*.parquet --format parquet --checkpoint c --quarantine q": "no file, ",
    "ingest --checkpoint c --quarantine q": "SOURCE: name a source, or a subscription",
    "ingest files --path in --checkpoint c": "quarantine: is required",
    "ingest --subscription nobody --checkpoint c": "no subscription 'nobody': register it first",
    "ingest --subscription inbx --checkpoint c": "no subscription 'inbx': did you mean 'inbox'?",
    "ingest files --checkpoint c --quarantine q": "path: is required to ingest from files",
    f"{INGEST} --topic t": "topic: is an option of kafka, not of files",
    f"{INGEST} --server nats://h": "server: is an option of nats, not of files",
    "ingest landed --path in --format csv --checkpoint c --quarantine q": "format: is an option of",
    f"{INGEST} --schema-versions 3-1": "--schema-versions: '3-1' is not a range such as 1-3",
    f"{INGEST} --dedup-window x": "--dedup-window: 'x' is not a span of time such as '10 minutes'",
    f"{INGEST} --max-per-trigger -1": "-1 is not in the range",
    "ingest files --path in --checkpoint file --quarantine q": "checkpoint: file cannot be written",
    "run none.yaml": "none.yaml: cannot be read: No such file",
    "run bad.yaml": "lake: ",
}
FAILED = {
    "backfill unknown": "unknown",
    NATS: "NATS at nats://127.0.0.1:1 cannot be reached",
    KAFKA: "Kafka at 127.0.0.1:1 cannot be reached: nobody answers on 127.0.0.1:1",
    f"{INGEST} --remote sc://127.0.0.1:1": "ingest counts and quarantines in the driver",
}


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in [name for name in os.environ if name.startswith("TAPE_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    Path("in").mkdir()
    Path("in", "a.json").write_text("{}\n")
    Path("file").touch()
    Path("bad.yaml").write_text("jobs: [audit, {rollup: {out: o, lake: nowhere}}]")
    with tape.connect("sqlite:tape.db") as client:
        client.record("x")
        client.register_reaction("known", "/**")
        client.register_subscription(document())
    return tmp_path


def refused(
    arguments: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> tuple[int, str]:
    monkeypatch.setattr(sessions, "session", lambda **_given: pytest.fail("Spark was started"))
    before = sorted(Path().rglob("*"))
    code = run(["pipeline", *arguments.split(), "--store", "sqlite:tape.db"])
    printed = capfd.readouterr()
    assert printed.out == ""
    assert len(printed.err.splitlines()) == 1, printed.err
    assert sorted(Path().rglob("*")) == before
    return code, printed.err


@pytest.mark.parametrize("arguments", WRONG)
def test_wrong_flags_are_refused_before_spark_starts(
    arguments: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, said = refused(arguments, capfd, monkeypatch)
    assert said.startswith("error: ")
    assert WRONG[arguments] in said
    assert code == 2


@pytest.mark.parametrize("arguments", FAILED)
def test_what_is_not_there_is_said_before_spark_starts(
    arguments: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, said = refused(arguments, capfd, monkeypatch)
    assert FAILED[arguments] in said
    assert code in (1, 2)


def test_nats_without_its_client_names_the_extra(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "nats", None)
    code, said = refused(NATS, capfd, monkeypatch)
    assert said == "error: SOURCE: nats needs its client: pip install 'tape-bus[nats]'\n"
    assert code == 2


def test_a_lake_may_be_made_by_an_earlier_job() -> None:
    before = CheckContext(Stores().store("sqlite:tape.db"))
    with pytest.raises(InvalidArgument, match="is not a lake"):
        Audit(lake="lake").check_options(before)
    Archive("lake").check_options(before)
    Audit(lake="lake").check_options(before)
    assert not Path("lake").exists()


def test_a_folder_that_is_closed_to_us(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda *_arguments: False)
    with pytest.raises(InvalidArgument, match=rf"cannot be written: no permission for {tmp_path}"):
        refuse_unwritable_file(tmp_path / "a", "report")


def test_a_range_that_ends_before_it_begins() -> None:
    with pytest.raises(InvalidArgument, match="upto: 3 is before 9, where it begins"):
        read_options({"url": "sqlite:a.db", "from": "9", "upto": "3"}, streaming=False)
    assert read_options({"url": "sqlite:a.db", "from": "3", "upto": "3"}, streaming=False).upto == 3


def test_what_spark_finds_is_one_sentence() -> None:
    missing = AnalysisException("[PATH_NOT_FOUND] Path does not exist: file:/x. SQLSTATE: 42K03")
    assert str(as_tape_error(missing)) == "Spark failed: Path does not exist: file:/x."
    ours = PythonException(
        "\n  An exception was thrown from the Python worker.\nTraceback (most recent call last):\n"
        '  File "x.py", line 1, in read\ntape.errors.Pruned: from: entries up to 3 are gone\n'
    )
    pruned = as_tape_error(ours)
    assert isinstance(pruned, Pruned)
    assert str(pruned) == "from: entries up to 3 are gone"
    assert isinstance(as_tape_error(Py4JError("")), SparkUnavailable)
    java = Py4JError(
        "org.apache.spark.SparkException: Job aborted due to stage failure\n\tat x.y(Z)"
    )
    with (
        pytest.raises(TapeError, match=r"^Spark failed: Job aborted due to stage failure$"),
        raising_tape_errors(),
    ):
        raise java


class _NoSpark:
    def stop(self) -> None:
        """Nothing was started."""


def test_a_fault_of_spark_is_one_line_and_the_trace_is_for_who_asks(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_job: Audit, _work: JobContext) -> Summary:
        raise Py4JError(
            "java.io.IOException: No space left on device\n\tat java.base/x.y(Z.java:1)"
        )

    monkeypatch.setattr(sessions, "session", lambda **_given: _NoSpark())
    monkeypatch.setattr(Audit, "run", fails)
    command = ["pipeline", "audit", "--store", "sqlite:tape.db"]
    assert run(command) == 1
    said = capfd.readouterr().err
    assert said == "error: Spark failed: No space left on device\n"
    with pytest.raises(TapeError) as raised:
        run([*command, "--verbose"])
    assert isinstance(raised.value.__cause__, Py4JError)


def test_a_summary_is_for_people(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    facts: dict[str, object] = {
        "lake": "/data/lake", "bytes_in_lake": 3 * 2**20, "dry_run": False, "upto": 12_000,
        "violations": {"run_ended": 3}, "run_ended": ["7 r1", "8 r2"],
        "reactions": [{"reaction_id": "hedge", "matched": 4}],
    }  # fmt: skip
    summary = Summary("audit", {"entries": 12_000, "errors_found": 3}, 1.25, facts, "3 violations")
    monkeypatch.setattr(sessions, "session", lambda **_given: _NoSpark())
    monkeypatch.setattr(Audit, "run", lambda _job, _work: summary)
    command = ["pipeline", "audit", "--store", "sqlite:tape.db"]
    assert run(command) == 1
    printed = capfd.readouterr()
    assert printed.err == "error: audit: 3 violations\n"
    assert [line.rstrip() for line in printed.out.splitlines()] == [
        "audit of sqlite:tape.db: failed in 1.2 s",
        "  entries        12,000",
        "  errors found        3",
        "  lake           /data/lake",
        "  bytes in lake  3.0 MiB",
        "  dry run        no",
        "  upto           12,000",
        "  violations:",
        "    run_ended  3",
        "  run ended:",
        "    7 r1",
        "    8 r2",
        "  reactions:",
        "REACTION ID  MATCHED",
        "hedge        4",
    ]
    assert run([*command, "--json"]) == 1
    assert capfd.readouterr().out.startswith('{"job": "audit", "entries": 12000, "errors_found": 3')


def test_java_that_cannot_start_says_why_and_nothing_else(
    capfd: pytest.CaptureFixture[str],
) -> None:
    def starting() -> None:
        with sessions.silenced_java():
            os.write(2, b"WARNING: hello\nError: no memory\n")
            raise SparkUnavailable("Spark did not start")

    with pytest.raises(SparkUnavailable, match=r"^Spark did not start \(Error: no memory\)$"):
        starting()
    os.write(2, b"heard again")
    assert capfd.readouterr().err == "heard again"


def test_one_of_several_addresses_is_enough() -> None:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        assert sessions.reached(f"127.0.0.1:1,127.0.0.1:{listening.getsockname()[1]}", "1") == ""
    assert sessions.reached("h:a", "1") == "h:a is not HOST:PORT"
