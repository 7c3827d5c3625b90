"""The door fuzzed from its own description: no 5xx, and nothing that the description does not say.

All of schemathesis' checks but one. `positive_data_acceptance` would have every request accepted
that fits the schema, and a schema cannot say what a CEL expression or a subject pattern is, or
that NUL is in no name. Streams are left to test_stream: they end with their reader.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tape.programs.serve import Addresses
from tests.integration.http.some_of_everything import fill
from tests.servers.tape_server import ServerProcess

HOOKS = "tests.integration.http.fuzz_hooks"
ROOT = Path(__file__).parents[3]
TOKEN = "fuzzing-token"


def fuzz(http: str, *options: str, work: Path) -> tuple[int, str]:
    """The exit code of schemathesis and what it printed."""
    command = [
        str(Path(sys.executable).with_name("schemathesis")), "run", f"http://{http}/openapi.json",
        "--header", f"Authorization: Bearer {TOKEN}", "--checks", "all",
        "--exclude-checks", "positive_data_acceptance", "--request-timeout", "30",
        # How long generating takes says nothing of the server.
        "--suppress-health-check", "too_slow,data_too_large,large_base_example",
        "--exclude-operation-id", "follow_events", *options,
    ]  # fmt: skip
    environment = {
        **os.environ, "SCHEMATHESIS_HOOKS": HOOKS, "NO_COLOR": "1",
        "PYTHONPATH": os.pathsep.join((str(ROOT), os.environ.get("PYTHONPATH", ""))),
    }  # fmt: skip
    ended = subprocess.run(
        command, capture_output=True, text=True, env=environment, cwd=work, check=False
    )
    return ended.returncode, ended.stdout + ended.stderr


async def check(store_url: str, work: Path, *options: str, at_least: int) -> None:
    with ServerProcess(store_url, env={"TAPE_TOKENS": f"admin:{TOKEN}"}) as server:
        await fill(Addresses(server.url.removeprefix("tape://"), server.http), TOKEN)
        code, said = fuzz(server.http, *options, work=work)
        assert code == 0, said
        generated = re.search(r"([\d,]+) generated", said)
        assert generated is not None, said
        assert int(generated[1].replace(",", "")) >= at_least
        assert server.stop() == 0


@pytest.mark.middle
async def test_nothing_undocumented(sqlite_url: str, tmp_path: Path) -> None:
    await check(
        sqlite_url, tmp_path, "--seed", "20261116", "--max-examples", "8", "--no-shrink",
        at_least=1_000,
    )  # fmt: skip


@pytest.mark.long
@pytest.mark.timeout(1800)
async def test_nothing_undocumented_at_length(store_url: str, tmp_path: Path) -> None:
    await check(store_url, tmp_path, "--max-examples", "300", at_least=5_000)
