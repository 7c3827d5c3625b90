"""What a write for a run is, and what it makes of the run."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Protocol

from tape.config import Limits
from tape.errors import InvalidArgument
from tape.model.move import Change, Need, Reading
from tape.model.run import Run

MOST_CLAIM_MS = 24 * 3600 * 1000


def check_claim_ttl(ttl_ms: int) -> None:
    if not 0 < ttl_ms <= MOST_CLAIM_MS:
        raise InvalidArgument(
            "a claim must last longer than 0 ms and at most a day", field="lease_ttl_ms"
        )


def check_time(ms: int, *, field: str) -> None:
    if not 0 <= ms < 2**62:
        raise InvalidArgument("must be a time in milliseconds", field=field)


class Line(NamedTuple):
    """An entry of a run before it has its number."""

    kind: str
    subject: str
    payload_json: str


class Written(NamedTuple):
    """What a write makes of a run: the run after it, its entries, other rows, and the answer.

    `beside` are other runs that it changes, with the entries on their journals.
    """

    run: Run
    reply: Any
    lines: Sequence[Line] = ()
    changes: Sequence[Change] = ()
    beside: Sequence[tuple[Run, Sequence[Line]]] = ()


class RunWrite(Protocol):
    """A command that changes one run. `seq` of its first line is the run's cursor plus one."""

    def checked(self, limits: Limits, /) -> "RunWrite":
        """Itself with its JSON in order, or a refusal that names the field."""

    def needs(self, run_id: str, /) -> Iterable[Need]:
        """The rows it looks at besides the run's."""

    def write(self, state: Reading, run: Run) -> Written: ...

    @property
    def size(self) -> int:
        """About how many bytes it holds."""


class Extended(NamedTuple):
    """The run after its writes, and the answer to each in order.

    `first_seq` is that of the first entry they made: if it is not the next to the one the driver
    knew, something has come from outside in between.
    """

    run: Run
    first_seq: int
    replies: list[Any]
