"""The JetStream stream of the outbox: made as the settings say, or brought up to them safely.

What loses nothing is applied: subjects that are added, limits that are raised. What could lose
messages (a limit lowered, a subject taken out) is refused with both values unless it is forced;
what a stream cannot change (its storage, its retention) is refused in any case. Everything the
settings do not speak of stays as it is, so the server's own JSON is changed and sent back, not what
a client library knows of it.
"""

import re
from typing import Any, Final, Literal, NamedTuple

import orjson
from nats.errors import Error as NatsError

from tape.brokers.nats_connection import NatsConnection
from tape.errors import BrokerUnavailable, InvalidArgument, NotFound
from tape.model.bus_subject import check_bus_pattern
from tape.settings import StreamSettings

NS: Final = 1_000_000_000
UNLIMITED: Final = 2**63 - 1
NO_STREAM, NO_CONSUMER = 10059, 10014  # of JetStream's error codes
_NAME_TAKEN, _OVERLAP = 10058, 10065

_NAME = re.compile(r"[A-Za-z0-9_-]{1,255}").fullmatch

Config = dict[str, Any]


class Difference(NamedTuple):
    """A setting that the stream has otherwise, both as people read them."""

    field: str
    is_now: str
    wanted: str
    verdict: Literal["safe", "loses", "impossible"]


class StreamChange(NamedTuple):
    """What was done to the stream, or for `unchanged` was not needed."""

    outcome: Literal["created", "updated", "unchanged"]
    changes: list[Difference]


