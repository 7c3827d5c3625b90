"""A pipeline in a file: what it may say, and how it is told what is wrong with it."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest

from tape.errors import InvalidArgument
from tape.pipeline.job import CheckContext, Job, JobContext, Summary
from tape.pipeline.spec import Spec, read_spec


@dataclass(frozen=True, slots=True)
class Sweep:
    """A job with one option of each kind."""

    name: ClassVar[str] = "sweep"
    lake: str
    rows: int = 10
    share: float = 0.5
    compact: bool = False
    patterns: tuple[str, ...] = ()
    upto: int | None = None

    def check_options(self, before: CheckContext) -> None:
        """Nothing can be wrong with it."""

    def run(self, work: JobContext) -> Summary:
        raise NotImplementedError(work)


KNOWN: dict[str, type[Job]] = {"sweep": Sweep}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "pipeline.yaml"


def test_a_whole_file(file: Path) -> None:
    file.write_text("""
store: sqlite:day.db
master: local[1]
jobs:
  - sweep: {lake: ./lake, share: 1, compact: true, patterns: [/tape/event/**], upto: 7}
  - sweep: {lake: ./other, patterns: /tape/run/**}
""")
    first = Sweep("./lake", share=1.0, compact=True, patterns=("/tape/event/**",), upto=7)
    second = Sweep("./other", patterns=("/tape/run/**",))
    assert read_spec(file, KNOWN) == Spec((first, second), "sqlite:day.db", "local[1]")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("jobs: []", "jobs: must be a list with at least one job"),
        ("{}", "jobs: must be a list"),
        ("[]", "must be a mapping"),
        ("jobs: [", "is not YAML"),
        ("jobs: [{sweep: {lake: x}}]\nstor: y", "no 'stor' here; did you mean store?"),
        ("jobs: [{swep: {}}]", "jobs[0]: no 'swep' here; did you mean sweep?"),
        ("jobs: [sweep]", "jobs[0].sweep.lake: is required"),
        ("jobs: [{sweep: {lake: x, rows: many}}]", "jobs[0].sweep.rows: 'many' is not of type int"),
        ("jobs: [{sweep: {lake: x, rows: true}}]", "jobs[0].sweep.rows: True is not of type int"),
        ("jobs: [{sweep: {lake: x, rows: 1.5}}]", "jobs[0].sweep.rows: 1.5 is not of type int"),
        ("jobs: [{sweep: {lake: x, patterns: [1]}}]", "patterns[0]: 1 is not of type str"),
        ("jobs: [{sweep: {lake: x, lak: 2}}]", "jobs[0].sweep: no 'lak' here; did you mean lake?"),
        ("jobs: [{sweep: {lake: x}, sweep2: {}}]", "jobs[0]: must be one of sweep"),
        ("jobs: [{sweep: {lake: x}}]\nstore: 5", "store: 5 is not text"),
        ("jobs: [{sweep: {lake: x, compact: yes}}]", "compact: 'yes' is not of type bool"),
        ("jobs: [{sweep: {lake: x, rows: 1:30}}]", "rows: '1:30' is not of type int"),
        ("jobs: [{sweep: {lake: x, lake: y}}]", "jobs[0].sweep.lake: is listed twice"),
    ],
)
def test_what_is_wrong_is_named(file: Path, text: str, said: str) -> None:
    file.write_text(text)
    with pytest.raises(InvalidArgument) as refused:
        read_spec(file, KNOWN)
    assert said in str(refused.value)


def test_only_true_and_false_are_flags(file: Path) -> None:
    file.write_text("jobs: [{sweep: {lake: off, patterns: [yes, 2024-01-01, 010]}}]")
    with pytest.raises(InvalidArgument, match=r"patterns\[2\]: 10 is not of type str"):
        read_spec(file, KNOWN)
    file.write_text("jobs: [{sweep: {lake: off, patterns: [yes, 2024-01-01]}}]")
    assert read_spec(file, KNOWN).jobs == (Sweep("off", patterns=("yes", "2024-01-01")),)


def test_options_that_are_said_once(file: Path) -> None:
    file.write_text("jobs: [{sweep: &same {lake: x, rows: 7}}, {sweep: *same}]")
    assert read_spec(file, KNOWN).jobs == (Sweep("x", rows=7), Sweep("x", rows=7))


def test_a_file_that_is_not_there(file: Path) -> None:
    with pytest.raises(InvalidArgument, match=r"pipeline\.yaml: cannot be read: No such file"):
        read_spec(file, KNOWN)
