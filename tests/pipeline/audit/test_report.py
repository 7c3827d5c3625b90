"""Reports hold what users wrote, and obey none of it; options that make no sense are refused."""

import json

import pytest

from tape.errors import InvalidArgument
from tape.pipeline.job import CheckContext
from tape.pipeline.jobs.audit.catalogue import CHECKS
from tape.pipeline.jobs.audit.finding import Result, Violation
from tape.pipeline.jobs.audit.job import Audit
from tape.pipeline.jobs.audit.report import FORMS, Audited

NASTY = "<script>alert(1)</script> | [x](http://e.vil) `**b**\n\x1b[31m&"
CHECK = CHECKS["run_moves"]


def rendered(suffix: str) -> str:
    found = Result(CHECK, 1_234, [Violation(7, NASTY, NASTY, NASTY)])
    return FORMS[suffix](Audited("sqlite", 0, 9, 9, [found, Result(CHECKS["run_row"], 0, [])]))


def test_a_page_shows_text_as_text() -> None:
    page = rendered(".html")
    assert "<script>" not in page
    assert "\x1b" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "and 1,233 more" in page


def test_markdown_shows_text_as_text() -> None:
    (row,) = [line for line in rendered(".md").splitlines() if line.startswith("| 7 ")]
    assert "<" not in row
    assert row.replace("\\|", "").count("|") == 5
    for mark in ("\\[x\\]", "\\`", "\\*\\*b", "&amp;"):
        assert mark in row


def test_json_has_everything() -> None:
    told = json.loads(rendered(".json"))
    assert (told["errors"], told["warnings"]) == (1_234, 0)
    assert told["checks"][0]["violations"][0]["found"] == NASTY
    assert told["checks"][0]["live"] == CHECK.live


@pytest.mark.parametrize(
    ("job", "words"),
    [
        (Audit(check=("run_move",)), "did you mean run_moves"),
        (Audit(report="report.pdf"), ".html, .md, .json"),
        (Audit(limit=-1), "must be 0 or more"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_is_read(job: Audit, words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        job.check_options(CheckContext(None))  # type: ignore[arg-type]  # it is not looked at


def test_every_check_says_what_must_hold_and_how_a_live_store_is_borne_with() -> None:
    for check in CHECKS.values():
        assert check.holds.endswith(".")
        assert check.live
