"""A server of NATS that cannot be reached is told in words, not by the name of a Python class."""

import socket
import ssl

import pytest
from nats.errors import Error, UnexpectedEOF

from tape.brokers.nats_connection import NatsConnection, _plainly
from tape.errors import BrokerUnavailable, SourceUnavailable
from tape.model.subscription_spec import SourceKind, SourceSpec
from tape.sources.nats import open_nats
from tests.integration.sources.credentials import opened
from tests.servers.ports import free_port


async def test_nobody_is_there() -> None:
    address = f"127.0.0.1:{free_port()}"
    with pytest.raises(BrokerUnavailable) as away:
        await NatsConnection.open([address], {}, f"nats://{address}")
    assert str(away.value) == f"cannot connect to nats://{address} (connection refused)"


async def test_a_source_names_stream_and_consumer() -> None:
    server = f"nats://127.0.0.1:{free_port()}"
    spec = SourceSpec(SourceKind.NATS, auth="desk", stream="ORDERS", consumer="desk")
    with pytest.raises(SourceUnavailable) as away:
        await open_nats(spec, opened({"servers": [server]}), name="t")
    said = f"stream ORDERS, consumer desk: cannot connect to {server} (connection refused)"
    assert str(away.value) == said
    assert away.value.at == server


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ConnectionResetError(104, "any"), "connection reset by peer"),
        (TimeoutError(), "no answer in time"),
        (socket.gaierror(-2, "Name or service not known"), "its name cannot be resolved"),
        (OSError("Multiple exceptions: [Errno 111] …"), "none of its addresses answers"),
        (ssl.SSLError(1, "[SSL: WRONG_VERSION_NUMBER] …"), "the TLS handshake failed"),
        (UnexpectedEOF(), "unexpected EOF"),
        (Error("nats: 'maximum connections exceeded'"), "maximum connections exceeded"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_went_wrong(error: Exception, words: str) -> None:
    assert _plainly(error) == words
