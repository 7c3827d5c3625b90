"""The operations on declared subscriptions, the same in process and over gRPC.

`Subscriptions` does them on a store.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple, Protocol

from tape.errors import InvalidArgument, NoCredential, WrongState
from tape.journal.ids import UlidFactory
from tape.journal.writer import Writer
from tape.model.accept_messages import AcceptedMessage, AcceptOutcome
from tape.model.hold import is_held
from tape.model.listening import (
    HoldListener,
    HoldSubscription,
    ReservedDispatches,
    ReserveDispatches,
    TickSubscription,
)
from tape.model.message import SourceMessage
from tape.model.names import check_name
from tape.model.subscription import (
    Listener,
    Subscription,
    SubscriptionDeadLetter,
    SubscriptionVerb,
    reader_of,
)
from tape.model.subscription_letters import DropSubscriptionLetters
from tape.model.subscription_moves import (
    IDLE,
    DeleteSubscription,
    MoveSubscription,
    NewSubscription,
    RegisterSubscription,
    Registration,
)
from tape.model.subscription_spec import SubscriptionSpec
from tape.ports.store import Store
from tape.ports.subscriptions import DeadLetterQuery, StoredSubscription
from tape.settings import Limits
from tape.subscriptions.acceptor import Acceptor
from tape.subscriptions.bulk import BulkLoading
from tape.subscriptions.cadence import next_due_ms
from tape.subscriptions.planning import Planner
from tape.subscriptions.revisions import Revisions
from tape.subscriptions.spec import read_document, with_line
from tape.subscriptions.upkeep import SubscriptionUpkeep

__all__ = [
    "AcceptMessagesRequest",
    "AcceptOutcome",
    "AcceptedMessage",
    "CheckSource",
    "HasCredential",
    "HoldSubscription",
    "ListensHere",
    "RegisteredSubscription",
    "ReservedDispatches",
    "SubscriptionHold",
    "SubscriptionOperations",
    "SubscriptionView",
    "Subscriptions",
]

REPLAY, DROP = "replay", "drop"
LETTERS_TOGETHER: Final = 20
"""Their bodies are read in the move that drops them."""

HasCredential = Callable[[str], Awaitable[bool]]
"""Whether the wallet has a credential by that alias."""
CheckSource = Callable[[SubscriptionSpec], Awaitable[None]]
"""Look at a source as whoever listens to it will: SourceRefused or SourceUnavailable say why that
is not possible."""

ListensHere = Callable[[Subscription], bool]
"""Whether this process may become the listener of a subscription, as its row says it."""


class SubscriptionView(NamedTuple):
    """A subscription as it stands. `is_held` is whether a listener's lease is alive, `dead_letters`
    how many are kept, counted up to 10,000."""

    subscription: Subscription
    document_json: str
    listener: Listener
    is_held: bool
    dead_letters: int = 0


class RegisteredSubscription(NamedTuple):
    """`is_new` is whether there was none of its path; `is_changed` whether there is a new
    revision."""

    view: SubscriptionView
    is_new: bool
    is_changed: bool


class SubscriptionHold(NamedTuple):
    """The answer. Without a grant another listener's lease is alive, or there is nothing to listen
    to. `document_json` is of `revision`: work by that one until nothing of it is in hand. If
    `newest_revision` is another, fetch nothing more by it."""

    is_granted: bool
    fencing_token: int
    state: str
    revision: int
    document_json: str
    due_at_ms: int
    now_ms: int
    newest_revision: int


class AcceptMessagesRequest(NamedTuple):
    """Messages to be accepted together, under the lease and by the rules of the revision. The token
    is 0 for what is pushed: nobody holds that. With `tells_received` the journal is told of each
    message that is accepted by an entry of its own, besides its run's first."""

    name: str
    revision: int
    fencing_token: int
    messages: Sequence[SourceMessage]
    tells_received: bool = False


