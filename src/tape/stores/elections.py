"""An election of a relay, in a turn of its own."""

from collections.abc import Awaitable, Callable, Iterable

from tape.model.move import Decision, EntryPlace, Need, State
from tape.model.outbox import RelayTerm
from tape.model.relay import Candidate, ElectRelay
from tape.ports.store import Decide

Commit = Callable[[Iterable[Need], Decide], Awaitable[EntryPlace]]


async def elect(commit: Commit, candidate: Candidate, event_id: str) -> RelayTerm | None:
    """The term that begins; None while another's has not run out."""
    move = ElectRelay(candidate, event_id)
    decided: list[Decision[RelayTerm | None]] = []

    def decide(state: State) -> None:
        decided[:] = [move.decide(state)]
        state.apply(decided[0])

    place = await commit(move.needs(), decide)
    return decided[0].reply(place)
