"""Where NATS is and how to log in, of a credential's value: see `brokers/nats_login.py`."""

from collections.abc import Sequence

from tape.brokers.credential_fields import CredentialFields
from tape.brokers.nats_connection import LoginRefused, NatsConnection
from tape.brokers.nats_login import NatsAddress, read_nats
from tape.ports.credentials import OpenedCredential
from tape.sources.credential_fields import read_source_fields
from tape.sources.first_login import open_with_first


def nats_addresses(credential: OpenedCredential | None) -> list[NatsAddress]:
    """Those of its current value and of the one before it, if that is still good. SourceRefused,
    without any of the values, if none is of that form."""
    return read_source_fields(credential, "nats", _with_servers)


async def connect_nats(addresses: Sequence[NatsAddress], name: str = "tape") -> NatsConnection:
    """With the first that gets in. BrokerUnavailable; LoginRefused if that is the logins' fault."""

    async def connect(address: NatsAddress) -> NatsConnection:
        return await NatsConnection.open(address.hosts, address.login, address.shown, name=name)

    return await open_with_first(addresses, connect, LoginRefused)


def _with_servers(given: CredentialFields) -> NatsAddress:
    given.texts("servers")
    return read_nats(given)
