"""Google Pub/Sub: ordered publishing over its asynchronous client.

The messages of one ordering key leave in requests that follow each other, each answered before the
next: that is the order the service keeps for a key. The client's own batching publisher does the
same with a thread per key and retries without end; here the wait is bounded and the caller decides.
A client that found nobody is closed, for it would hold off its next try by itself.
"""

import asyncio
import contextlib
import hashlib
import os
from collections.abc import Iterator, Sequence
from typing import TypedDict

import google.auth
from google.api_core import exceptions
from google.auth.credentials import AnonymousCredentials, Credentials
from google.auth.exceptions import GoogleAuthError
from google.pubsub_v1 import PublisherAsyncClient, PubsubMessage
from google.pubsub_v1.services.publisher.transports import PublisherGrpcAsyncIOTransport

from tape.brokers.credential_fields import read_fields
from tape.brokers.google_account import GoogleAccount, read_account
from tape.brokers.in_order import Results, publish_by_key
from tape.brokers.logins import LoginsInUse, OpenLogin, from_environment
from tape.brokers.targets import PubSubTarget
from tape.errors import BrokerError, BrokerRefused, BrokerUnavailable
from tape.ports.broker import Outgoing
from tape.ports.credentials import OpenedCredential
from tape.wire.channel import plain_channel
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
    exceptions.OutOfRange,
    exceptions.MethodNotImplemented,
)
_NO_GRANT = "invalid_grant"  # in an error that else says that nobody was there


class _Forbidden(BrokerRefused):
    """The login may not publish there."""


class _NotLetIn(BrokerUnavailable):
    """The login is refused, or there is none."""


_LOGIN_REFUSED = (_Forbidden, _NotLetIn)


class _PubSubClient:
    """One client. Closing it cuts off every call on it, so it waits for the last publish."""

    def __init__(self, login: "GoogleLogin", revision: tuple[int, int]) -> None:
        """`revision` is that of the credential which has the login."""
        self.client = PublisherAsyncClient(**login)
        self.revision = revision
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
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(closing, CLOSE_S)


class PubSubBroker:
    def __init__(
        self,
        target: PubSubTarget,
        *,
        answer_s: float = ANSWER_S,
        open_login: OpenLogin = from_environment,
    ) -> None:
        self._target = target
        self._topic = f"projects/{target.project}/topics/{target.topic}"
        self._answer_s = answer_s
        self._logins = LoginsInUse(open_login, target.shown, google_accounts)
        self._session: _PubSubClient | None = None
        self._turn = 0
        """Which of the logins is used: the next one once it is refused."""
        self._opening = asyncio.Lock()

    def __repr__(self) -> str:
        return f"PubSubBroker({self._target.shown})"

    async def publish(self, messages: Sequence[Outgoing]) -> Results:
        results = await self._publish(messages)
        for _ in self._logins.others:
            refused = [place for place, r in enumerate(results) if isinstance(r, _LOGIN_REFUSED)]
            if not refused:
                break
            again = await self._publish([messages[place] for place in refused])
            for place, result in zip(refused, again, strict=True):
                if not isinstance(result, _LOGIN_REFUSED):
                    results[place] = result
        return results

    async def _publish(self, messages: Sequence[Outgoing]) -> Results:
        """With one login; it is another one's turn once that is refused."""
        session: _PubSubClient | None = None
        try:
            session = await self._opened()
            results = await self._publish_over(session, messages)
        except BrokerUnavailable as error:
            results = [error] * len(messages)
        if any(isinstance(result, _LOGIN_REFUSED) for result in results):
            async with self._opening:
                if self._session is session:  # no other batch has found it out
                    self._turn += 1
                    await self._drop()
        return results

    async def _publish_over(self, session: _PubSubClient, messages: Sequence[Outgoing]) -> Results:
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
            try:
                accounts = await self._logins.renew()
            except BrokerUnavailable:
                await self._drop()
                raise
            revision = self._logins.revision
            if self._session is not None and self._session.revision != revision:
                self._turn = 0
                await self._drop()
            if self._session is None or self._session.over:
                account = accounts[self._turn % len(accounts)]
                try:
                    login = await google_login(account)
                except (GoogleAuthError, TimeoutError) as error:
                    raise _NotLetIn(f"{self._target.shown}: {type(error).__name__}") from None
                self._session = _PubSubClient(login, revision)
            return self._session

    async def _drop(self) -> None:
        """Use it no more; it is closed once the last publish on it has ended."""
        session, self._session = self._session, None
        if session is not None:
            await session.discard()

    async def _publish_lane(
        self, client: PublisherAsyncClient, lane: Sequence[Outgoing]
    ) -> Results:
        results: Results = []
        for group in _requests([_message(outgoing) for outgoing in lane]):
            failure = await self._ask(client, group)
            if failure is None:
                results += [None] * len(group)
                continue
            if self._may_be_one_message(failure) and len(group) > 1:
                # A request is refused whole; one by one tells which message it was.
                taken, failure = await self._singly(client, group)
                results += [None] * taken
            if failure is not None:
                return results + [failure] * (len(lane) - len(results))
        return results

    @staticmethod
    def _may_be_one_message(failure: BrokerError) -> bool:
        return isinstance(failure, BrokerRefused) and not isinstance(failure, _Forbidden)

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
        except (exceptions.GoogleAPICallError, GoogleAuthError, OSError, TimeoutError) as error:
            return _translated(error, where)
        return None


def _translated(error: Exception, where: str) -> BrokerError:
    text = f"{where}: {type(error).__name__}"
    match error:
        case exceptions.NotFound():
            return BrokerRefused(f"{where}: there is no such topic")
        case exceptions.PermissionDenied():
            return _Forbidden(text)
        case exceptions.Unauthenticated() | GoogleAuthError():
            return _NotLetIn(text)
        case _ if _NO_GRANT in str(error):
            return _NotLetIn(text)
        case _:
            return BrokerRefused(text) if isinstance(error, _REFUSED) else BrokerUnavailable(text)


class GoogleLogin(TypedDict, total=False):
    """What a client of Pub/Sub is made with."""

    credentials: Credentials
    transport: PublisherGrpcAsyncIOTransport


def google_accounts(credential: OpenedCredential) -> list[GoogleAccount]:
    """Those of a credential; without one that of Google's own environment."""
    return read_fields(credential, "pubsub", read_account) or [GoogleAccount()]


async def google_login(account: GoogleAccount) -> GoogleLogin:
    """What a client is made with; Google's own environment is asked here."""
    if account.emulator_host:
        channel = plain_channel(account.emulator_host)
        return {"transport": PublisherGrpcAsyncIOTransport(channel=channel)}
    if account.credentials is not None:
        return {"credentials": account.credentials}
    if os.environ.get("PUBSUB_EMULATOR_HOST"):
        anonymous = AnonymousCredentials()  # type: ignore[no-untyped-call]  # no types there
        return {"credentials": anonymous}
    finding = asyncio.to_thread(google.auth.default)
    credentials, _project = await asyncio.wait_for(finding, ANSWER_S)
    return {"credentials": credentials}


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
