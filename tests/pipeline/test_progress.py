"""Progress where there is no terminal: lines on stderr, not too many, and nothing on stdout."""

import pytest

from tape.cli.pipeline.running import _watching
from tape.pipeline.job import JobProgress


@pytest.mark.parametrize("as_json", [False, True])
def test_progress_is_lines_on_stderr(as_json: bool, capsys: pytest.CaptureFixture[str]) -> None:
    with _watching("audit", as_json=as_json) as report:
        report(JobProgress("audit", 0, 133, "checks", "reading"))
        for done in range(1, 133):
            report(JobProgress("audit", done, 133, "checks", "run\x1b[31m_row"))
        report(JobProgress("audit", 133, 133, "checks", "last"))
        report(JobProgress("ingest", 7, 0, "files"))
    said = capsys.readouterr()
    assert said.out == ""
    lines = said.err.splitlines()
    assert lines[0] == "audit: 0 of 133 checks: reading"
    assert "audit: 133 of 133 checks: last" in lines
    assert "\x1b" not in said.err
    assert len(lines) < 10
