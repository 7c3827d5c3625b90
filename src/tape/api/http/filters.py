"""Which entries a reader wants: the same filters for what was, for what comes, and for the page.

All that are given must hold. `where` is CEL over the envelope of an entry; where it has no result
for an entry, the entry is left out and counted.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from tape.api.http.fields import Params
from tape.model.entry import Entry
from tape.model.event_glob import Glob, parse_glob
from tape.model.names import check_name
from tape.model.subject import EVERYTHING, Pattern, parse_pattern
from tape.predicates import Checker, Predicate
from tape.settings import Limits

_NAMES = ("event_type", "entity_type", "entity_id", "source", "caused_by", "run_id", "trace_id")


class FilterParams(Params):
    subject: Annotated[
        str, Field(description="a pattern", examples=["/tape/event/recorded/order.placed/**"])
    ] = EVERYTHING
    event_type: Annotated[
        str, Field(description="exact, or a glob with *", examples=["order.*"])
    ] = ""
    entity_type: str = ""
    entity_id: str = ""
    source: str = ""
    caused_by: Annotated[str, Field(description="the event_id of the cause")] = ""
    run_id: str = ""
    trace_id: str = ""
    where: Annotated[str, Field(description="CEL", examples=["payload.amount > 100"])] = ""


@dataclass(slots=True)
class EntryFilter:
    pattern: Pattern
    glob: Glob | None
    exact: dict[str, str]
    """Fields of an entry and what they must be."""

    predicate: Predicate

    @classmethod
    async def of(cls, params: FilterParams, limits: Limits, checker: Checker) -> "EntryFilter":
        """Refuses what could never be decided."""
        names = {
            name: check_name(getattr(params, name), limits, field=name)
            for name in _NAMES
            if getattr(params, name)
        }
        glob = None
        if "*" in params.event_type:
            glob = parse_glob(names.pop("event_type"), limits, field="event_type")
        return cls(
            pattern=parse_pattern(params.subject, field="subject", limits=limits),
            glob=glob,
            exact=names,
            predicate=await checker.checked(params.where, field="where"),
        )

    def passing(self, entries: Iterable[Entry]) -> Iterator[Entry]:
        """Those that pass all but `where`."""
        return filter(self._passes, entries)

    @property
    def narrows(self) -> bool:
        """Whether it leaves out anything that the store's own filters would not."""
        return not (self.glob is None and self.pattern.everything and self.predicate.always_true)

    def _passes(self, entry: Entry) -> bool:
        if any(getattr(entry, name) != wanted for name, wanted in self.exact.items()):
            return False
        if self.glob is not None and not self.glob.fits(entry.event_type):
            return False
        return self.pattern.everything or self.pattern.matches(entry.subject)
