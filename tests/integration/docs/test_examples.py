"""Every example in the documents does what its page says."""

import shutil
import socket
from pathlib import Path

import pytest

from tests.integration.docs.pages import ROOT, Example, Program, examples, matches, pages
from tests.integration.docs.shell import Shell


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


# That of the pipeline is run by tests/pipeline, where there is a Spark session.
ELSEWHERE = {"pipeline.md"}
WITH_EXAMPLES = [
    page for page in pages() if page.name not in ELSEWHERE and any(examples(page, 7878, 7879))
]


@pytest.mark.parametrize("page", WITH_EXAMPLES, ids=lambda page: str(page.relative_to(ROOT)))
def test_examples_of_a_page(page: Path, tmp_path: Path) -> None:
    if "$ curl " in page.read_text() and shutil.which("curl") is None:
        pytest.skip("curl is not installed here")
    with Shell(tmp_path) as shell:
        ports = (_free_port(), _free_port(), _free_port())
        for number, example in enumerate(examples(page, *ports)):
            command, wanted = _typed(example, tmp_path / f"example_{number}.py")
            printed = shell.run(command, len(wanted or ()))
            if wanted is None:
                assert not any(line.startswith("Traceback") for line in printed), printed
            else:
                assert matches(wanted, printed), f"{command}\nprinted:\n" + "\n".join(printed)


def _typed(example: Example | Program, file: Path) -> tuple[str, list[str] | None]:
    if isinstance(example, Example):
        return example.command, example.printed
    file = file.with_name(example.file_name or file.name)
    file.write_text(example.source)
    return f"python {file.name}", example.printed
