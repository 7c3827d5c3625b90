"""The targets that entries are published to, parsed: no client and no network is needed for it.

A refusal says what is wrong and what to write. It never repeats a user, a password or the path of
a webhook, for such a path is often a secret itself.
"""

import re
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias
from urllib.parse import unquote, urlsplit

from tape.errors import InvalidArgument
from tape.wire.loopback import is_loopback

NATS_URL_FORM: Final = "nats://HOST:PORT[,HOST:PORT]"
NATS_FORM: Final = "nats://HOST:PORT/SUBJECT"
KAFKA_FORM: Final = "kafka://HOST:PORT[,HOST:PORT]/TOPIC"
PUBSUB_FORM: Final = "pubsub://PROJECT/TOPIC"
WEBHOOK_FORM: Final = "https://HOST/PATH (http:// for a loopback host only)"
LOG_FORM: Final = "log:"
CREDENTIAL_MARK: Final = "#credential="
FORMS: Final = ", ".join((NATS_FORM, KAFKA_FORM, PUBSUB_FORM, WEBHOOK_FORM, LOG_FORM))

_HOST = re.compile(
    r"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9](?:[A-Za-z0-9._-]*))(?::[0-9]{1,5})?"
).fullmatch
_SUBJECT_TOKEN = re.compile(r"[^\s.*>\x00-\x1f\x7f]+").fullmatch
_KAFKA_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}").fullmatch
_PROJECT = re.compile(r"[a-z0-9](?:[a-z0-9.:-]{0,98}[a-z0-9])?").fullmatch
_PUBSUB_TOPIC = re.compile(r"(?!goog)[A-Za-z][A-Za-z0-9._~+%-]{2,254}").fullmatch


@dataclass(frozen=True, slots=True)
class NatsTarget:
    hosts: tuple[str, ...]
    subject: str
    user: str = field(default="", repr=False)
    password: str = field(default="", repr=False)
    credential: str = ""
    """The alias of the login in the wallet, if the target names one; likewise below."""

    @property
    def shown(self) -> str:
        return f"nats://{','.join(self.hosts)}" + (f"/{self.subject}" if self.subject else "")


@dataclass(frozen=True, slots=True)
class KafkaTarget:
    hosts: tuple[str, ...]
    topic: str
    credential: str = ""

    @property
    def shown(self) -> str:
        return f"kafka://{','.join(self.hosts)}/{self.topic}"


@dataclass(frozen=True, slots=True)
class PubSubTarget:
    project: str
    topic: str
    credential: str = ""

    @property
    def shown(self) -> str:
        return f"pubsub://{self.project}/{self.topic}"


@dataclass(frozen=True, slots=True)
class WebhookTarget:
    url: str = field(repr=False)
    origin: str
    credential: str = ""

    @property
    def shown(self) -> str:
        return self.origin


@dataclass(frozen=True, slots=True)
class LogTarget:
    shown: str = LOG_FORM


Target: TypeAlias = NatsTarget | KafkaTarget | PubSubTarget | WebhookTarget | LogTarget


def parse_target(text: str) -> Target:
    """A target of one of the forms. Each but `log:` may end in `#credential=ALIAS`, which names its
    login in the wallet."""
    text, mark, alias = text.partition(CREDENTIAL_MARK)
    target = _parsed(text)
    if not mark:
        return target
    if not alias or isinstance(target, LogTarget):
        raise _refusal(
            f"names no credential; use {FORMS}, each but the last with #credential=ALIAS"
        )
    if isinstance(target, NatsTarget) and target.user:
        raise _refusal("contains a login and names a credential; leave one of them out")
    return replace(target, credential=unquote(alias))


def _parsed(text: str) -> Target:
    scheme, colon, rest = text.partition(":")
    if text == LOG_FORM:
        return LogTarget()
    if not colon or not rest.startswith("//"):
        raise _refusal(f"is not a target; use one of {FORMS}")
    rest = rest[2:]
    if scheme == "nats":
        return _nats(rest)
    if scheme == "kafka":
        return _kafka(rest)
    if scheme == "pubsub":
        return _pubsub(rest)
    if scheme in ("https", "http"):
        return _webhook(text, scheme)
    raise _refusal(f"{scheme!r} is not a kind of target; use one of {FORMS}")


