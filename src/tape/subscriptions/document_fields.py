"""The kinds of values in a document of `kind: Subscription`: what each may be, and what a refusal
says that it has to be. The JSON schema says the same where JSON schema can."""

import re
from dataclasses import dataclass
from typing import Annotated, Any, Final
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    Strict,
    WithJsonSchema,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError
from pydantic_core.core_schema import no_info_after_validator_function

from tape.model.subscription_spec import FILE_PATTERN, FILE_PATTERN_FORM
from tape.settings.yaml_nodes import abridged, has_login
from tape.subscriptions.cadence import cadence_fault

HOUR_MS: Final = 3_600_000
DAY_S: Final = 86_400
NAME_BYTES: Final = 512
KEY_BYTES: Final = 4096
HEADER_NAME: Final = r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,256}"
ID_HEADER: Final = r"[A-Za-z0-9_-]{1,256}"
"""A header as `message_id` names it: without dots, which CEL has."""
_UNITS: Final = {"": 1, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
_SIZE = re.compile(r"([1-9][0-9]{0,15})(Ki|Mi|Gi|Ti)").fullmatch
_MOST_BYTES: Final = 1024 * 2**40
_HOST: Final = r"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9][A-Za-z0-9._-]*)"
_PARTS: Final = r"(?:[^{}]|\{id\}|\{timestamp\}|\{url\})"
_LOGIN: Final = "contains a login, which a document must not; write "
_LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")


def _refused(said: str) -> PydanticCustomError:
    return PydanticCustomError("said", "{said}", {"said": said})


def _plain_text(text: str) -> str:
    if not text:
        raise _refused("must not be empty")
    if not text.isprintable():
        raise _refused("contains a control character or a line break; remove it")
    if len(text) > NAME_BYTES or len(text.encode()) > NAME_BYTES:
        raise _refused(f"is longer than {NAME_BYTES} bytes")
    return text


@dataclass(frozen=True)
class TextForm:
    """A text of a pattern; a refusal says that it has to be `form`."""

    pattern: str
    form: str
    is_folded: bool = False
    """Whether upper and lower case are the same."""

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return no_info_after_validator_function(self._checked, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return handler(schema) | {"pattern": f"^(?:{self.pattern})$"}

    def _checked(self, text: str) -> str:
        if not re.fullmatch(self.pattern, _plain_text(text)):
            if has_login(text):
                raise _refused(_LOGIN + self.form)
            raise _refused(f"{abridged(text)} is not {self.form}")
        return text.lower() if self.is_folded else text


@dataclass(frozen=True)
class UrlForm:
    """A URL without a login. Schemes of `loopback` are for hosts of this machine alone."""

    form: str
    schemes: tuple[str, ...]
    loopback: tuple[str, ...] = ()

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return no_info_after_validator_function(self._checked, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return handler(schema) | {"pattern": f"^(?:{'|'.join(self.schemes + self.loopback)})://"}

    def _checked(self, text: str) -> str:
        try:
            parts = urlsplit(_plain_text(text))
            has_port = parts.port is None or parts.port > 0
        except ValueError:
            raise _refused(f"is not {self.form}") from None
        if "@" in parts.netloc:
            raise _refused(_LOGIN + self.form)
        if not parts.hostname or not has_port or " " in text:
            raise _refused(f"is not {self.form}")
        if parts.scheme in self.loopback and parts.hostname not in _LOOPBACK:
            raise _refused(f"{parts.scheme}:// is for this machine alone; write {self.form}")
        if parts.scheme not in self.schemes + self.loopback:
            raise _refused(f"is not {self.form}")
        return text


@dataclass(frozen=True)
class Between:
    """A number within bounds."""

    least: float
    most: float

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return no_info_after_validator_function(self._checked, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return handler(schema) | {"minimum": self.least, "maximum": self.most}

    def _checked(self, number: float) -> float:
        if not self.least <= number <= self.most:
            span = f"from {self.least} to {self.most} is allowed"
            raise _refused(f"{number} is out of range; {span}")
        return number


def _bytes(given: Any) -> Any:
    """An integer, or a text with one of the units."""
    found = _SIZE(given) if isinstance(given, str) else None
    if found is None and (isinstance(given, bool) or not isinstance(given, int)):
        raise _refused("must be a whole number of bytes, or a text such as 512Mi or 50Gi")
    size = given if found is None else int(found[1]) * _UNITS[found[2]]
    if not 1 <= size <= _MOST_BYTES:
        raise _refused(f"{abridged(str(given))} is out of range; from 1 to 1024Ti is allowed")
    return size


def _expression(text: str) -> str:
    if not text.strip():
        raise _refused("must not be empty")
    if len(text.encode()) > KEY_BYTES:
        raise _refused(f"is longer than {KEY_BYTES} bytes")
    return text


def _cadence(text: str) -> str:
    if fault := cadence_fault(_plain_text(text)):
        raise _refused(f"{_LOGIN}a cadence" if has_login(text) else fault)
    return text


Text = Annotated[
    str, AfterValidator(_plain_text), Field(json_schema_extra={"minLength": 1, "maxLength": 512})
]
KeyText = Annotated[
    str,
    AfterValidator(_expression),
    Field(json_schema_extra={"minLength": 1, "maxLength": KEY_BYTES}),
]
Word = Strict(strict=False)
"""For a field that is one of the words of an enumeration, which a document has as a text."""

SubscriptionName = Annotated[
    str,
    TextForm(
        r"[a-z0-9][a-z0-9._-]{0,127}",
        "a name: 1 to 128 of a-z, 0-9, ., _ and -, the first a letter or digit",
    ),
]
CatalogPath = Annotated[
    str,
    TextForm(
        r"subscriptions/[a-z0-9][a-z0-9._-]{0,127}",
        "subscriptions/ and the name of the subscription",
    ),
]
HeaderName = Annotated[
    str,
    TextForm(HEADER_NAME, "a header's name: letters, digits and !#$%&'*+-.^_`|~", is_folded=True),
]
BaggageKey = Annotated[
    str, TextForm(HEADER_NAME, "a key of baggage: letters, digits and !#$%&'*+-.^_`|~")
]
GatewayPath = Annotated[
    str,
    TextForm(
        r"/ingress/[A-Za-z0-9][A-Za-z0-9._~-]{0,127}",
        "/ingress/ and one segment of letters, digits, ., _, ~ and -",
    ),
]
PubSubSubscription = Annotated[
    str,
    TextForm(
        r"projects/[a-z0-9][a-z0-9.:-]{0,98}/subscriptions/[A-Za-z][A-Za-z0-9._~+%-]{2,254}",
        "projects/PROJECT/subscriptions/SUBSCRIPTION",
    ),
]
NatsName = Annotated[
    str, TextForm(r"[^\s.*>/\\]{1,255}", "a name in NATS: without spaces, ., *, >, / and \\")
]
KafkaTopic = Annotated[
    str,
    TextForm(r"[A-Za-z0-9._-]{1,249}", "a Kafka topic: 1 to 249 letters, digits, ., _ and -"),
]
ServiceAccount = Annotated[
    str, TextForm(r"[^@\s]+@[^@\s]+", "the e-mail address of a service account")
]
TopicArn = Annotated[
    str,
    TextForm(
        r"arn:aws[a-z-]*:sns:[a-z0-9-]+:[0-9]{12}:[A-Za-z0-9_.-]{1,256}",
        "the ARN of an SNS topic: arn:aws:sns:REGION:ACCOUNT:TOPIC",
    ),
]
TcpAddress = Annotated[str, TextForm(rf"{_HOST}:[0-9]{{1,5}}", "HOST:PORT")]
NatsUrl = Annotated[
    str,
    TextForm(
        rf"(?:nats|tls)://{_HOST}(?::[0-9]{{1,5}})?(?:,{_HOST}(?::[0-9]{{1,5}})?)*",
        "nats://HOST:PORT[,HOST:PORT], without a login",
    ),
]
FilePattern = Annotated[str, TextForm(FILE_PATTERN, FILE_PATTERN_FORM)]
SignatureParts = Annotated[
    str,
    TextForm(
        rf"{_PARTS}*\{{body\}}{_PARTS}*",
        "a text with {body} in it once, and {id}, {timestamp} and {url} if they are signed",
    ),
]
HttpUrl = Annotated[str, UrlForm("http://HOST or https://HOST", ("http", "https"))]
KeySetUrl = Annotated[str, UrlForm("https://HOST/PATH", ("https",), loopback=("http",))]
ServerUrl = Annotated[
    str, UrlForm("https://HOST or tapes://HOST:PORT", ("https", "tapes"), loopback=("tape",))
]
CronText = Annotated[
    str,
    AfterValidator(_cadence),
    Field(json_schema_extra={"pattern": "^ *[^ ]+(?: +[^ ]+){4} *$", "maxLength": 200}),
]
Size = Annotated[
    int,
    BeforeValidator(_bytes),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "minimum": 1, "maximum": _MOST_BYTES},
                {"type": "string", "pattern": "^[1-9][0-9]{0,15}(?:Ki|Mi|Gi|Ti)$"},
            ]
        }
    ),
]
