"""Google's client of Pub/Sub, made for an account."""

import asyncio
from typing import Any, Final
from urllib.parse import quote

import google.auth
from google.api_core.gapic_v1.client_info import ClientInfo
from google.auth.credentials import Credentials
from google.auth.exceptions import DefaultCredentialsError, GoogleAuthError
from google.pubsub_v1 import SubscriberAsyncClient
from google.pubsub_v1.services.subscriber.transports import SubscriberGrpcAsyncIOTransport

from tape.brokers.google_account import SCOPES, GoogleAccount
from tape.errors import SourceRefused, SourceUnavailable
from tape.settings import VERSION
from tape.wire.channel import plain_channel

CLOSE_S: Final = 2.0
FIND_S: Final = 15.0
# A connection that was cut without a word is found out by it, as Google's own library does.
_KEEPALIVE: Final = (("grpc.keepalive_time_ms", 30_000), ("grpc.keepalive_timeout_ms", 20_000))


async def make_client(account: GoogleAccount, name: str) -> SubscriberAsyncClient:
    """`name` is shown to the service. SourceRefused or SourceUnavailable if this process is nobody
    in particular."""
    info = ClientInfo(user_agent=f"tape/{VERSION} {quote(name)}")  # type: ignore[no-untyped-call]
    if account.emulator_host:
        channel = plain_channel(account.emulator_host)
        transport = SubscriberGrpcAsyncIOTransport(channel=channel, client_info=info)
        return SubscriberAsyncClient(transport=transport)
    credentials = account.credentials or await _application_default()
    transport = SubscriberGrpcAsyncIOTransport(
        credentials=credentials, channel=_kept_alive, client_info=info
    )
    return SubscriberAsyncClient(transport=transport)


def endpoint_of(account: GoogleAccount) -> str:
    """Where the client of this account connects to."""
    return account.emulator_host or SubscriberAsyncClient.DEFAULT_ENDPOINT


async def close_client(client: SubscriberAsyncClient) -> None:
    closing = client.transport.close()  # type: ignore[no-untyped-call]  # the library has no types
    await asyncio.wait_for(closing, CLOSE_S)


def _kept_alive(host: str, **given: Any) -> Any:
    options = [*(given.pop("options", None) or []), *_KEEPALIVE]
    return SubscriberGrpcAsyncIOTransport.create_channel(host, options=options, **given)


async def _application_default() -> Credentials:
    try:
        async with asyncio.timeout(FIND_S):
            found, _project = await asyncio.to_thread(google.auth.default, scopes=SCOPES)
    except DefaultCredentialsError:
        raise SourceRefused(
            "auth: this process has no application default credentials; set "
            "GOOGLE_APPLICATION_CREDENTIALS, or give a service account"
        ) from None
    except (GoogleAuthError, TimeoutError) as error:
        raise SourceUnavailable(
            f"Google's credentials: {type(error).__name__}", at="Google's credentials"
        ) from None
    credentials: Credentials = found
    return credentials
