"""The journal of leadership: each election of a relay and each resignation is an entry.

A term is one more than the one before it. Where a session's lock decides who leads, the election
only writes down what the lock has decided; where there is no such lock, `lease_ms` is how long the
elected may be silent, and nobody else is elected before.
"""

from collections.abc import Iterable
from typing import NamedTuple

import orjson

from tape.model.entry import EntryDraft, Kind
from tape.model.move import Decision, Need, State, save
from tape.model.outbox import RELAYS, RelayTerm
from tape.model.subjects import relay as relay_subject


class Candidate(NamedTuple):
    """Who would lead. `session` tells people which session of the database holds the lock."""

    relay: str
    owner: str
    session: str = ""
    lease_ms: int = 0


class ElectRelay:
    """Begin a term; None while somebody else's has not run out."""

    __slots__ = ("_candidate", "_event_id", "weight")

    def __init__(self, candidate: Candidate, event_id: str) -> None:
        self._candidate = candidate
        self._event_id = event_id
        self.weight = 512

    def needs(self) -> Iterable[Need]:
        yield Need(RELAYS, self._candidate.relay)

    def decide(self, state: State) -> Decision[RelayTerm | None]:
        relay, owner, session, lease_ms = self._candidate
        last = state.get(RELAYS, relay)
        if last is not None and last.expires_at_ms > state.now_ms:
            return Decision(lambda _place: None)
        expires = state.now_ms + lease_ms if lease_ms else 0
        term = RelayTerm(relay, last.term + 1 if last else 1, owner, state.now_ms, expires)
        payload = {"relay": relay, "term": term.term, "owner": owner, "session": session}
        entry = _entry("elected", relay, self._event_id, payload)
        return Decision(lambda _place: term, [entry], [save(RELAYS, term)])


class ResignRelay:
    """End a term, with the reason; False if it was over already."""

    __slots__ = ("_event_id", "_reason", "_term", "weight")

    def __init__(self, term: RelayTerm, reason: str, event_id: str) -> None:
        self._term = term
        self._reason = reason
        self._event_id = event_id
        self.weight = 512

    def needs(self) -> Iterable[Need]:
        yield Need(RELAYS, self._term.relay)

    def decide(self, state: State) -> Decision[bool]:
        relay, term, owner, *_ = self._term
        last = state.get(RELAYS, relay)
        if last is None or last.term != term:
            return Decision(lambda _place: False)
        payload = {"relay": relay, "term": term, "owner": owner, "reason": self._reason}
        entry = _entry("resigned", relay, self._event_id, payload)
        return Decision(
            lambda _place: True, [entry], [save(RELAYS, last._replace(expires_at_ms=0))]
        )


def _entry(verb: str, relay: str, event_id: str, payload: dict[str, object]) -> EntryDraft:
    subject = relay_subject(verb, relay)
    return EntryDraft(event_id, Kind.RELAY.value, subject, orjson.dumps(payload).decode())