class JetStreamError(Exception):
    """What JetStream answered instead; `code` is one of its own error codes."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


def check_stream(settings: StreamSettings) -> None:
    """InvalidArgument if no stream can be like that."""
    if not _NAME(settings.name):
        raise InvalidArgument("is not letters, digits, - and _", field="tape.stream.name")
    for place, subject in enumerate(settings.subjects):
        field = f"tape.stream.subjects[{place}]"
        check_bus_pattern(subject, field=field)
        if subject in settings.subjects[:place]:
            raise InvalidArgument(f"{subject} is listed twice", field=field)
    if settings.duplicate_window_s > settings.max_age_s:
        raise InvalidArgument(
            f"is {settings.duplicate_window_s:g} s and may not be longer than max_age_s, "
            f"{settings.max_age_s:g} s",
            field="tape.stream.duplicate_window_s",
        )


def new_config(settings: StreamSettings) -> Config:
    return {
        "name": settings.name,
        "subjects": list(settings.subjects),
        "retention": "limits",
        "storage": "file",
        "discard": "old",
        "max_age": int(settings.max_age_s * NS),
        "max_bytes": settings.max_bytes,
        "duplicate_window": int(settings.duplicate_window_s * NS),
        "num_replicas": settings.replicas,
        "max_msgs": -1,
        "max_consumers": -1,
        "max_msg_size": -1,
        "max_msgs_per_subject": -1,
    }


def differences(config: Config, settings: StreamSettings) -> list[Difference]:
    """Where a stream is otherwise than the settings say."""
    found: list[Difference] = []
    has, wants = list(config.get("subjects") or []), list(settings.subjects)
    if set(has) != set(wants):
        verdict: Literal["safe", "loses"] = "safe" if set(has) < set(wants) else "loses"
        found.append(Difference("subjects", ", ".join(has), ", ".join(wants), verdict))
    limits = (
        ("max_age_s", config.get("max_age", 0) / NS, settings.max_age_s),
        ("max_bytes", config.get("max_bytes", -1), settings.max_bytes),
    )
    for field, is_now, wanted in limits:
        if is_now != wanted:
            safe = 0 < is_now < wanted
            shown = _number(is_now) if is_now > 0 else "without a limit"
            found.append(Difference(field, shown, _number(wanted), "safe" if safe else "loses"))
    for field, is_now, wanted in (
        (
            "duplicate_window_s", config.get("duplicate_window", 0) / NS,
            settings.duplicate_window_s,
        ),
        ("replicas", config.get("num_replicas", 1), settings.replicas),
    ):  # fmt: skip
        if is_now != wanted:
            kind: Literal["safe", "loses"] = "safe" if is_now < wanted else "loses"
            found.append(Difference(field, _number(is_now), _number(wanted), kind))
    if config.get("discard", "old") != "old":
        found.append(Difference("discard", str(config["discard"]), "old", "loses"))
    for field, value in (("storage", "file"), ("retention", "limits")):
        if config.get(field, value) != value:
            found.append(Difference(field, str(config[field]), value, "impossible"))
    return found


def _number(number: float) -> str:
    return f"{number:.15g}"


async def read_stream(connection: NatsConnection, name: str) -> dict[str, Any]:
    """What the server says of a stream: its `config` and its `state`."""
    try:
        return await call_jetstream(connection, f"STREAM.INFO.{name}")
    except JetStreamError as error:
        if error.code == NO_STREAM:
            raise NotFound(f"there is no stream {name}") from None
        raise BrokerUnavailable(f"the stream {name}: {error}") from None


async def apply_stream(
    connection: NatsConnection, settings: StreamSettings, *, force: bool = False
) -> StreamChange:
    """Make the stream, or bring it up to the settings; InvalidArgument where that is refused."""
    check_stream(settings)
    if not settings.subjects:
        raise InvalidArgument(
            "is empty: say which subjects the stream takes, such as [trading.>]",
            field="tape.stream.subjects",
        )
    try:
        config = (await read_stream(connection, settings.name))["config"]
    except NotFound:
        return await _create(connection, settings, force=force)
    found = differences(config, settings)
    if not found:
        return StreamChange("unchanged", [])
    _refuse(settings, found, force=force)
    changed = {**config, **_changed_fields(settings, found)}
    try:
        await call_jetstream(connection, f"STREAM.UPDATE.{settings.name}", changed)
    except JetStreamError as error:
        raise await _explained(connection, settings, error) from None
    return StreamChange("updated", found)


async def _create(
    connection: NatsConnection, settings: StreamSettings, *, force: bool
) -> StreamChange:
    try:
        await call_jetstream(connection, f"STREAM.CREATE.{settings.name}", new_config(settings))
    except JetStreamError as error:
        if error.code == _NAME_TAKEN:  # another process was quicker, and wants it otherwise
            return await apply_stream(connection, settings, force=force)
        raise await _explained(connection, settings, error) from None
    return StreamChange("created", [])


def _changed_fields(settings: StreamSettings, found: list[Difference]) -> Config:
    names = {
        "max_age_s": "max_age", "duplicate_window_s": "duplicate_window",
        "replicas": "num_replicas",
    }  # fmt: skip
    wanted = new_config(settings)
    fields = [names.get(difference.field, difference.field) for difference in found]
    return {field: wanted[field] for field in fields}


def _refuse(settings: StreamSettings, found: list[Difference], *, force: bool) -> None:
    bad = [d for d in found if d.verdict == "impossible" or (d.verdict == "loses" and not force)]
    if not bad:
        return
    told = "; ".join(f"{d.field} is {d.is_now}, wanted {d.wanted}" for d in bad)
    if any(difference.verdict == "impossible" for difference in bad):
        advice = "JetStream cannot change this: name another stream, or remove this one"
    else:
        advice = (
            "that could lose messages: correct the settings, or run `tape outbox stream apply "
            "--force`"
        )
    raise InvalidArgument(
        f"the stream {settings.name} differs from the settings: {told}; {advice}",
        field=f"tape.stream.{bad[0].field}",
    )


async def _explained(
    connection: NatsConnection, settings: StreamSettings, error: JetStreamError
) -> InvalidArgument:
    if error.code != _OVERLAP:
        return InvalidArgument(f"the server refuses it: {error}", field="tape.stream")
    for subject in settings.subjects:
        names = (await call_jetstream(connection, "STREAM.NAMES", {"subject": subject})).get(
            "streams"
        ) or []
        others = [name for name in names if name != settings.name]
        if others:
            return InvalidArgument(
                f"{subject} is taken by the stream {', '.join(others)}: set tape.stream.name to "
                "that stream, or remove the subject from one of them",
                field="tape.stream.subjects",
            )
    return InvalidArgument(str(error), field="tape.stream.subjects")


async def call_jetstream(
    connection: NatsConnection, method: str, body: dict[str, Any] | None = None
) -> dict[str, Any]:
    """What the server answers; JetStreamError if that is an error. BrokerUnavailable if it does not
    answer or has no JetStream now."""
    request = orjson.dumps(body) if body else b""
    try:
        answer = await connection.request(f"$JS.API.{method}", request)
    except (NatsError, OSError, TimeoutError) as error:
        raise BrokerUnavailable(f"JetStream does not answer: {type(error).__name__}") from None
    told: dict[str, Any] = orjson.loads(answer.data)
    if fault := told.get("error"):
        refusal = JetStreamError(
            int(fault.get("err_code", 0)), str(fault.get("description", fault))
        )
        if fault.get("code") == 503:
            raise BrokerUnavailable(f"JetStream: {refusal}") from refusal
        raise refusal
    return told
