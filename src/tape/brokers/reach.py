"""Where the targets of reactions may lead, and which hosts are given this process's logins.

A target comes from whoever may register reactions. The logins in the environment, and the
credentials of the wallet, belong to whoever runs this process. So a login goes only to hosts that
the operator named, and a target leads to an address of this machine or of its network only where
that is no way in for others:

* link-local addresses (169.254/16, fe80::/10), where clouds keep a machine's own credentials, are
  refused;
* loopback and private addresses are refused too if others can reach the server, or the settings
  do not allow them: a worker on the store itself cannot know who registers reactions in it;
* a host that the operator named is allowed whatever its address.

An address counts as what a connection would use: `2852039166`, `0251.0376.0251.0376` and
`::ffff:169.254.169.254` are 169.254.169.254. A name is resolved, its addresses are judged, and the
connection is made to one that was judged, so an answer that changes in between changes nothing.
"""

import asyncio
import os
import re
import socket
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import Final, assert_never

from tape.brokers.kafka_config import CONFIG_VARIABLE, read_config
from tape.brokers.logins import NO_ALIASES, alias_of
from tape.brokers.targets import (
    KafkaTarget,
    LogTarget,
    NatsTarget,
    PubSubTarget,
    Target,
    WebhookTarget,
    parse_nats_url,
)
from tape.errors import BrokerRefused, BrokerUnavailable, InvalidArgument
from tape.settings import CredentialSettings, Settings

HOSTS_VARIABLE: Final = "TAPE_BROKER_HOSTS"
NATS_VARIABLES: Final = ("TAPE_NATS_USER", "TAPE_NATS_CREDENTIALS")
WEBHOOK_VARIABLE: Final = "TAPE_WEBHOOK_SECRET"
SETTING: Final = "tape.brokers.hosts"
RESOLVE_S: Final = 5.0

_NAT64: Final = IPv6Network("64:ff9b::/96")
_ENTRY = re.compile(
    r"(?:\*\.)?(?:\[[0-9a-f:.]+\]|[a-z0-9](?:[a-z0-9._-]*))(?::[0-9]{1,5})?"
).fullmatch
_PORTS: Final = {"nats": 4222, "kafka": 9092, "https": 443, "http": 80}


@dataclass(frozen=True, slots=True)
class HostPort:
    """A host and port that a target names, as one connects to them."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Reach:
    """`hosts` are those that the operator named. `exposed`: others can register reactions."""

    hosts: tuple[str, ...] = ()
    exposed: bool = False
    aliases: CredentialSettings = NO_ALIASES

    @classmethod
    def of(cls, settings: Settings, *, exposed: bool = False) -> "Reach":
        """The hosts of the settings and of the environment, and those it has a login for."""
        named = [*settings.brokers.hosts, *_listed(os.environ.get(HOSTS_VARIABLE, ""))]
        hosts = [_checked(entry.strip().lower()) for entry in named]
        if settings.outbox.nats:
            hosts += parse_nats_url(settings.outbox.nats, field="tape.outbox.nats")
        is_exposed = exposed or not settings.brokers.allow_private
        return cls(tuple(hosts) + _kafka_servers(), is_exposed, settings.credentials)

    def trusts(self, place: HostPort) -> bool:
        return any(_covers(entry.lower(), place) for entry in self.hosts)

    def check(self, target: Target) -> None:
        """InvalidArgument if it cannot be published to from here. Names are not resolved yet."""
        strange = [place for place in places(target) if not self.trusts(place)]
        for place in strange:
            literal = _literal(place.host)
            if literal is not None and (why := self._objection(literal)):
                raise _refusal(f"{place} is {why}", place)
        if strange and (login := login_of(target, self.aliases)):
            raise _refusal(f"{login} of this process may not be sent to {strange[0]}", strange[0])
        if strange and isinstance(target, KafkaTarget) and self.exposed:
            raise _refusal(
                f"the Kafka client connects to any address that {strange[0]} names", strange[0]
            )

    async def resolve(self, place: HostPort) -> list[str]:
        """The addresses of a host, each of which may be connected to."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(RESOLVE_S):
                found = await loop.getaddrinfo(place.host, place.port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError, TimeoutError) as error:
            reason = type(error).__name__
            raise BrokerUnavailable(f"{place}: its address cannot be resolved ({reason})") from None
        addresses = list(dict.fromkeys(str(one[4][0]) for one in found))
        if not self.trusts(place):
            for address in addresses:
                if why := self._objection(ip_address(address.partition("%")[0])):
                    raise BrokerRefused(f"{place} is at {address}, {why}; {_remedy(place)}")
        return addresses

    def _objection(self, address: IPv4Address | IPv6Address) -> str:
        address = _embedded(address)
        if address.is_link_local:
            return "a link-local address"
        if self.exposed and not address.is_global:
            kind = "a loopback" if address.is_loopback else "a private"
            return f"{kind} address, and others can register reactions here"
        return ""


