"""Every example in the documents does what its page says."""

import os
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from tape.predicates import check
from tests.integration.docs.pages import (
    PORTS,
    ROOT,
    Install,
    Program,
    Saved,
    Statements,
    Step,
    blocks,
    examples,
    guides,
)
from tests.integration.docs.shell import Shell
from tests.servers.ports import free_port
from tests.servers.postgres import PostgresServer

# tests/pipeline runs these, where there is a Spark session.
ELSEWHERE = {"pipeline.md", "predicates.md"}
WITH_EXAMPLES = [
    page for page in guides() if page.name not in ELSEWHERE and any(examples(page, {}))
]


FIRST_READ = {"README.md", "getting-started.md"}
"""The rest is followed in the middle tier."""


def _in_its_tier(page: Path) -> Any:
    marks = () if page.name in FIRST_READ else pytest.mark.middle
    return pytest.param(page, marks=marks, id=str(page.relative_to(ROOT)))


@pytest.mark.parametrize("page", [_in_its_tier(page) for page in WITH_EXAMPLES])
def test_examples_of_a_page(page: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    text = page.read_text()
    if "$ curl " in text and shutil.which("curl") is None:
        pytest.skip("curl is not installed here")
    ports = {printed: free_port() for printed in PORTS}
    if "127.0.0.1:5432/desk" in text:
        server: PostgresServer = request.getfixturevalue("postgres_server")
        server.create_database("desk")
        ports[5432] = server.port
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    with Shell(tmp_path, path) as shell:
        for step in examples(page, ports):
            if not isinstance(step, Install | Statements):  # here all is installed
                fault = shell.fault(step)
                assert not fault, fault


@pytest.mark.parametrize("page", guides(), ids=lambda page: str(page.relative_to(ROOT)))
def test_each_block_is_run_or_says_why_not(page: Path) -> None:
    silent = [block.line for block in blocks(page, {}) if not block.steps and not block.reason]
    assert silent == []
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    assert re.findall(r"^\n {4,}\S.*$", text, re.MULTILINE) == [], "a block without a fence"


@pytest.mark.parametrize("page", guides(), ids=lambda page: str(page.relative_to(ROOT)))
def test_what_is_saved_is_used(page: Path) -> None:
    steps = [step for block in blocks(page, {}) for step in block.steps]
    for number, step in enumerate(steps):
        if isinstance(step, Saved):
            module = step.file_name.removesuffix(".py")
            later = "\n".join(_text(step) for step in steps[number + 1 :])
            assert re.search(rf"\b{re.escape(module)}\b", later), f"nothing uses {step.file_name}"


NEEDS = {
    "spark": r"tape\.spark|tape pipeline (?!--help)|to_spark",
    "nats": r"tape outbox (?:relay|stream)|tape\.consumers",
    "postgres": r"postgres://",
    "otel": r"OTEL_EXPORTER",
}


@pytest.mark.parametrize("page", guides(), ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_names_an_extra_before_what_needs_it(page: Path) -> None:
    installed: set[str] = set()
    for block in blocks(page, {}):
        for step in block.steps:
            if isinstance(step, Install):
                for extras in re.findall(r"tape-bus\[([\w,]+)\]", step.command):
                    installed |= set(extras.split(","))
            else:
                wanted = {extra for extra, use in NEEDS.items() if re.search(use, _text(step))}
                assert wanted <= installed, f"line {block.line}"


def test_each_expression_on_the_page_of_predicates_is_one() -> None:
    page = (ROOT / "docs/predicates.md").read_text()
    expressions = re.findall(r"^```cel\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert expressions
    for line in "".join(expressions).splitlines():
        check(line)


def _text(step: Step) -> str:
    return step.source if isinstance(step, Program | Saved | Statements) else step.command
