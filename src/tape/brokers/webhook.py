"""A webhook: one signed POST per entry, acknowledged by any 2xx.

Signed as Standard Webhooks lays down: HMAC-SHA256 over `id.timestamp.body` in `webhook-signature`,
beside `webhook-id` (the same each time, for dropping repeats) and `webhook-timestamp`. The body is
the structured CloudEvents form.

The transport is used without the client around it, which would log the whole URL, follow
redirects and keep cookies.
"""

import asyncio
import base64
import binascii
import hashlib
import hmac
import os
import time
from collections.abc import Callable, Sequence
from urllib.parse import quote

import httpx

from tape.brokers.in_order import Results, one_by_one, publish_by_key
from tape.brokers.reach import Reach, places
from tape.brokers.targets import WebhookTarget
from tape.errors import BrokerRefused, BrokerUnavailable, InvalidArgument
from tape.model.entry import Entry
from tape.ports.broker import Outgoing
from tape.wire.cloudevents import STRUCTURED_TYPE, cloud_event, structured

SECRET_VARIABLE = "TAPE_WEBHOOK_SECRET"  # noqa: S105 - the variable's name
SECRET_PREFIX = "whsec_"  # noqa: S105 - what the specification puts before one
SECRET_LEAST, SECRET_MOST = 24, 64
IN_FLIGHT = 16
ANSWER_S = 15.0
CONNECT_S = 5.0
JUDGED_S = 30.0
READ_MOST = 64 * 1024  # of an answer, which nobody reads: enough to use the connection again
_TRY_AGAIN = (408, 425, 429)


def secret_key(secret: str) -> bytes:
    """The key of a secret `whsec_<base64>`; another text is taken as it is."""
    if not secret:
        raise InvalidArgument(
            f"webhooks are signed: put the secret into {SECRET_VARIABLE}", field="secret"
        )
    key = secret.encode()
    if secret.startswith(SECRET_PREFIX):
        try:
            key = base64.b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)
        except binascii.Error:
            raise InvalidArgument("the text after whsec_ is not base64", field="secret") from None
    if not SECRET_LEAST <= len(key) <= SECRET_MOST:
        raise InvalidArgument(
            f"has {len(key)} bytes; a secret has {SECRET_LEAST} to {SECRET_MOST}", field="secret"
        )
    return key


def signature(key: bytes, message_id: str, timestamp: str, body: bytes) -> str:
    signed = f"{message_id}.{timestamp}.".encode() + body
    return "v1," + base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()


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
    ) -> None:
        self._target = target
        self._reach = reach
        self._judged: tuple[float, list[str]] | None = None
        self._failures = 0
        self._key = secret_key(os.environ.get(SECRET_VARIABLE, "") if secret is None else secret)
        self._answer_s = answer_s
        self._now = now
        self._url = httpx.URL(target.url)
        self._transport = httpx.AsyncHTTPTransport(
            limits=httpx.Limits(max_connections=IN_FLIGHT, max_keepalive_connections=IN_FLIGHT)
        )

    def __repr__(self) -> str:
        return f"WebhookBroker({self._target.shown})"

    async def publish(self, messages: Sequence[Outgoing]) -> Results:
        return await publish_by_key(messages, one_by_one(self._send), in_flight=IN_FLIGHT)

    async def close(self) -> None:
        await self._transport.aclose()

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
        # The parts of what is signed are told apart by dots, so the id must not hold one.
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
                "webhook-signature": signature(self._key, message_id, timestamp, body),
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
