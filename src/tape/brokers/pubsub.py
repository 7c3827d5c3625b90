"""Google Pub/Sub: ordered publishing over its asynchronous client.

The messages of one ordering key leave in requests that follow each other, each answered before the
next: that is the order the service keeps for a key. The client's own batching publisher does the
same with a thread per key and retries without end; here the wait is bounded and the caller decides.
A client that found nobody is closed, for it would hold off its next try by itself.
"""

import asyncio
import hashlib
import os
from collections.abc import Iterator, Sequence

import google.auth
from google.api_core import exceptions
from google.auth.credentials import AnonymousCredentials, Credentials
from google.auth.exceptions import GoogleAuthError
from google.pubsub_v1 import PublisherAsyncClient, PubsubMessage

from tape.brokers.in_order import Results, publish_by_key
from tape.brokers.targets import PubSubTarget
from tape.errors import BrokerError, BrokerRefused, BrokerUnavailable
from tape.ports.broker import Outgoing
from tape.wire.cloudevents import STRUCTURED_TYPE, cloud_event, pubsub_attributes, structured

IN_FLIGHT = 32
ANSWER_S = 15.0
CLOSE_S = 2.0
REQUEST_MESSAGES = 500  # the service takes 1,000 and 10 MB
REQUEST_BYTES = 5_000_000
MESSAGE_BYTES = 9_900_000  # likewise 10 MB with the request around it
NAME_BYTES = 1_024  # of an attribute's value and of an ordering key

_REFUSED = (
    exceptions.NotFound,
    exceptions.InvalidArgument,
    exceptions.FailedPrecondition,
    exceptions.PermissionDenied,
    exceptions.OutOfRange,
    exceptions.MethodNotImplemented,
)


class _PubSubClient:
    """One client. Closing it cuts off every call on it, so it waits for the last publish."""

    def __init__(self, credentials: Credentials) -> None:
        self.client = PublisherAsyncClient(credentials=credentials)
        self.over = False
        self._publishing = 0

    async def __aenter__(self) -> PublisherAsyncClient:
        self._publishing += 1
        return self.client

    async def __aexit__(self, *_error: object) -> None:
        self._publishing -= 1
        if self.over and not self._publishing:
            await self.close()

    async def discard(self) -> None:
        self.over = True
        if not self._publishing:
            await self.close()

    async def close(self) -> None:
        closing = self.client.transport.close()  # type: ignore[no-untyped-call]  # no types there
        await asyncio.wait_for(closing, CLOSE_S)


class PubSubBroker:
    def __init__(self, target: PubSubTarget, *, answer_s: float = ANSWER_S) -> None:
        self._target = target
        self._topic = f"projects/{target.project}/topics/{target.topic}"
        self._answer_s = answer_s
        self._session: _PubSubClient | None = None
        self._opening = asyncio.Lock()

    def __repr__(self) -> str:
        return f"PubSubBroker({self._target.shown})"

    async def publish(self, messages: Sequence[Outgoing]) -> Results:
        try:
            session = await self._opened()
        except (GoogleAuthError, TimeoutError) as error:
            failure = BrokerUnavailable(f"{self._target.shown}: {type(error).__name__}")
            return [failure] * len(messages)
        async with session as client:

            async def publish_lane(lane: Sequence[Outgoing]) -> Results:
                return await self._publish_lane(client, lane)

            results = await publish_by_key(messages, publish_lane, in_flight=IN_FLIGHT)
            if any(isinstance(result, BrokerUnavailable) for result in results):
                await session.discard()
        return results

    async def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _opened(self) -> _PubSubClient:
        async with self._opening:
            if self._session is None or self._session.over:
                credentials = await asyncio.wait_for(asyncio.to_thread(_credentials), ANSWER_S)
                self._session = _PubSubClient(credentials)
            return self._session

    async def _publish_lane(
        self, client: PublisherAsyncClient, lane: Sequence[Outgoing]
    ) -> Results:
        results: Results = []
        for group in _requests([_message(outgoing) for outgoing in lane]):
            failure = await self._ask(client, group)
            if failure is None:
                results += [None] * len(group)
                continue
            if isinstance(failure, BrokerRefused) and len(group) > 1:
                # A request is refused whole; one by one tells which message it was.
                taken, failure = await self._singly(client, group)
                results += [None] * taken
            if failure is not None:
                return results + [failure] * (len(lane) - len(results))
        return results

    async def _singly(
        self, client: PublisherAsyncClient, group: Sequence[PubsubMessage]
    ) -> tuple[int, BrokerError | None]:
        for taken, message in enumerate(group):
            failure = await self._ask(client, [message])
            if failure is not None:
                return taken, failure
        return len(group), None

    async def _ask(
        self, client: PublisherAsyncClient, group: Sequence[PubsubMessage]
    ) -> BrokerError | None:
        where = self._target.shown
        if len(group) == 1 and len(group[0].data) > MESSAGE_BYTES:
            return BrokerRefused(f"{where}: the message is larger than Pub/Sub takes")
        try:
            await client.publish(
                topic=self._topic, messages=list(group), retry=None, timeout=self._answer_s
            )
        except exceptions.NotFound:
            return BrokerRefused(f"{where}: there is no such topic")
        except exceptions.GoogleAPICallError as error:
            kind = BrokerRefused if isinstance(error, _REFUSED) else BrokerUnavailable
            return kind(f"{where}: {type(error).__name__}")
        except (GoogleAuthError, OSError, TimeoutError) as error:
            return BrokerUnavailable(f"{where}: {type(error).__name__}")
        return None


def _credentials() -> Credentials:
    if os.environ.get("PUBSUB_EMULATOR_HOST"):
        return AnonymousCredentials()  # type: ignore[no-untyped-call]  # the library has no types
    credentials, _project = google.auth.default()
    found: Credentials = credentials
    return found


def _message(outgoing: Outgoing) -> PubsubMessage:
    event = cloud_event(outgoing)
    attributes = pubsub_attributes(event)
    data = event.data.encode()
    if any(len(value.encode()) > NAME_BYTES for value in attributes.values()):
        # The binding's way out where an attribute is too long for the service.
        attributes, data = {"content-type": STRUCTURED_TYPE}, structured(event)
    return PubsubMessage(
        data=data, attributes=attributes, ordering_key=_ordering_key(outgoing.ordering_key)
    )


def _ordering_key(key: str) -> str:
    """Keys that are too long for the service are told apart by their digest."""
    encoded = key.encode()
    return key if len(encoded) <= NAME_BYTES else hashlib.sha256(encoded).hexdigest()


def _requests(messages: Sequence[PubsubMessage]) -> Iterator[list[PubsubMessage]]:
    group: list[PubsubMessage] = []
    size = 0
    for message in messages:
        weight = len(message.data) + 2 * NAME_BYTES
        if group and (len(group) == REQUEST_MESSAGES or size + weight > REQUEST_BYTES):
            yield group
            group, size = [], 0
        group.append(message)
        size += weight
    if group:
        yield group
