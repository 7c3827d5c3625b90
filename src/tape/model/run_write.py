"""What a write for a run is, and what it makes of the run."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Protocol

import orjson

from tape.errors import InvalidArgument
from tape.model.entry import Kind
from tape.model.move import Need, Reading, RowChange
from tape.model.run import STATUS_WORDS, Run, RunStatus
from tape.model.subjects import run_status
from tape.settings import Limits

MOST_CLAIM_MS = 24 * 3600 * 1000


def check_claim_ttl(ttl_ms: int) -> None:
    if not 0 < ttl_ms <= MOST_CLAIM_MS:
        raise InvalidArgument(
            "a claim must last longer than 0 ms and at most a day", field="lease_ttl_ms"
        )


def check_time(ms: int, *, field: str) -> None:
    if not 0 <= ms < 2**62:
        raise InvalidArgument("must be a time in milliseconds", field=field)


class RunEntryDraft(NamedTuple):
    """An entry of a run before it has its number."""

    kind: str
    subject: str
    payload_json: str


class RunWriteResult(NamedTuple):
    """What a write makes of a run: the run after it, its entries, other rows, and the answer.

    `beside` are other runs that it changes, with the entries on their journals.
    """

    run: Run
    reply: Any
    lines: Sequence[RunEntryDraft] = ()
    changes: Sequence[RowChange] = ()
    beside: Sequence[tuple[Run, Sequence[RunEntryDraft]]] = ()


class RunWrite(Protocol):
    """A command that changes one run. `seq` of its first line is the run's cursor plus one."""

    def checked(self, limits: Limits, /) -> "RunWrite":
        """Itself with its JSON in order, or a refusal that names the field."""

    def needs(self, run_id: str, /) -> Iterable[Need]:
        """The rows it looks at besides the run's."""

    def write(self, state: Reading, run: Run) -> RunWriteResult: ...

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


def run_line(run: Run, verb: str = "", **details: Any) -> RunEntryDraft:
    """The entry for what the run's status has become, or for `verb`."""
    payload = {
        "app_name": run.app_name,
        "user_id": run.user_id,
        "session_id": run.session_id,
        "invocation_id": run.invocation_id,
        "pool": run.pool,
        **details,
    }
    return RunEntryDraft(
        Kind.RUN.value,
        run_status(
            verb or STATUS_WORDS[run.status],
            run.app_name,
            run.user_id,
            run.session_id,
            run.run_id,
        ),
        orjson.dumps(payload).decode(),
    )


def raw(json_text: str) -> orjson.Fragment:
    """JSON that was checked before, as part of a payload."""
    return orjson.Fragment(json_text or "null")


def clipped(text: str, limits: Limits) -> str:
    """Words for people: bounded, and free of what a database cannot hold."""
    return text.replace("\0", "\\0").encode(errors="replace").decode()[: limits.name_bytes]


def woken(run: Run, because: str) -> tuple[Run, list[RunEntryDraft]]:
    """A run that waits becomes runnable; any other stays as it is."""
    if run.status != RunStatus.WAITING:
        return run, []
    run = run._replace(status=RunStatus.RUNNABLE.value, waiting_on="")
    return run, [run_line(run, because=because)]
