"""Google Pub/Sub: pulls of a subscription that somebody made beforehand.

A pull is a request that the service holds until there is something. It is left open when `fetch`
has waited long enough, for a request that is given up may have messages on its way, which come
again only after the ack deadline; the next `fetch` finds what it brought. Streaming was measured,
too: see decision 21.

What is in hand has its ack deadline extended each third of it. Acknowledgements that could not be
said are said again until the deadline has passed, after which the message has come again anyway.
"""

import asyncio
from collections import deque
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Final, cast

from google.api_core import exceptions
from google.pubsub_v1 import PullResponse, SubscriberAsyncClient, Subscription

from tape.brokers.google_account import GoogleAccount, read_account
from tape.errors import SourceRefused, SourceUnavailable, TapeError
from tape.model.message import SourceMessage, position_of, pubsub_origin
from tape.model.subscription_spec import SourceKind, SourceSpec
from tape.ports.credentials import OpenedCredential
from tape.ports.source import ReceivedMessage
from tape.sources.credential_fields import read_source_fields
from tape.sources.first_login import open_with_first
from tape.sources.next_try import NextTry
from tape.sources.pubsub_client import close_client, endpoint_of, make_client
from tape.sources.pubsub_leases import ANSWER_S, FAILED, MessageLeases

PULL_S: Final = 30.0
PULL_MESSAGES: Final = 1_000
UNSEEN_S: Final = 30.0
"""What a pull brought is given back if nobody has fetched for so long."""
KEPT_MOST: Final = timedelta(days=7)
"""What a message became is remembered for a day longer (`subscriptions/upkeep.py`)."""
LEAST_DEADLINE_S: Final = 10  # where the login may pull, and may not look

_REFUSED: Final[dict[type[exceptions.GoogleAPICallError], str]] = {
    exceptions.NotFound: "subscription",
    exceptions.InvalidArgument: "subscription",
    exceptions.FailedPrecondition: "subscription",
    exceptions.PermissionDenied: "auth",
    exceptions.Unauthenticated: "auth",
}