def parse_nats_url(text: str, *, field: str) -> tuple[str, ...]:
    """The hosts of `nats://HOST:PORT[,HOST:PORT]`, as settings name them: without a login, for
    settings are shown."""
    scheme, _, rest = text.partition("://")
    place, _, path = rest.partition("/")
    if scheme != "nats" or not place or path:
        raise InvalidArgument(f"is not {NATS_URL_FORM}", field=field)
    if "@" in place:
        raise InvalidArgument(
            "contains a login, which everybody who may see the settings could read; put it into "
            "TAPE_NATS_USER and TAPE_NATS_PASSWORD, or name a file in TAPE_NATS_CREDENTIALS",
            field=field,
        )
    try:
        return _hosts(place, NATS_URL_FORM)
    except InvalidArgument as fault:
        raise InvalidArgument(str(fault).partition(": ")[2], field=field) from None


def _nats(rest: str) -> NatsTarget:
    place, _, subject = rest.partition("/")
    login, _, hosts = place.rpartition("@")
    user, _, password = login.partition(":")
    if not subject:
        raise _refusal(f"names no subject; use {NATS_FORM}")
    if not all(map(_SUBJECT_TOKEN, subject.split("."))):
        raise _refusal(
            "the subject is words joined by dots, without wildcards or spaces, such as tape.events"
        )
    if subject.startswith("$"):
        raise _refusal("subjects that start with $ belong to the NATS server")
    return NatsTarget(_hosts(hosts, NATS_FORM), subject, unquote(user), unquote(password))


def _kafka(rest: str) -> KafkaTarget:
    hosts, _, topic = rest.partition("/")
    if "@" in hosts:
        raise _refusal(
            "contains credentials; put them into a file of client settings, and name the file "
            "in TAPE_KAFKA_CONFIG"
        )
    if not topic:
        raise _refusal(f"names no topic; use {KAFKA_FORM}")
    if not _KAFKA_TOPIC(topic) or topic in (".", ".."):
        raise _refusal("a Kafka topic is 1 to 249 letters, digits, dots, _ and -")
    return KafkaTarget(_hosts(hosts, KAFKA_FORM), topic)


def _pubsub(rest: str) -> PubSubTarget:
    project, _, topic = rest.partition("/")
    if "@" in project:
        raise _refusal("contains credentials; Pub/Sub takes them from Google's environment")
    if not project or not topic:
        raise _refusal(f"names no {'topic' if project else 'project'}; use {PUBSUB_FORM}")
    if not _PROJECT(project):
        raise _refusal("a project id is lower-case letters, digits and -")
    if not _PUBSUB_TOPIC(topic):
        raise _refusal(
            "a Pub/Sub topic is 3 to 255 letters, digits and -._~+%, "
            "starts with a letter and not with goog"
        )
    return PubSubTarget(project, topic)


def _webhook(text: str, scheme: str) -> WebhookTarget:
    try:
        parts = urlsplit(text)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        raise _refusal(f"is not a URL; use {WEBHOOK_FORM}") from None
    if "@" in parts.netloc:
        raise _refusal("contains credentials; a webhook is signed with TAPE_WEBHOOK_SECRET instead")
    if not _HOST(parts.netloc):
        raise _refusal(f"names no host; use {WEBHOOK_FORM}")
    if parts.fragment or not re.fullmatch(r"[\x21-\x7e]+", text):
        raise _refusal("a webhook's URL has no fragment, no spaces and only ASCII characters")
    if scheme == "http" and not is_loopback(host):
        raise _refusal("http:// would send entries unencrypted; use https://")
    shown = f"[{host}]" if ":" in host else host
    return WebhookTarget(text, f"{scheme}://{shown}" + (f":{port}" if port else ""))


def _hosts(text: str, form: str) -> tuple[str, ...]:
    hosts = tuple(text.split(","))
    for host in hosts:
        port = host.rpartition(":")[2] if not host.endswith("]") else ""
        if not _HOST(host) or (port.isdecimal() and ":" in host and not 0 < int(port) < 65536):
            raise _refusal(f"{host!r} is not HOST:PORT; use {form}")
    return hosts


def _refusal(what: str) -> InvalidArgument:
    return InvalidArgument(what, field="publish_target")
