"""Commands that are forked, where one does not end."""

import gc
from pathlib import Path

import pytest

from tests.integration.cli.command import clean_environment
from tests.integration.cli.forked import run_forked


def test_a_command_that_does_not_end_leaves_nothing_behind(tmp_path: Path, sqlite_url: str) -> None:
    """What is left would be collected in some other test, and fail that."""
    words, env = ["tail", "--store", sqlite_url], clean_environment()
    with pytest.raises(TimeoutError) as raised:
        run_forked(words, folder=tmp_path, env=env, stdin="", timeout_s=0.2)
    cycle: list[object] = [raised.value]
    cycle.append(cycle)  # as errors of failed tests are in one
    del raised, cycle
    gc.collect()
