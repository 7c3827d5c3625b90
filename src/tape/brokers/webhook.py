"""A webhook: one signed POST per entry, acknowledged by any 2xx.

Signed as Standard Webhooks lays down: HMAC-SHA256 over `id.timestamp.body` in `webhook-signature`,
beside `webhook-id` (the same each time, for dropping repeats) and `webhook-timestamp`. After a
rotation there is a signature by each secret that is good, with spaces between them: the receiver
may know either. The body is the structured CloudEvents form.

The transport is used without the client around it, which would log the whole URL, follow
redirects and keep cookies.
"""

import asyncio
import os
import time
from collections.abc import Callable, Sequence
from urllib.parse import quote

import httpx

from tape.brokers.credential_fields import read_values
from tape.brokers.in_order import Results, one_by_one, publish_by_key
from tape.brokers.logins import LoginsInUse, OpenLogin, from_environment
from tape.brokers.reach import Reach, places
from tape.brokers.targets import WebhookTarget
from tape.errors import (
    BrokerRefused,
    BrokerUnavailable,
    InvalidArgument,
    NoCredential,
)
from tape.model.entry import Entry
from tape.model.signature import secret_key, signature
from tape.ports.broker import Outgoing
from tape.ports.credentials import OpenedCredential, SecretValue
from tape.wire.cloudevents import STRUCTURED_TYPE, cloud_event, structured

SECRET_VARIABLE = "TAPE_WEBHOOK_SECRET"  # noqa: S105 - the variable's name
IN_FLIGHT = 16
ANSWER_S = 15.0
CONNECT_S = 5.0
JUDGED_S = 30.0
READ_MOST = 64 * 1024  # of an answer, which nobody reads: enough to use the connection again
_TRY_AGAIN = (408, 425, 429)


def secrets_of(credential: OpenedCredential) -> list[bytes]:
    """The keys of a credential: of texts, or of objects with `current` and maybe `previous`."""
    texts: list[SecretValue] = []
    for value in credential.values:
        texts += _parts(value)
    return [*dict.fromkeys(read_values(credential._replace(values=texts), _secret_of))]


def _parts(value: SecretValue) -> list[SecretValue]:
    """The secrets of an object; what is none stays as it is, and is refused."""
    found = [(value.fields or {}).get(name) for name in ("current", "previous")]
    return [SecretValue(text) for text in found if isinstance(text, str)] or [value]


def _secret_of(value: SecretValue) -> bytes:
    if value.text is None:
        raise NoCredential('the credential of a webhook is a text, or {"current", "previous"}')
    return secret_key(value.text)


def _given_key(secret: str) -> bytes:
    if not secret:
        raise InvalidArgument(
            f"webhooks are signed: put the secret into {SECRET_VARIABLE}", field="secret"
        )
    return secret_key(secret)


def event_name(entry: Entry) -> str:
    """`X-Tape-Event-Id`: the run's id and the place in it, or the event's own id."""
    return f"{quote(entry.run_id, safe='')}/{entry.seq}" if entry.run_id else entry.event_id


class WebhookBroker:
    def __init__(
        self,
        target: WebhookTarget,
        *,
        secret: str | None = None,
        answer_s: float = ANSWER_S,
        now: Callable[[], float] = time.time,
        reach: Reach | None = None,
        open_login: OpenLogin = from_environment,
    ) -> None:
        """Signed with the `secret` if there is one, else with those of the target's credential,
        which is looked up for each batch; a target without one needs TAPE_WEBHOOK_SECRET."""
        self._target = target
        self._reach = reach
        self._judged: tuple[float, list[str]] | None = None
        self._failures = 0
        if secret is not None:
            open_login = from_environment
        self._logins = LoginsInUse(open_login, target.shown, self._keys_of)
        self._given = b""
        if open_login is from_environment:
            self._given = _given_key(
                os.environ.get(SECRET_VARIABLE, "") if secret is None else secret
            )
        self._keys: Sequence[bytes] = ()
        self._answer_s = answer_s
        self._now = now
        self._url = httpx.URL(target.url)
        self._transport = httpx.AsyncHTTPTransport(
            limits=httpx.Limits(max_connections=IN_FLIGHT, max_keepalive_connections=IN_FLIGHT)
        )

    def __repr__(self) -> str:
        return f"WebhookBroker({self._target.shown})"

    async def publish(self, messages: Sequence[Outgoing]) -> Results:
        try:
            self._keys = await self._logins.renew()
        except BrokerUnavailable as error:
            return [error] * len(messages)
        return await publish_by_key(messages, one_by_one(self._send), in_flight=IN_FLIGHT)

    async def close(self) -> None:
        await self._transport.aclose()

    def _keys_of(self, credential: OpenedCredential) -> list[bytes]:
        return secrets_of(credential) or [self._given]

    async def _send(self, message: Outgoing) -> None:
        where = self._target.shown
        try:
            async with asyncio.timeout(self._answer_s):
                status = await self._post(message)
        except (httpx.HTTPError, OSError, TimeoutError) as error:
            self._failures += 1
            raise BrokerUnavailable(f"{where}: {type(error).__name__}") from None
        if 200 <= status < 300:
            return
        if status >= 500 or status in _TRY_AGAIN:
            raise BrokerUnavailable(f"{where} answered {status}")
        note = "; redirects are not followed" if 300 <= status < 400 else ""
        raise BrokerRefused(f"{where} answered {status}{note}")

    async def _address(self) -> str:
        """Where to connect: the host itself, or an address of it that was judged a moment ago."""
        if self._reach is None:
            return self._url.host
        now = time.monotonic()
        if self._judged is None or now >= self._judged[0]:
            (place,) = places(self._target)
            self._judged = now + JUDGED_S, await self._reach.resolve(place)
        addresses = self._judged[1]
        return addresses[self._failures % len(addresses)]

    async def _post(self, message: Outgoing) -> int:
        body = structured(cloud_event(message))
        message_id = quote(message.message_id, safe="").replace(".", "%2E")
        timestamp = str(int(self._now()))
        address = await self._address()
        request = httpx.Request(
            "POST",
            self._url.copy_with(host=address),
            headers={
                "host": self._url.netloc.decode(),
                "content-type": STRUCTURED_TYPE,
                "user-agent": "tape",
                "webhook-id": message_id,
                "webhook-timestamp": timestamp,
                "webhook-signature": " ".join(
                    signature(key, message_id, timestamp, body) for key in self._keys
                ),
                "x-tape-event-id": event_name(message.entry),
            },
            content=body,
            extensions={
                "timeout": httpx.Timeout(self._answer_s, connect=CONNECT_S).as_dict(),
                "sni_hostname": self._url.host,
            },
        )
        response = await self._transport.handle_async_request(request)
        try:
            read = 0
            async for chunk in response.aiter_raw():
                read += len(chunk)
                if read > READ_MOST:
                    break
        finally:
            await response.aclose()
        return response.status_code
