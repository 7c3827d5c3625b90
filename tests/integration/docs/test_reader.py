"""A page is read as its reader would read it, and what is otherwise than it says is found."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.docs.pages import (
    ROOT,
    Example,
    Install,
    Program,
    Saved,
    Statements,
    blocks,
    examples,
)
from tests.integration.docs.shell import Shell

PAGE = """
```console
$ pip install 'tape-bus[nats]'
$ echo one \\
> two on 7878
one two on 7878
```
```python
# module.py
ANSWER = 42
```

```python
from module import ANSWER

print(ANSWER)
```
```text
42
```

<!-- not run: a diagram -->
```
a ─► b
```
<!-- walk only: it takes long -->
```sql
SELECT 1;
```

```text
nothing before it prints this
```
"""


@pytest.fixture
def page(tmp_path: Path) -> Path:
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    return page


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    with Shell(tmp_path, path, patience_s=10) as shell:
        yield shell


def test_each_kind_of_block(page: Path) -> None:
    console, saved, program, diagram, sql, orphan = blocks(page, {7878: 9})
    assert console.steps == [
        Install("pip install 'tape-bus[nats]'"),
        Example("echo one \\\ntwo on 9", ["one two on 9"]),
    ]
    assert saved.steps == [Saved("module.py", "# module.py\nANSWER = 42\n")]
    assert program.steps == [Program("from module import ANSWER\n\nprint(ANSWER)\n", ["42"])]
    assert (diagram.steps, diagram.reason) == ([], "a diagram")
    assert isinstance(sql.steps[0], Statements)
    assert (orphan.steps, orphan.reason) == ([], ""), "the suite refuses such a block"
    assert [block.is_compared for block in (console, saved, program)] == [True, False, True]
    assert not any(isinstance(step, Statements) for step in examples(page, {}))


def test_the_shell_does_what_the_page_says(page: Path, shell: Shell) -> None:
    for step in examples(page, {}):
        if not isinstance(step, Install):
            assert shell.fault(step) == ""


@pytest.mark.parametrize(
    ("step", "said"),
    [
        (Example("echo one", ["two"]), "one"),
        (Example("echo one", []), "one"),
        (Program("print(1)", ["2"]), "1"),
        (Program("raise SystemExit(3)", None), "ended with 3"),
        (Install("pip-that-is-not-there"), "ended with 127"),
    ],
)
def test_a_difference_is_a_fault(shell: Shell, step: Example | Install, said: str) -> None:
    assert said in shell.fault(step)


def test_what_comes_after_a_command_that_does_not_end_is_not_reached(tmp_path: Path) -> None:
    with Shell(tmp_path, os.environ["PATH"], patience_s=0.5) as shell:
        assert "nothing more for 0.5 s" in shell.fault(Example("tail -f /dev/null", []))
        assert "not reached" in shell.fault(Example("echo one", ["one"]))


def test_a_walk_without_such_a_page_is_refused() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "scripts.walk_docs", "--free-ports", "--page", "nowhere"],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (2, "error: no page is called nowhere\n")
