"""A poll of a source in an app: what is asked, and what the app gets.

The names of its fields are those of a document of `kind: Subscription`.
"""

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, NamedTuple

from tape.errors import InvalidArgument
from tape.model.subscription_spec import (
    MOST_TIMEOUT_MS,
    OTHER_TIMEOUT_MS,
    TIMEOUT_MS,
    PayloadFrom,
    RuntimeSpec,
    SourceKind,
    SourceSpec,
)

MOST_BATCH: Final = 10_000
LONGEST_SHOWN: Final = 400
_NEEDS: Final = {
    SourceKind.NATS: ("auth", "stream", "consumer"),
    SourceKind.KAFKA: ("auth", "topic", "group"),
    SourceKind.PUBSUB: ("auth", "subscription"),
    SourceKind.FILE: ("folder",),
}
_MAY: Final = {SourceKind.FILE: ("pattern",)}
_FORMS: Final = {
    "stream": (r"[^\s.*>/\\]{1,255}", "a name in NATS: without spaces, ., *, >, / and \\"),
    "consumer": (r"[^\s.*>/\\]{1,255}", "a name in NATS: without spaces, ., *, >, / and \\"),
    "topic": (r"[A-Za-z0-9._-]{1,249}", "a Kafka topic: 1 to 249 letters, digits, ., _ and -"),
    "subscription": (
        r"projects/[a-z0-9][a-z0-9.:-]{0,98}/subscriptions/[A-Za-z][A-Za-z0-9._~+%-]{2,254}",
        "projects/PROJECT/subscriptions/SUBSCRIPTION",
    ),
}


class PollAck(StrEnum):
    """When the messages of a poll are acknowledged.

    `ON_SUCCESS`: once the run has ended well. `AUTO`: once the journal has them. `MANUAL`: by the
    app, with `ctx.ack`.
    """

    ON_SUCCESS = "on_success"
    AUTO = "auto"
    MANUAL = "manual"


@dataclass(frozen=True, slots=True)
class Polled:
    """What a poll has brought, now and in every replay.

    A message is `{"payload": …, "message": {id, place, source, …}}`, as the input of a run that a
    subscription starts. One that could not be read as asked has `refused`, the reason, and
    `detail` beside them. `acked` is whether the poll has acknowledged the messages itself, as it
    does with `ack="auto"`. `receipts` is for `ctx.ack`; it is empty unless the poll is `manual`.
    """

    messages: list[dict[str, Any]]
    count: int
    acked: bool
    receipts: list[str]


class PollRequest(NamedTuple):
    source: SourceSpec
    batch: int
    timeout_ms: int
    ack: PollAck
    payload_from: PayloadFrom

    @property
    def name(self) -> str:
        """What is polled, for people: `nats/ORDERS/orders-drain`."""
        spec = self.source
        fields = (spec.subscription, spec.stream, spec.consumer, spec.topic, spec.group,
                  spec.folder, spec.pattern)  # fmt: skip
        shown = "/".join((spec.kind.value, *(field.strip("/") for field in fields if field)))
        return shown.encode()[:LONGEST_SHOWN].decode(errors="ignore")

    def as_json(self) -> dict[str, Any]:
        """What the journal has of it: a replay must ask the same."""
        given = self.source._asdict()
        return {
            "source": given.pop("kind").value,
            **{field: value for field, value in given.items() if value},
            "batch": self.batch,
            "timeout_ms": self.timeout_ms,
            "ack": self.ack.value,
            "payload_from": self.payload_from.value,
        }

    def receipts(self, places: Iterable[str]) -> list[str]:
        """What a run knows messages by: two consumers of a stream have the same places."""
        source = hashlib.sha256("\n".join(self.source).encode()).hexdigest()[:12]
        return [f"{source}/{place}" for place in places]

    def polled(self, items: list[dict[str, Any]]) -> Polled:
        receipts = self.receipts(places_of(items)) if self.ack is PollAck.MANUAL else []
        return Polled(items, len(items), self.ack is PollAck.AUTO, receipts)


def places_of(items: list[dict[str, Any]]) -> list[str]:
    return [item["message"]["place"] for item in items]


def poll_request(
    source: str,
    fields: dict[str, str],
    *,
    batch: int,
    timeout_ms: int | None,
    ack: str,
    payload_from: str,
) -> PollRequest:
    """Check what an app asks; InvalidArgument names the field."""
    kind = SourceKind(_one_of(source, [kind.value for kind in _NEEDS], "source"))
    _check_fields(kind, fields)
    most = MOST_TIMEOUT_MS.get(kind, OTHER_TIMEOUT_MS)
    default = TIMEOUT_MS.get(kind, RuntimeSpec().timeout_ms)
    return PollRequest(
        SourceSpec(kind, **fields),
        _between(batch, MOST_BATCH, "batch"),
        default if timeout_ms is None else _between(timeout_ms, most, "timeout_ms"),
        PollAck(_one_of(ack, [each.value for each in PollAck], "ack")),
        PayloadFrom(_one_of(payload_from, [each.value for each in PayloadFrom], "payload_from")),
    )


def _check_fields(kind: SourceKind, fields: dict[str, str]) -> None:
    needs, may = _NEEDS[kind], _MAY.get(kind, ())
    for field, value in fields.items():
        if not isinstance(value, str) or not value.isprintable():
            raise InvalidArgument("must be a text without control characters", field=field)
        if not value and field in needs:
            raise InvalidArgument(f"is required for source {kind.value}", field=field)
        if value and field not in needs + may:
            raise InvalidArgument(f"does not belong to source {kind.value}", field=field)
        pattern, form = _FORMS.get(field, ("", ""))
        if value and pattern and not re.fullmatch(pattern, value):
            raise InvalidArgument(f"{value!r} is not {form}", field=field)


def _one_of(given: str, known: list[str], field: str) -> str:
    if given not in known:
        raise InvalidArgument(f"{given!r} is not one of {', '.join(known)}", field=field)
    return given


def _between(number: int, most: int, field: str) -> int:
    if isinstance(number, bool) or not isinstance(number, int) or not 1 <= number <= most:
        raise InvalidArgument(f"{number!r} is not in 1..{most}", field=field)
    return number
