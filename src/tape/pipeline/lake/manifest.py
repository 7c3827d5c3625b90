"""What a lake holds, as its commits tell it. Pure: `log` reads and writes them.

The files cover one range of the journal without a gap: each begins where the one before ends. A
file that a compaction replaced is *removed*: no longer read, but kept for readers that have begun.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final, Literal

from tape.errors import StoreMismatch, VersionMismatch

FORMAT: Final = 1
Layout = Literal["parquet", "delta"]
LAYOUTS: Final[tuple[Layout, ...]] = ("parquet", "delta")


@dataclass(frozen=True, slots=True)
class LakeFile:
    """Entries with `after < global_seq <= through`; `last` is the highest there really is.

    `archived_at_ms` is when the youngest of its entries came into the lake: compaction keeps it.
    """

    path: str
    after: int
    through: int
    rows: int
    bytes: int
    first: int
    last: int
    last_event_id: str
    archived_at_ms: int


@dataclass(frozen=True, slots=True)
class Commit:
    """One step of a lake. `journal` is the id of the first entry the lake ever covered.

    `files` and `removed` are the whole state after the step, in some commits: a reader goes back
    no further than to the last of those.
    """

    number: int
    at_ms: int
    journal: str
    layout: Layout
    after: int
    through: int
    add: tuple[LakeFile, ...] = ()
    remove: tuple[str, ...] = ()
    forget: tuple[str, ...] = ()
    files: tuple[LakeFile, ...] | None = None
    removed: Mapping[str, int] | None = None


@dataclass(frozen=True, slots=True)
class Lake:
    """What is in a lake after commit `number`; its files in the order of what they cover."""

    number: int
    journal: str
    layout: Layout
    after: int
    through: int
    files: tuple[LakeFile, ...]
    removed: Mapping[str, int] = field(default_factory=dict)

    @property
    def seam(self) -> LakeFile | None:
        """The file with the newest entry: it names the entry that the journal must have too."""
        return self.files[-1] if self.files else None

    def between(self, after: int, upto: int) -> list[LakeFile]:
        """The files with entries of that range."""
        return [file for file in self.files if file.through > after and file.after < upto]


EMPTY: Final = Lake(0, "", "parquet", 0, 0, ())


def appended(
    lake: Lake, files: Sequence[LakeFile], *, after: int, through: int, first_event_id: str,
    at_ms: int,
) -> Commit:  # fmt: skip
    """The next range of the journal. Refused if somebody else has added to the lake meanwhile."""
    begins = lake.number == 0
    if not begins and lake.through != after:
        raise VersionMismatch(
            f"the lake now ends at {lake.through}, not at {after}: another archive run is at work "
            "on it. Let that one finish"
        )
    return Commit(
        lake.number + 1, at_ms, lake.journal or first_event_id, lake.layout,
        after if begins else lake.after, through, add=tuple(files),
    )  # fmt: skip


def compacted(lake: Lake, old: Iterable[LakeFile], new: Sequence[LakeFile], at_ms: int) -> Commit:
    """Files in the place of others. Refused if those are not there any more."""
    known = {file.path for file in lake.files}
    paths = tuple(file.path for file in old)
    if gone := [path for path in paths if path not in known]:
        raise VersionMismatch(f"another run has compacted {gone[0]} meanwhile")
    return Commit(
        lake.number + 1, at_ms, lake.journal, lake.layout, lake.after, lake.through,
        add=tuple(new), remove=paths,
    )  # fmt: skip


def forgotten(lake: Lake, paths: Iterable[str], at_ms: int) -> Commit:
    """Removed files that nobody can still be reading, to be deleted."""
    return Commit(
        lake.number + 1, at_ms, lake.journal, lake.layout, lake.after, lake.through,
        forget=tuple(path for path in paths if path in lake.removed),
    )  # fmt: skip


def follow(lake: Lake, commit: Commit) -> Lake:
    """The lake after a commit; refuses one that does not go on from there."""
    if commit.files is not None:
        files, removed = commit.files, dict(commit.removed or {})
    else:
        if commit.number != lake.number + 1:
            raise _broken(f"commit {commit.number} does not follow {lake.number}")
        gone = set(commit.remove)
        kept = [file for file in lake.files if file.path not in gone]
        files = tuple(sorted([*kept, *commit.add], key=lambda file: file.after))
        removed = {path: at for path, at in lake.removed.items() if path not in commit.forget}
        removed |= dict.fromkeys(commit.remove, commit.at_ms)
    after = commit.after
    for file in files:
        # An empty range has no file, so a file may begin later than the last one ends.
        if not after <= file.after < file.first <= file.last <= file.through <= commit.through:
            raise _broken(f"{file.path} does not go on from {after}")
        after = file.through
    return Lake(
        commit.number, commit.journal, commit.layout, commit.after, commit.through, files, removed
    )


def whole(lake: Lake, commit: Commit) -> Commit:
    """Make a commit hold the whole state after it, so that reading may begin there."""
    state = follow(lake, commit)
    return replace(commit, files=state.files, removed=dict(state.removed))


def to_record(commit: Commit) -> dict[str, Any]:
    record = {"format": FORMAT, **asdict(commit)}
    return {name: value for name, value in record.items() if value is not None}


def from_record(record: Any, number: int) -> Commit:
    """A commit that was read, checked to be one and to be this one."""
    if not isinstance(record, dict):
        raise _broken(f"commit {number} is not a JSON object")
    if record.get("format") != FORMAT:
        raise StoreMismatch(
            f"the lake has format {record.get('format')}, this version of Tape reads {FORMAT}: "
            "upgrade tape-bus"
        )
    fields = {name: value for name, value in record.items() if name != "format"}
    try:
        for name in ("add", "files"):
            if fields.get(name) is not None:
                fields[name] = tuple(LakeFile(**file) for file in fields[name])
        for name in ("remove", "forget"):
            fields[name] = tuple(fields.get(name, ()))
        commit = Commit(**fields)
    except (TypeError, AttributeError) as error:
        raise _broken(f"commit {number}: {error}") from None
    if commit.number != number or commit.layout not in LAYOUTS:
        raise _broken(f"commit {number} says that it is {commit.number}, {commit.layout}")
    return commit


def _broken(why: str) -> StoreMismatch:
    return StoreMismatch(
        f"the log of the lake is damaged: {why}. Restore its folder _tape from a backup, or "
        "archive into a new lake"
    )
