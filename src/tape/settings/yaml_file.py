"""A settings file in YAML: what lies under `tape:` mirrors the dataclasses of `tape.settings`.

The nodes of the document are read, so numbers are those of Python, and a fault is told by how the
file writes it.
"""

import logging
from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, get_type_hints

import yaml

from tape.errors import InvalidArgument
from tape.settings import MIB, OutboxSettings, ReactorSettings, ReactorsSettings, Settings
from tape.settings.yaml_nodes import (
    FILE_RULES,
    NULL_TAG,
    NUMBER_OR_TEXT_TAGS,
    compose,
    did_you_mean,
    refusal,
    shown,
)

log = logging.getLogger("tape.settings")

RETIRED = {"tape.reactors.timers": "timers are fired without a lease"}
"""Keys of an older version, and why there are none now. A file that has them is read without."""
WEEK_S = 7 * 24 * 3600


class AllowedRange(NamedTuple):
    least: float
    most: float
    or_zero: bool = False

    def holds(self, number: float) -> bool:
        return self.least <= number <= self.most or (self.or_zero and number == 0)

    def __str__(self) -> str:
        span = f"from {self.least} to {self.most} is allowed"
        return f"0 or {span}" if self.or_zero else span


# Times end up as whole milliseconds, where 0 often means without end.
SECONDS = AllowedRange(0.001, WEEK_S)
COUNT = AllowedRange(1, 2**31 - 1)
BYTES = AllowedRange(1, 2**40)
LEASE_S = AllowedRange(0.1, WEEK_S)
THREADS = AllowedRange(1, 10_000)
SECONDS_OR_NONE = AllowedRange(0.001, WEEK_S, or_zero=True)

# By the end of a key: the longest that fits holds.
RANGES = {
    "": COUNT,
    "_s": SECONDS,
    "_bytes": BYTES,
    "tape.limits.json_depth": AllowedRange(1, 1_000),
    "tape.limits.request_bytes": AllowedRange(1, 512 * MIB),  # gRPC counts a message in 31 bits
    "tape.writer.queue_wait_s": SECONDS_OR_NONE,
    "tape.writer.retry_for_s": SECONDS_OR_NONE,
    "tape.matcher.ttl_s": LEASE_S,
    "tape.dispatcher.lease_s": LEASE_S,
    "tape.dispatcher.grace_s": SECONDS_OR_NONE,
    ".lease_ttl_s": LEASE_S,
    ".heartbeat_s": SECONDS_OR_NONE,
    "tape.outbox.hung_s": LEASE_S,
    "tape.stream.max_age_s": AllowedRange(1, 520 * WEEK_S),
    "tape.outbox.lock_key": AllowedRange(1, 2**63 - 2),  # the next one is a lock, too
    "tape.drainers.lease_s": LEASE_S,
    "tape.listeners.lease_s": LEASE_S,
    "tape.listeners.grace_s": SECONDS_OR_NONE,
    "tape.predicates.share": AllowedRange(0.01, 1),
    ".threads": THREADS,
    ".readers": THREADS,
    ".workers": THREADS,
}


@dataclass(frozen=True)
class _Document:
    tape: Settings


def read_yaml(file: Path, base: Settings) -> Settings:
    """`base` with what the file changes."""
    try:
        text = file.read_bytes()
    except OSError as fault:
        raise InvalidArgument(
            f"cannot be read: {fault.strerror}; --config or TAPE_CONFIG name a settings file",
            field=str(file),
        ) from None
    node = compose(text, FILE_RULES, field=str(file), name=str(file))
    if node is None:
        return base
    document: _Document = _merged(node, _Document(base), "")
    return document.tape


def _merged(node: yaml.Node, section: Any, at: str) -> Any:
    """The section with what the node changes."""
    kinds = get_type_hints(type(section))
    changes: dict[str, Any] = {}
    nodes: dict[str, yaml.Node] = {}
    for name, value in _pairs(node, [field.name for field in fields(section)], at):
        key = _join(at, name)
        if name in nodes:
            raise refusal(value, key, "is listed twice; remove one")
        nodes[name] = value
        now = getattr(section, name)
        if is_dataclass(now):
            changes[name] = _merged(value, now, key)
        else:
            changes[name] = _setting(value, kinds[name], key)
    merged = replace(section, **changes)
    for name, message in _at_odds(merged):
        if name in nodes:
            raise refusal(nodes[name], _join(at, name), message)
    return merged