class SubscriptionOperations(Protocol):
    async def register_subscription(self, document: str) -> RegisteredSubscription:
        """Register a document, YAML or JSON. The same text again changes nothing; another text of
        its path makes a new revision."""

    async def get_subscription(self, name: str) -> SubscriptionView:
        """NotFound if there is none."""

    async def list_subscriptions(self) -> list[SubscriptionView]:
        """By name."""

    async def move_subscription(self, name: str, verb: str) -> SubscriptionView:
        """Activate, pause, resume, drain or deactivate; WrongState with the state where that is not
        possible. A move to the state that it is in changes nothing."""

    async def delete_subscription(self, name: str) -> bool:
        """Remove one that was deactivated or never activated. Its runs continue."""

    async def list_subscription_dead_letters(
        self, name: str, *, after: str = "", limit: int = 100
    ) -> list[SubscriptionDeadLetter]:
        """By id, those after one."""

    async def settle_subscription_dead_letters(
        self, name: str, verb: str, ids: Sequence[str] = ()
    ) -> int:
        """Replay or drop dead letters, all without ids; how many. What is replayed is accepted by
        the rules of today, and stays a dead letter if it is refused again."""

    async def hold_subscription(self, request: HoldSubscription) -> SubscriptionHold:
        """Take the lease, renew it or let go of it. A holder that is told that its subscription
        drains stops fetching, finishes what it has in hand and lets go: then it is deactivated."""

    async def reserve_dispatches(
        self, name: str, fencing_token: int, most: int, *, unused: int = 0, held_up: bool = False
    ) -> ReservedDispatches:
        """Ask how many messages the subscription's rate allows now. `unused` of what was granted
        before were not needed; `held_up` is whether it was too few, and the source has more."""

    async def tick_subscription(self, name: str, fencing_token: int, due_at_ms: int) -> int:
        """Note that the scheduled fetch of `due_at_ms` is done; when the next one is due."""

    async def accept_messages(self, request: AcceptMessagesRequest) -> list[AcceptedMessage]:
        """Make a run of each message, a dead letter of what cannot be one, and nothing of what was
        accepted before; durable when this returns, in the order of the messages."""