class PubSubSource:
    def __init__(self, client: SubscriberAsyncClient, spec: SourceSpec, endpoint: str) -> None:
        self._client = client
        self._endpoint = endpoint
        self._name = spec.subscription
        self._origin = pubsub_origin(spec.subscription)
        self._leases = MessageLeases(client, spec.subscription, LEAST_DEADLINE_S)
        self._waiting: deque[ReceivedMessage] = deque()
        self._pulling: asyncio.Task[PullResponse] | None = None
        self._fetched_at = asyncio.get_running_loop().time()
        self._next_try = NextTry()
        self._away = SourceUnavailable()
        self._warnings: list[str] = []
        self._watching: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"PubSubSource({self._name})"

    async def open(self) -> None:
        """SourceRefused if the subscription is not there, or is one that is pushed."""
        try:
            found = await self._client.get_subscription(
                subscription=self._name, timeout=ANSWER_S, retry=None
            )
        except exceptions.PermissionDenied:
            # To pull takes another right than to look; the first pull tells whether it is there.
            self._warnings = [
                "auth: the login may not look at the subscription (roles/pubsub.viewer)"
            ]
        except FAILED as error:
            raise self._translated(error) from None
        else:
            refuse_unusable(found)
            self._warnings = warnings_of(found)
            self._leases.deadline_s = found.ack_deadline_seconds or LEAST_DEADLINE_S
        self._leases.keep()
        self._watching = asyncio.create_task(self._give_back_unseen(), name="tape-pubsub-unseen")

    async def fetch(self, most: int, wait_s: float) -> list[ReceivedMessage]:
        loop = asyncio.get_running_loop()
        ends = self._fetched_at = loop.time() + wait_s
        if not await self._next_try.wait(wait_s):
            raise self._away
        while not self._waiting:
            left_s = ends - loop.time()
            if self._pulling is None:
                if left_s <= 0:
                    return []
                self._pulling = asyncio.create_task(self._pull(most), name="tape-pubsub-pull")
            await asyncio.wait((self._pulling,), timeout=max(0.0, left_s))
            if not self._pulling.done():
                return []
            self._take_in()
        return [self._waiting.popleft() for _ in range(min(most, len(self._waiting)))]

    async def ack(self, receipts: Sequence[str]) -> None:
        await self._leases.ack(receipts)

    async def nak(self, receipts: Sequence[str]) -> None:
        await self._leases.nak(receipts)

    async def backlog(self) -> int | None:
        """Pub/Sub tells it to its monitoring, and not to subscribers."""
        return None

    async def passed(self) -> Mapping[str, int]:
        """Messages have no order in which something could be passed."""
        return {}

    def warnings(self) -> list[str]:
        return [*self._warnings]

    async def close(self) -> None:
        pulling, self._pulling = self._pulling, None
        tasks = [task for task in (pulling, self._watching) if task is not None]
        for task in tasks:
            task.cancel()  # nothing, if it has brought something meanwhile
        await asyncio.gather(*tasks, return_exceptions=True)
        if pulling is not None and not pulling.cancelled() and pulling.exception() is None:
            self._keep(pulling.result())
        await self._leases.close()
        await close_client(self._client)

    async def _pull(self, most: int) -> PullResponse:
        return await self._client.pull(
            subscription=self._name,
            max_messages=min(most, PULL_MESSAGES),
            timeout=PULL_S,
            retry=None,
        )

    def _take_in(self) -> None:
        """What the pull has brought, or its error."""
        pulling, self._pulling = self._pulling, None
        if pulling is None:
            return
        try:
            self._keep(pulling.result())
        except exceptions.DeadlineExceeded:  # nothing came, and the service did not say so
            pass
        except FAILED as error:
            refusal = self._translated(error)
            if isinstance(refusal, SourceUnavailable):
                self._away = refusal
                self._next_try.failed()
            raise refusal from None
        self._next_try.succeeded()

    def _keep(self, answer: PullResponse) -> None:
        # The library's own classes take twenty times as long to read a message from.
        for got in PullResponse.pb(answer).received_messages:
            if self._leases.take(got.message.message_id, got.ack_id):
                self._waiting.append(ReceivedMessage(self._message(got), got.ack_id))

    def _message(self, got: Any) -> SourceMessage:
        message = got.message
        attributes = sorted(message.attributes.items())
        published = message.publish_time
        return SourceMessage(
            SourceKind.PUBSUB.value,
            self._origin,
            position_of(message.message_id),
            message.data,
            tuple((name, value.encode()) for name, value in attributes),
            message_id=message.message_id,
            key=message.ordering_key,
            timestamp_ms=published.seconds * 1000 + published.nanos // 1_000_000,
            deliveries=max(1, got.delivery_attempt),
        )

    async def _give_back_unseen(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(UNSEEN_S / 3)
            if loop.time() < self._fetched_at + UNSEEN_S:
                continue
            if self._pulling is not None and self._pulling.done():
                try:
                    self._take_in()
                except TapeError:  # the next fetch finds out for itself
                    continue
            unseen = [received.receipt for received in self._waiting]
            self._waiting.clear()
            await self._leases.nak(unseen)

    def _translated(self, error: BaseException) -> TapeError:
        told = type(error).__name__
        for kind, field in _REFUSED.items():
            if isinstance(error, kind):
                return SourceRefused(f"{field}: Pub/Sub says {told} of {self._name}")
        if "invalid_grant" in str(error):  # the login's refusal comes as if nobody were there
            return SourceRefused("auth: Google refuses the service account (invalid_grant)")
        return SourceUnavailable(f"{self._name}: {told}", at=self._endpoint)


def refuse_unusable(found: Subscription) -> None:
    """SourceRefused if messages of it go elsewhere."""
    for taken, how in (
        (found.push_config.push_endpoint, "pushes its messages"),
        (found.bigquery_config.table, "writes its messages to BigQuery"),
        (found.cloud_storage_config.bucket, "writes its messages to Cloud Storage"),
        (found.detached, "is detached from its topic"),
    ):
        if taken:
            raise SourceRefused(f"subscription: {found.name} {how}; name one that is pulled")


def warnings_of(found: Subscription) -> list[str]:
    """What may take messages away from here, or bring them once more."""
    told = []
    policy = found.dead_letter_policy
    if policy.dead_letter_topic:
        told.append(
            f"the subscription sends a message that was delivered {policy.max_delivery_attempts} "
            f"times and not acknowledged to {policy.dead_letter_topic}, where nobody here sees it"
        )
    kept = cast("timedelta", found.message_retention_duration)  # as the library hands it over
    if kept > KEPT_MOST:
        told.append(
            f"the subscription keeps messages for {kept / timedelta(days=1):g} days: what one "
            f"became is remembered for {KEPT_MOST.days + 1}, and one that comes again after that "
            f"may count as new; set message_retention_duration to {KEPT_MOST.days} days at most"
        )
    return told


async def open_pubsub(
    spec: SourceSpec, credential: OpenedCredential | None, *, name: str
) -> PubSubSource:
    async def open_with(account: GoogleAccount) -> PubSubSource:
        source = PubSubSource(await make_client(account, name), spec, endpoint_of(account))
        try:
            await source.open()
        except BaseException:
            await source.close()
            raise
        return source

    accounts = read_source_fields(credential, "pubsub", read_account)
    return await open_with_first(accounts, open_with)
