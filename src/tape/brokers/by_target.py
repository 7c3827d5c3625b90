"""What a publish target names: check it, open it.

The clients are extras, so a broker's module is imported when a target asks for it.
"""

from importlib.util import find_spec
from typing import assert_never

from tape.brokers.log import LogBroker
from tape.brokers.logins import ENVIRONMENT, Logins
from tape.brokers.reach import Reach, places
from tape.brokers.targets import (
    KafkaTarget,
    LogTarget,
    NatsTarget,
    PubSubTarget,
    Target,
    WebhookTarget,
    parse_target,
)
from tape.errors import BrokerUnavailable, InvalidArgument
from tape.ports.broker import Broker, BusBroker
from tape.settings import StreamSettings

_CLIENTS: dict[type[Target], tuple[str, str, str]] = {
    NatsTarget: ("NATS", "nats", "nats"),
    KafkaTarget: ("Kafka", "confluent_kafka", "kafka"),
    PubSubTarget: ("Pub/Sub", "google.pubsub_v1", "pubsub"),
}


def check_target(target: str, reach: Reach) -> None:
    """InvalidArgument with the field `publish_target` if a reaction cannot have it.

    Needs no client and no network. A reaction is kept in the store and shown to whoever may list
    reactions, so its target may hold no login.
    """
    parsed = parse_target(target)
    if isinstance(parsed, NatsTarget) and parsed.user:
        raise InvalidArgument(
            "contains a login, which everybody who may list reactions could read; put it into "
            "TAPE_NATS_USER and TAPE_NATS_PASSWORD, or name a file in TAPE_NATS_CREDENTIALS, "
            "where the worker runs",
            field="publish_target",
        )
    reach.check(parsed)


def check_client(target: str) -> None:
    """BrokerUnavailable if what the target needs is not installed here."""
    _require_client(parse_target(target))


async def open_broker(
    target: str, reach: Reach | None = None, logins: Logins = ENVIRONMENT
) -> Broker:
    """The broker a target names. It connects when it is first used; a credential that it will need
    then must be there now.

    A reaction's target is held to a reach; without one it is the operator's own.
    """
    parsed = parse_target(target)
    if reach is not None:
        reach.check(parsed)
    _require_client(parsed)
    await logins.check(parsed)
    open_login = logins.of(parsed)
    match parsed:
        case NatsTarget():
            from tape.brokers.nats import NatsBroker

            return NatsBroker(parsed, reach=reach, open_login=open_login)
        case KafkaTarget():
            from tape.brokers.kafka import KafkaBroker

            if reach is not None:
                for place in places(parsed):
                    await reach.resolve(place)
            return KafkaBroker(parsed, open_login=open_login)
        case PubSubTarget():
            from tape.brokers.pubsub import PubSubBroker

            return PubSubBroker(parsed, open_login=open_login)
        case WebhookTarget():
            from tape.brokers.webhook import WebhookBroker

            return WebhookBroker(parsed, reach=reach, open_login=open_login)
        case LogTarget():
            return LogBroker()
        case _:
            assert_never(parsed)


def open_bus_broker(
    url: str,
    stream: StreamSettings,
    *,
    keep_s: float,
    field: str,
    logins: Logins = ENVIRONMENT,
) -> BusBroker:
    """The broker of an outbox that knows ids for `keep_s`. It connects when it is first used."""
    require_nats()
    from tape.brokers.nats_bus import NatsBusBroker

    return NatsBusBroker(url, stream, keep_s=keep_s, field=field, logins=logins)


def require_nats() -> None:
    """BrokerUnavailable if the client of NATS is not installed here."""
    _require(NatsTarget)


def _require_client(target: Target) -> None:
    _require(type(target))


def _require(kind: type[Target]) -> None:
    if kind in _CLIENTS:
        name, module, extra = _CLIENTS[kind]
        if not _installed(module):
            raise BrokerUnavailable(f'{name} needs its client: pip install "tape-bus[{extra}]"')


def _installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # a parent package is missing
        return False