class Subscriptions:
    """The operations on a store in this process.

    Without `has_credential` and `check_source` an activation looks at neither. `listens_for` says
    whose sources are looked at: those of which this process may become the listener.
    """

    def __init__(
        self,
        store: Store,
        writer: Writer,
        ids: UlidFactory,
        limits: Limits,
        *,
        has_credential: HasCredential | None = None,
        check_source: CheckSource | None = None,
        listens_for: ListensHere = lambda _row: True,
    ) -> None:
        self._store = store
        self._writer = writer
        self._ids = ids
        self._limits = limits
        self._has_credential = has_credential
        self._check_source = check_source
        self._listens_for = listens_for
        self._revisions = Revisions(store, limits)
        self._acceptor = Acceptor(store, writer, ids, limits, self._revisions)
        self.upkeep = SubscriptionUpkeep(store, writer, ids, limits)

    async def register_subscription(self, document: str) -> RegisteredSubscription:
        read = await asyncio.to_thread(read_document, document)
        new = new_subscription(read.spec, read.canonical_json)
        try:
            new.checked(self._limits)  # before a route is blamed for a name that is too long
            Planner(read.spec, self._limits).check_routes()
            registration = await self._register(new)
            if registration.subscription is None:
                await self.upkeep.purge(new.name)
                registration = await self._register(new)
        except InvalidArgument as fault:
            raise await asyncio.to_thread(with_line, fault, document) from None
        if registration.subscription is None:
            raise WrongState(
                f"subscription {new.name!r} was deleted, and what it has accepted is still being "
                "removed: try again in a moment, or take another name",
                state="deleted",
            )
        view = await self.get_subscription(new.name)
        return RegisteredSubscription(view, registration.is_new, registration.is_changed)

    async def _register(self, new: NewSubscription) -> Registration:
        return await self._writer.submit(RegisterSubscription(new, next(self._ids), self._limits))

    async def get_subscription(self, name: str) -> SubscriptionView:
        check_name(name, self._limits, field="name", required=True)
        stored = await self._revisions.stored(name)
        return _view(stored, await self._store.subscriptions.read_clock())

    async def list_subscriptions(self) -> list[SubscriptionView]:
        found = await self._store.subscriptions.list_subscriptions()
        now_ms = await self._store.subscriptions.read_clock()
        return [_view(stored, now_ms) for stored in found]

    async def move_subscription(self, name: str, verb: str) -> SubscriptionView:
        if verb not in list(SubscriptionVerb):
            known = ", ".join(SubscriptionVerb)
            raise InvalidArgument(f"{verb!r} is not one of {known}", field="verb")
        move = MoveSubscription(name, SubscriptionVerb(verb), self._ids.take(2), self._limits)
        if verb == SubscriptionVerb.ACTIVATE:
            stored = await self._revisions.stored(name)
            if stored.subscription.state in IDLE:
                spec = (await self._revisions.get_of(stored)).spec
                await self._check_activation(stored.subscription, spec)
        await self._writer.submit(move)
        return await self.get_subscription(name)

    async def _check_activation(self, row: Subscription, spec: SubscriptionSpec) -> None:
        """Find out now what nobody would look at before the first message. A source is looked at
        where it will be listened to: elsewhere there may be neither key nor client nor way to it,
        and the listener tells what it is refused."""
        if self._has_credential is not None:
            for field, alias in named_credentials(spec):
                if not await self._has_credential(alias):
                    raise NoCredential(
                        f"the wallet has no credential {alias!r}: put it there by "
                        f"`tape wallet put {alias}`",
                        field=field,
                    )
        if self._check_source is not None and spec.mode == "pull" and self._listens_for(row):
            await self._check_source(spec)

    async def delete_subscription(self, name: str) -> bool:
        move = DeleteSubscription(name, next(self._ids), self._limits)
        was_there = await self._writer.submit(move)
        if was_there:
            await self.upkeep.purge(name)
        return was_there

    async def list_subscription_dead_letters(
        self, name: str, *, after: str = "", limit: int = 100
    ) -> list[SubscriptionDeadLetter]:
        check_name(after, self._limits, field="after")
        if not 0 < limit <= self._limits.page_entries:
            raise InvalidArgument(
                f"{limit} is not in 1..{self._limits.page_entries}", field="limit"
            )
        await self.get_subscription(name)
        query = DeadLetterQuery(name, after, limit, self._limits.page_bytes)
        return await self._store.subscriptions.list_dead_letters(query)

    async def settle_subscription_dead_letters(
        self, name: str, verb: str, ids: Sequence[str] = ()
    ) -> int:
        if verb not in (REPLAY, DROP):
            raise InvalidArgument(f"{verb!r} is not {REPLAY} or {DROP}", field="verb")
        if len(ids) > self._limits.page_entries:
            raise InvalidArgument(f"{self._limits.page_entries} at most", field="ids")
        for letter_id in ids:
            check_name(letter_id, self._limits, field="ids", required=True)
        await self.get_subscription(name)
        settle = self._replay if verb == REPLAY else self._drop
        if ids:
            wanted = list(dict.fromkeys(ids))
            parts = range(0, len(wanted), LETTERS_TOGETHER)
            return sum([await settle(name, wanted[at : at + LETTERS_TOGETHER]) for at in parts])
        settled, last = 0, next(self._ids)  # those that come while this goes on are not meant
        query = DeadLetterQuery(name, "", LETTERS_TOGETHER, self._limits.page_bytes)
        while letters := await self._store.subscriptions.list_dead_letters(query):
            found = [letter.letter_id for letter in letters if letter.letter_id < last]
            if not found:
                break
            settled += await settle(name, found)
            query = query._replace(after=found[-1])
        return settled

    async def _replay(self, name: str, ids: Sequence[str]) -> int:
        replayed = 0
        for letter_id in ids:
            letter = await self._store.subscriptions.get_dead_letter(name, letter_id)
            if letter is not None:
                replayed += (await self._acceptor.replay(name, letter)).is_replayed
        return replayed

    async def _drop(self, name: str, ids: Sequence[str]) -> int:
        move = DropSubscriptionLetters(name, ids, self._ids.take(len(ids)), self._limits)
        return await self._writer.submit(move)

    async def hold_subscription(self, request: HoldSubscription) -> SubscriptionHold:
        reader = await self._reader(request) if request.passed else ""
        move = HoldListener(
            request, next(self._ids), self._limits, next_due=next_due_ms, reader=reader
        )
        answer = await self._writer.submit(move)
        subscription, listener = answer.subscription, answer.listener
        revision = listener.revision if answer.is_granted else subscription.revision
        ready = await self._revisions.get(request.name, revision)
        if ready.registered_at_ms != subscription.created_at_ms:
            self._revisions.forget(request.name, revision)
            ready = await self._revisions.get(request.name, revision)
        return SubscriptionHold(
            answer.is_granted,
            listener.fencing_token if answer.is_granted else 0,
            subscription.state,
            revision,
            ready.document_json,
            listener.due_at_ms,
            answer.now_ms,
            subscription.revision,
        )

    async def _reader(self, request: HoldSubscription) -> str:
        """Whose positions are reported: those of the source as a revision reads it."""
        revision = request.revision
        if not revision:
            revision = (await self._revisions.stored(request.name)).listener.revision
        return reader_of((await self._revisions.get(request.name, revision)).document_json)

    async def reserve_dispatches(
        self, name: str, fencing_token: int, most: int, *, unused: int = 0, held_up: bool = False
    ) -> ReservedDispatches:
        spec = await self._spec_in_force(name)
        move = ReserveDispatches(
            name,
            fencing_token,
            next(self._ids),
            self._limits,
            most=most,
            per_s=spec.dispatch_per_sec,
            unused=unused,
            held_up=held_up,
        )
        return await self._writer.submit(move)

    async def tick_subscription(self, name: str, fencing_token: int, due_at_ms: int) -> int:
        spec = await self._spec_in_force(name)
        if not spec.cadence:
            raise InvalidArgument(f"subscription {name!r} is not scheduled", field="name")
        move = TickSubscription(
            name,
            fencing_token,
            due_at_ms,
            self._limits,
            next_due=lambda after_ms: next_due_ms(spec.cadence, after_ms),
        )
        return await self._writer.submit(move)

    async def _spec_in_force(self, name: str) -> SubscriptionSpec:
        """By the revision that the listener works by, for a push by the newest one."""
        check_name(name, self._limits, field="name", required=True)
        stored = await self._revisions.stored(name)
        pulled = stored.listener.revision if stored.subscription.mode == "pull" else 0
        return (await self._revisions.get_of(stored, pulled)).spec

    async def accept_messages(self, request: AcceptMessagesRequest) -> list[AcceptedMessage]:
        check_name(request.name, self._limits, field="name", required=True)
        return await self._acceptor.accept(*request)

    def loading(self, name: str, owner: str, lease_s: float) -> BulkLoading:
        """What loads messages of a subscription that were planned elsewhere."""
        request = HoldSubscription(name, owner, round(lease_s * 1000))
        return BulkLoading(
            request,
            self._writer,
            self._ids,
            self._limits,
            revisions=self._revisions,
            acceptor=self._acceptor,
        )

    async def close(self) -> None:
        """Wait for what is being accepted."""
        await self._acceptor.close()


