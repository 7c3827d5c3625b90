"""Clients of the counterparties, for programs with an event loop and without one.

The three errors are the three things a caller must tell apart: it was not done and may be tried
again (`Unavailable`), it will not be done (`Refused`), and nobody knows (`AckLost`).
"""

import functools
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

import httpx

from examples.treasury import asks
from examples.treasury.asks import Ask

T = TypeVar("T")
P = ParamSpec("P")

TIMEOUT_S = 10.0
TLS = httpx.create_ssl_context()
"""For all of them: reading the list of authorities takes longer than most calls."""


class CounterpartyError(Exception):
    """A counterparty did not do what it was asked."""


class Unavailable(CounterpartyError):
    """It could not be reached or was away: nothing was done."""


class Refused(CounterpartyError):
    """It will not do this: nothing was done, and asking again is of no use."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(f"refused ({status}): {reason}")
        self.status = status
        self.reason = reason


class AckLost(CounterpartyError):
    """It was asked and gave no answer that tells: it may have been done or not."""


class Client:
    """Sends one request at a time and waits for its answer."""

    def __init__(self, url: str, *, timeout_s: float = TIMEOUT_S) -> None:
        self._http = httpx.Client(**_options(url, timeout_s))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    def send(self, ask: Ask[T]) -> T:
        with _translated(ask):
            response = self._http.request(**_request(ask))
        return _answer(ask, response)


class AsyncClient:
    """The same for a program with an event loop."""

    def __init__(self, url: str, *, timeout_s: float = TIMEOUT_S) -> None:
        self._http = httpx.AsyncClient(**_options(url, timeout_s))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._http.aclose()

    async def send(self, ask: Ask[T]) -> T:
        with _translated(ask):
            response = await self._http.request(**_request(ask))
        return _answer(ask, response)


def _sending(describe: Callable[P, Ask[T]]) -> Callable[Concatenate[Client, P], T]:
    @functools.wraps(describe)
    def call(self: Client, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self.send(describe(*args, **kwargs))

    return call


def _awaiting(describe: Callable[P, Ask[T]]) -> Callable[Concatenate[AsyncClient, P], Awaitable[T]]:
    @functools.wraps(describe)
    async def call(self: AsyncClient, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self.send(describe(*args, **kwargs))

    return call


class Bank(Client):
    balances = _sending(asks.balances)
    wire = _sending(asks.wire)
    wire_status = _sending(asks.wire_status)
    plain_wire = _sending(asks.plain_wire)
    plain_wires = _sending(asks.plain_wires)
    reverse = _sending(asks.reverse)


class AsyncBank(AsyncClient):
    balances = _awaiting(asks.balances)
    wire = _awaiting(asks.wire)
    wire_status = _awaiting(asks.wire_status)
    plain_wire = _awaiting(asks.plain_wire)
    plain_wires = _awaiting(asks.plain_wires)
    reverse = _awaiting(asks.reverse)


class Broker(Client):
    quote = _sending(asks.quote)
    order = _sending(asks.order)
    order_status = _sending(asks.order_status)
    cancel = _sending(asks.cancel)


class AsyncBroker(AsyncClient):
    quote = _awaiting(asks.quote)
    order = _awaiting(asks.order)
    order_status = _awaiting(asks.order_status)
    cancel = _awaiting(asks.cancel)


class Ledger(Client):
    post = _sending(asks.post)
    batch_status = _sending(asks.batch_status)


class AsyncLedger(AsyncClient):
    post = _awaiting(asks.post)
    batch_status = _awaiting(asks.batch_status)


class Controls(Client):
    """For tests: what shall go wrong, and what has been done."""

    set_hook = _sending(asks.set_hook)
    clear_hooks = _sending(asks.clear_hooks)
    calls = _sending(asks.calls)
    books = _sending(asks.books)


def _options(url: str, timeout_s: float) -> dict[str, Any]:
    return {
        "base_url": url,
        "timeout": timeout_s,
        "trust_env": False,
        "verify": TLS,
        # A connection kept from an earlier call may be closed by now, and that looks like an
        # answer lost. One connection for each call tells "not sent" from "not answered".
        "limits": httpx.Limits(max_keepalive_connections=0),
    }


def _request(ask: Ask[Any]) -> dict[str, Any]:
    return {
        "method": ask.method,
        "url": ask.path,
        "params": ask.query,
        "headers": ask.headers,
        "json": ask.body,
    }


@contextmanager
def _translated(ask: Ask[Any]) -> Iterator[None]:
    try:
        yield
    except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout) as error:
        raise Unavailable(f"{ask.path} could not be reached: {error!r}") from error
    except (httpx.NetworkError, httpx.TimeoutException, httpx.RemoteProtocolError) as error:
        raise _unanswered(ask, repr(error)) from error


def _answer(ask: Ask[T], response: httpx.Response) -> T:
    if response.is_success:
        answer: T = response.json()
        return answer
    if response.status_code == httpx.codes.SERVICE_UNAVAILABLE:
        raise Unavailable(f"{ask.path} is away: {_reason(response)}")
    if response.is_client_error:
        raise Refused(response.status_code, _reason(response))
    raise _unanswered(ask, f"{response.status_code} {_reason(response)}")


def _unanswered(ask: Ask[Any], why: str) -> CounterpartyError:
    """Only who asked for something to be done can have lost the word of it."""
    kind = Unavailable if ask.method == "GET" else AckLost
    return kind(f"{ask.method} {ask.path} was sent and not answered: {why}")


def _reason(response: httpx.Response) -> str:
    try:
        return str(response.json()["reason"])
    except (ValueError, TypeError, KeyError):
        return response.text