def _pairs(node: yaml.Node, known: list[str], at: str) -> Iterator[tuple[str, yaml.Node]]:
    if node.tag == NULL_TAG:
        return
    listed = ", ".join(known)
    if not isinstance(node, yaml.MappingNode):
        message = f"{shown(node)} is not a section; known here: {listed}"
        raise refusal(node, at or str(node.start_mark.name), message)
    for key, value in node.value:
        name = key.value if isinstance(key, yaml.ScalarNode) else shown(key)
        if (at_key := _join(at, name)) in RETIRED:
            line = key.start_mark.line + 1
            log.warning(
                "%s (%s, line %d) no longer has an effect: %s. Remove it from the file",
                at_key, key.start_mark.name, line, RETIRED[at_key],
            )  # fmt: skip
            continue
        if name not in known:
            message = f"there is no such key; {did_you_mean(name, known)}known here: {listed}"
            raise refusal(key, _join(at, name), message)
        yield name, value


def _setting(node: yaml.Node, kind: Any, at: str) -> float | str | tuple[str, ...]:
    if kind is str:
        return _text(node, at)
    if kind is bool:
        return _flag(node, at)
    if kind == tuple[str, ...]:
        if not isinstance(node, yaml.SequenceNode):
            raise refusal(node, at, f"{shown(node)} is not a list of texts")
        return tuple(_text(item, f"{at}[{place}]") for place, item in enumerate(node.value))
    return _number(node, kind, at)


def _text(node: yaml.Node, at: str) -> str:
    if not isinstance(node, yaml.ScalarNode) or node.tag == NULL_TAG:
        raise refusal(node, at, f"{shown(node)} is not a text")
    return str(node.value)


def _flag(node: yaml.Node, at: str) -> bool:
    plain = isinstance(node, yaml.ScalarNode) and not node.style
    if not plain or node.value not in ("true", "false"):
        raise refusal(node, at, f"{shown(node)} is not true or false")
    return bool(node.value == "true")


def _number(node: yaml.Node, kind: type[float], at: str) -> float:
    allowed = range_of(at)
    plain = isinstance(node, yaml.ScalarNode) and not node.style and node.tag in NUMBER_OR_TEXT_TAGS
    try:
        number: float = kind(node.value if plain else "")
    except ValueError:
        wanted = "a whole number" if kind is int else "a number"
        raise refusal(node, at, f"{shown(node)} is not {wanted}; {allowed}") from None
    if not allowed.holds(number):
        raise refusal(node, at, f"{shown(node)} is out of range; {allowed}")
    return number


def range_of(key: str) -> AllowedRange:
    return RANGES[max(filter(key.endswith, RANGES), key=len)]


def _at_odds(section: object) -> Iterator[tuple[str, str]]:
    """Settings of a section that do not go together."""
    match section:
        case ReactorSettings(ttl, heartbeat) if 3 * heartbeat >= 2 * ttl:
            message = (
                f"heartbeat_s is {heartbeat:g} and must be below two thirds of lease_ttl_s, which "
                f"is {ttl:g}, or a lease is given up before it is renewed"
            )
            yield "heartbeat_s", message
            yield "lease_ttl_s", message
        case (
            ReactorsSettings(backoff_first_s=first, backoff_most_s=most)
            | OutboxSettings(backoff_first_s=first, backoff_most_s=most)
        ) if first > most:
            message = f"backoff_first_s is {first:g} and backoff_most_s only {most:g}"
            yield "backoff_first_s", message
            yield "backoff_most_s", message
        case OutboxSettings(nats=nats) if "@" in nats:
            message = (
                "contains a login, which `tape config show` would print; put it into "
                "TAPE_NATS_USER and TAPE_NATS_PASSWORD, or name a file in TAPE_NATS_CREDENTIALS"
            )
            yield "nats", message
        case Settings(outbox=outbox, stream=stream) if outbox.keep_s < stream.duplicate_window_s:
            message = (
                f"keep_s of tape.outbox is {outbox.keep_s:g} and must not be below "
                f"duplicate_window_s of tape.stream, which is {stream.duplicate_window_s:g}: a "
                "second event under an id that the outbox has forgotten would be dropped silently"
            )
            yield "outbox", message
            yield "stream", message


def _join(at: str, name: str) -> str:
    return f"{at}.{name}" if at else name
