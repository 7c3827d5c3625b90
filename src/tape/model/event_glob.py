"""Globs over event types, as event subscriptions name them.

`*` is any run of characters, dots among them, and every other character stands for itself:
`price.*` is `price.changed` and `price.changed.late`, and not `price`.

Types that begin with `workflow.` are Tape's own. Only a glob that begins with those letters matches
them: a catch-all that failed would otherwise be fed its own failures.
"""

from typing import NamedTuple

from tape.errors import InvalidArgument
from tape.model.names import check_name
from tape.settings import Limits

OWN_PREFIX = "workflow."
_NOT_WILD = frozenset("?[]{}\\")


class Glob(NamedTuple):
    """A checked glob; `parts` are the literal texts between its wildcards."""

    text: str
    parts: tuple[str, ...]

    def matches(self, event_type: str) -> bool:
        """Whether it is for a subscription with this glob."""
        if event_type.startswith(OWN_PREFIX) and not self.parts[0].startswith(OWN_PREFIX):
            return False
        return self.fits(event_type)

    def fits(self, event_type: str) -> bool:
        """Whether it looks like this, for who only looks; Tape's own types are like any other.

        In time that grows with the type, whatever the glob: each part is looked for once.
        """
        first, *middle = self.parts
        if not middle:
            return event_type == first
        last = middle.pop()
        if not event_type.startswith(first):
            return False
        at, end = len(first), len(event_type) - len(last)
        for part in middle:
            found = event_type.find(part, at, end)
            if found < 0:
                return False
            at = found + len(part)
        return at <= end and event_type.endswith(last)


def parse_glob(text: str, limits: Limits, *, field: str = "event_type_glob") -> Glob:
    """Refuse what is no glob, with the position of the fault."""
    check_name(text, limits, field=field, required=True)
    for position, character in enumerate(text):
        if character in _NOT_WILD:
            raise InvalidArgument(
                f"{character!r} is not allowed in a glob: only * is a wildcard",
                field=field,
                position=position,
            )
    if (twice := text.find("**")) >= 0:
        raise InvalidArgument(
            "one * is enough, it matches dots too", field=field, position=twice + 1
        )
    return Glob(text, tuple(text.split("*")))