def places(target: Target) -> list[HostPort]:
    """What a target makes this process connect to; the address of Pub/Sub is Google's own."""
    match target:
        case NatsTarget():
            return [_place(host, _PORTS["nats"]) for host in target.hosts]
        case KafkaTarget():
            return [_place(host, _PORTS["kafka"]) for host in target.hosts]
        case WebhookTarget():
            scheme, _, rest = target.origin.partition("://")
            return [_place(rest, _PORTS[scheme])]
        case PubSubTarget() | LogTarget():
            return []
        case _:
            assert_never(target)


def login_of(target: Target, aliases: CredentialSettings = NO_ALIASES) -> str:
    """What this process would send to the target, in words; empty if nothing."""
    if alias := alias_of(target, aliases):
        return f"the credential {alias!r}"
    if isinstance(target, NatsTarget):
        return "the NATS login" if any(map(os.environ.get, NATS_VARIABLES)) else ""
    if isinstance(target, KafkaTarget):
        return "the Kafka login" if os.environ.get(CONFIG_VARIABLE) else ""
    if isinstance(target, WebhookTarget):
        return "the signing secret" if os.environ.get(WEBHOOK_VARIABLE) else ""
    return ""


def _place(text: str, port: int) -> HostPort:
    host, colon, given = text.rpartition(":")
    if not colon or text.endswith("]") or not given.isdecimal():
        return HostPort(text.strip("[]"), port)
    return HostPort(host.strip("[]"), int(given))


def _covers(entry: str, place: HostPort) -> bool:
    named = _place(entry, 0)
    host = place.host.lower().rstrip(".")
    if named.port not in (0, place.port):
        return False
    if named.host.startswith("*."):
        return host.endswith(named.host[1:]) and host != named.host[2:]
    return host == named.host


def _literal(host: str) -> IPv4Address | IPv6Address | None:
    """The address that a host spells out, in whatever way a connection would take it."""
    if host.lower().rstrip(".") == "localhost":
        return IPv4Address("127.0.0.1")
    try:
        return ip_address(host)
    except ValueError:
        pass
    try:
        return IPv4Address(socket.inet_aton(host))
    except (OSError, UnicodeError):
        return None


def _embedded(address: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    """The IPv4 address within an IPv6 one that leads there."""
    if isinstance(address, IPv4Address):
        return address
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour or address


def _kafka_servers() -> tuple[str, ...]:
    """The servers that the file of TAPE_KAFKA_CONFIG names beside its login."""
    path = os.environ.get(CONFIG_VARIABLE, "")
    if not path:
        return ()
    return tuple(_listed(str(read_config(path).get("bootstrap.servers", ""))))


def _listed(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _checked(entry: str) -> str:
    if not _ENTRY(entry):
        raise InvalidArgument(f"{entry!r} is not HOST, HOST:PORT or *.DOMAIN", field=SETTING)
    return entry


def _refusal(what: str, place: HostPort) -> InvalidArgument:
    return InvalidArgument(f"{what}; {_remedy(place)}", field="publish_target")


def _remedy(place: HostPort) -> str:
    return f"to allow it, add {str(place)!r} to {SETTING} or to {HOSTS_VARIABLE}"
