"""Accepting messages on a store: planned first, then written, each part of a request in one move.

Where a run by the name of a message's run is there already, and its place is not known, the run's
first entry says whether it is that message's: then the message was accepted long ago. If it is
somebody else's, the message gets a run by another name.
"""

from collections.abc import Sequence
from typing import Final

from tape.errors import InvalidArgument, StaleLease, StoreFailed
from tape.journal.ids import UlidFactory
from tape.journal.writer import Writer
from tape.model.accept_messages import (
    AcceptedMessage,
    AcceptMessages,
    PlannedMessage,
    ids_for_each,
)
from tape.model.message import SourceMessage
from tape.model.subscription import SubscriptionDeadLetter
from tape.model.subscription_letters import ReplayedLetter, ReplaySubscriptionLetter
from tape.ports.store import Store
from tape.settings import Limits
from tape.subscriptions.lanes import MOST_BYTES, AcceptLanes, LaneTerms
from tape.subscriptions.letters import message_of
from tape.subscriptions.planning import Planner, check_messages, chunks, is_run_of
from tape.subscriptions.revisions import ReadyRevision, Revisions
from tape.telemetry.dispatch_spans import dispatching

MOST_NAMES: Final = 20
"""So many names are tried for a run before somebody must look at who takes them all."""
_ATTEMPTS: Final = 3
"""So often a subscription may be registered anew while messages are accepted for it."""


class Acceptor:
    def __init__(
        self, store: Store, writer: Writer, ids: UlidFactory, limits: Limits, revisions: Revisions
    ) -> None:
        self._store = store
        self._writer = writer
        self._ids = ids
        self._limits = limits
        self._revisions = revisions
        self._lanes = AcceptLanes(self._accept_together)

    async def accept(
        self,
        name: str,
        revision: int,
        fencing_token: int,
        messages: Sequence[SourceMessage],
        tells_received: bool = False,
    ) -> list[AcceptedMessage]:
        if len(messages) > self._limits.request_events:
            most = self._limits.request_events
            raise InvalidArgument(f"{len(messages)} of them, the limit is {most}", field="messages")
        check_messages(messages)
        accepted: list[AcceptedMessage] = []
        most_together = self._lanes.most_together(name, len(messages))
        for chunk in chunks(messages, most_together, MOST_BYTES):
            accepted += await self._accept_chunk(
                name, revision, fencing_token, chunk, tells_received=tells_received
            )
        return accepted

    async def accept_planned(
        self, ready: ReadyRevision, fencing_token: int, planned: Sequence[PlannedMessage]
    ) -> list[AcceptedMessage]:
        """Accept messages that were planned elsewhere, by a revision that is held."""
        name = ready.spec.name
        terms = LaneTerms(name, ready.planner, ready.registered_at_ms, fencing_token)
        accepted = await self._lanes.accept(terms, planned, MOST_BYTES)
        if accepted is None:
            raise StaleLease(f"subscription {name!r} was deleted and registered anew")
        return accepted

    async def replay(self, name: str, letter: SubscriptionDeadLetter) -> ReplayedLetter:
        """Accept the message of a dead letter by the newest revision."""
        planner = (await self._revisions.get_of(await self._revisions.stored(name))).planner
        with dispatching(name, [planner.plan(message_of(letter))]) as spans:
            return await self._replay(name, letter.letter_id, planner, spans.planned[0])

    async def _replay(
        self, name: str, letter_id: str, planner: Planner, planned: PlannedMessage
    ) -> ReplayedLetter:
        own: set[str] = set()
        for attempt in range(2, MOST_NAMES + 2):
            move = ReplaySubscriptionLetter(
                name,
                letter_id,
                planned,
                ids=self._ids.take(3),
                limits=self._limits,
                window_ms=planner.window_ms,
                key_rule=planner.key_rule,
                own_runs=own,
            )
            replayed = await self._writer.submit(move)
            if not replayed.unclear:
                return replayed
            (planned,) = await self._cleared(planner, [planned], replayed.unclear, own, attempt)
        raise _all_taken(name)

    async def close(self) -> None:
        await self._lanes.close()

    async def _accept_chunk(
        self,
        name: str,
        revision: int,
        fencing_token: int,
        chunk: Sequence[SourceMessage],
        *,
        tells_received: bool,
    ) -> list[AcceptedMessage]:
        size = sum(len(message.body) for message in chunk)
        for _attempt in range(_ATTEMPTS):
            ready = await self._revisions.get(name, revision)
            planned = await ready.planner.plan_all(chunk)
            terms = LaneTerms(
                name, ready.planner, ready.registered_at_ms, fencing_token, tells_received
            )
            with dispatching(name, planned) as spans:
                accepted = await self._lanes.accept(terms, spans.planned, size)
                spans.note(accepted)
            if accepted is not None:
                return accepted
            self._revisions.forget(name, revision)
        raise StoreFailed(f"subscription {name!r} is deleted and registered again and again")

    async def _accept_together(
        self, terms: LaneTerms, planned: Sequence[PlannedMessage]
    ) -> list[AcceptedMessage] | None:
        """None if the plans are by the rules of another subscription that had its name."""
        own: set[str] = set()
        ids_each = ids_for_each(tells_received=terms.tells_received)
        for attempt in range(2, MOST_NAMES + 2):
            move = AcceptMessages(
                terms.name,
                terms.fencing_token,
                planned,
                ids=self._ids.take(ids_each * len(planned)),
                limits=self._limits,
                window_ms=terms.planner.window_ms,
                key_rule=terms.planner.key_rule,
                own_runs=own,
                registered_at_ms=terms.registered_at_ms,
                tells_received=terms.tells_received,
            )
            batch = await self._writer.submit(move)
            if batch.outdated:
                return None
            if not batch.unclear:
                return batch.messages
            planned = await self._cleared(terms.planner, planned, batch.unclear, own, attempt)
        raise _all_taken(terms.name)

    async def _cleared(
        self,
        planner: Planner,
        planned: Sequence[PlannedMessage],
        unclear: Sequence[str],
        own: set[str],
        attempt: int,
    ) -> list[PlannedMessage]:
        """Find out whose the runs are, and give a message another run where it is not its own.

        What has no first entry any more ended long ago and was pruned with the message's place.
        """
        asked = set(unclear)
        cleared = list(planned)
        for number, one in enumerate(planned):
            if one.run is None or one.run.name.run_id not in asked:
                continue
            run_id = one.run.name.run_id
            first = await self._store.read_run(run_id, 0, 1)
            if not first or first[0].seq != 1 or is_run_of(first[0], planner.spec.name, one.place):
                own.add(run_id)
            else:
                cleared[number] = planner.renamed(one, attempt)
        return cleared


def _all_taken(name: str) -> StoreFailed:
    return StoreFailed(
        f"runs by all names of a message of subscription {name!r} were begun by somebody else"
    )
