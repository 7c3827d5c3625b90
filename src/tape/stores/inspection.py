"""What a store tells of itself to those who look after it. Nothing here changes a database."""

from collections.abc import Sequence
from typing import NamedTuple

from tape.stores.migrations import Applied, Migration, pending


class Setting(NamedTuple):
    """A setting of the database as Tape's own connections find it, and what it should be."""

    name: str
    value: str
    wanted: str
    advice: str

    @property
    def right(self) -> bool:
        return self.value.lower() == self.wanted


class Step(NamedTuple):
    """One migration that this version of Tape knows."""

    number: int
    phase: str
    name: str
    applied: bool


class Inspection(NamedTuple):
    """`skew_ms` is how far the store's clock is ahead of ours, `free_bytes` what its disk has left;
    None where that cannot be known from here."""

    server: str
    exists: bool
    settings: list[Setting]
    steps: list[Step]
    bytes: int
    skew_ms: int | None
    free_bytes: int | None


def steps_of(known: Sequence[Migration], applied: Sequence[Applied]) -> list[Step]:
    """Every known step; a refusal if the database is not one of ours as it stands."""
    todo = {migration.number for migration in pending(known, applied, with_post=True)}
    return [Step(m.number, m.phase, m.name, m.number not in todo) for m in known]
