"""The programs in examples/ do what they say."""

import subprocess
import sys

import pytest

from tests.integration.docs.pages import ROOT

PRINTED = {
    "keep_a_cursor.py": [
        "handled 3",
        "handled 0 the second time",
        "handled 1 new",
        "{'ada': 12.5, 'grace': 8.5}",
    ],
    "react_live.py": ["to review: ['15', '16', '17', '18', '19']"],
}


def test_all_are_listed() -> None:
    assert {path.name for path in (ROOT / "examples").glob("*.py")} == PRINTED.keys()


@pytest.mark.parametrize("name", PRINTED)
def test_program(name: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", str(ROOT / "examples" / name)],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == PRINTED[name]
