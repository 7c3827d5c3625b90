"""README's durable run, saved and given to a worker as the text says: who charges, how often."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tape
from tests.integration.docs.pages import ROOT, Saved, examples
from tests.integration.docs.shell import Shell


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    with Shell(tmp_path, f"{Path(sys.executable).parent}:{os.environ['PATH']}") as shell:
        for step in examples(ROOT / "README.md", {}):
            if isinstance(step, Saved):
                assert shell.fault(step) == ""
        yield shell


@pytest.fixture
def client(tmp_path: Path, shell: Shell) -> Iterator[tape.TapeClient]:
    with tape.connect(f"sqlite:{tmp_path / 'shop.db'}") as client:
        ready = shell.run("tape worker -m checkout --store sqlite:shop.db 2> worker.log &", 1)
        assert ready.lines == ["app checkout in pool shared"]
        yield client


def charges(client: tape.TapeClient) -> list[int]:
    confirmed = client.follow("/tape/effect/confirmed/charge/**", live=False)
    return [entry.global_seq for entry in confirmed]


def test_a_worker_charges_for_the_runs_that_were_begun_and_for_no_other(
    client: tape.TapeClient, shell: Shell
) -> None:
    assert shell.run("python checkout.py", 1).lines == ["4200"]
    started = client.start_run("checkout", {"cents": 42_00})
    assert client.run_result(started.run_id)["cents"] == 42_00
    assert len(charges(client)) == 2


@pytest.mark.parametrize(("approved", "charged"), [(True, [200_00]), (False, [])])
def test_the_answer_at_the_gate_counts(
    client: tape.TapeClient, shell: Shell, approved: bool, charged: list[int]
) -> None:
    started = client.start_run("checkout", {"cents": 200_00})
    answer = '{"approved": true}' if approved else '{"approved": false}'
    shell.run(f"tape runs signal {started.run_id} approve '{answer}' --store sqlite:shop.db", 0)
    result: dict[str, Any] = client.run_result(started.run_id)
    assert result["cents"] == sum(charged)
    assert len(charges(client)) == len(charged)


def test_without_the_secret_the_reactions_are_refused_with_its_name(
    shell: Shell, tmp_path: Path
) -> None:
    refused = shell.run("tape worker -m handlers --store sqlite:shop.db", 0)
    assert refused.status == 2
    assert "TAPE_WEBHOOK_SECRET" in refused.lines[-1]
    assert shell.run("tape reactions --json --store sqlite:shop.db 2> /dev/null", 0).lines == []