def named_credentials(spec: SubscriptionSpec) -> list[tuple[str, str]]:
    """The aliases that a document names, each with its field."""
    named = [("spec.auth", spec.source.auth)]
    if spec.ingress is not None:
        named.append(("spec.ingress.verify.secret", spec.ingress.verify.secret))
    if spec.spool is not None:
        named.append(("spec.spool.auth", spec.spool.auth))
    return [(field, alias) for field, alias in named if alias]


def new_subscription(spec: SubscriptionSpec, document_json: str) -> NewSubscription:
    """What is kept of a document that was read."""
    return NewSubscription(
        name=spec.name,
        source=spec.source.kind.value,
        mode=spec.mode,
        document_json=document_json,
        activation=spec.activation,
        cadence=spec.cadence,
        gateway_path=spec.ingress.gateway_path if spec.ingress is not None else "",
        target=spec.runtime.target,
        listener_pool=spec.runtime.pool,
    )


def _view(stored: StoredSubscription, now_ms: int) -> SubscriptionView:
    """What a listener that died had in hand went back to the source; its row says it until the next
    one takes over."""
    listener, alive = stored.listener, is_held(stored.listener, now_ms)
    return SubscriptionView(
        stored.subscription,
        stored.document_json,
        listener if alive else listener._replace(in_flight=0),
        is_held=alive,
        dead_letters=stored.dead_letters,
    )
