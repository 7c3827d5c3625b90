"""What every job has: options, a session and a store to work with, progress, and a summary."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, NamedTuple, Protocol

from pyspark.sql import SparkSession

from tape.pipeline.logins import SourceLogins
from tape.ports.bulk import UseStore
from tape.settings import Settings


class JobProgress(NamedTuple):
    """How far a job has come: `done` of `total` (0 if nobody knows), of what `unit` names."""

    job: str
    done: int
    total: int
    unit: str
    detail: str = ""


Report = Callable[[JobProgress], None]


def say_nothing(_progress: JobProgress) -> None:
    """For whoever does not watch."""


@dataclass(frozen=True, slots=True)
class Summary:
    """What a job did. `counts` have plain names: read, written, duplicates, quarantined…

    `facts` is what else is worth knowing, ready for JSON; `failed` is why the job as a whole must
    be looked at although it came to its end, as an audit that found something.
    """

    job: str
    counts: dict[str, int]
    seconds: float
    facts: dict[str, object] = field(default_factory=dict)
    failed: str = ""


@dataclass(frozen=True, slots=True)
class JobContext:
    """What a job is given."""

    spark: SparkSession
    store_url: str
    use_store: UseStore
    report: Report = say_nothing
    settings: Settings = field(default_factory=Settings)
    config: str = ""
    """The settings file they are from, for the data source that a job writes to."""
    logins: SourceLogins | None = None

    @property
    def destination(self) -> dict[str, str]:
        """Options of the data source."""
        return {"url": self.store_url, **({"config": self.config} if self.config else {})}


@dataclass(frozen=True, slots=True)
class CheckContext:
    """What is known before Spark starts. `lakes` are those that earlier jobs of a file will make;
    a job adds its own. `remote` is the address of Spark Connect, if that is where it will run."""

    use_store: UseStore
    lakes: set[Path] = field(default_factory=set)
    remote: str = ""
    logins: SourceLogins | None = None


class Job(Protocol):
    """A frozen dataclass: its fields are the options, the same in a spec as on the command line."""

    name: ClassVar[str]

    def check_options(self, before: CheckContext) -> None:
        """Refuse what can be seen to be wrong without Spark. Changes nothing."""

    def run(self, work: JobContext) -> Summary: ...
