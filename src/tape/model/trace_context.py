"""W3C trace context of a message: which span it comes from, and what may travel on with it.

Of `traceparent` the last value counts; several of `tracestate` and `baggage` are one list, as the
recommendations say. Without a valid `traceparent` there is nothing: the rest belongs to it.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple
from urllib.parse import quote, unquote

from tape.errors import InvalidArgument

TRACE_HEADERS: Final = ("traceparent", "tracestate", "baggage")
MOST_STATES: Final = 32
LONGEST_STATE: Final = 128
LONGEST_TRACESTATE: Final = 512
MOST_BAGGAGE: Final = 64
LONGEST_BAGGAGE: Final = 8192

_PARENT: Final = re.compile(
    r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.DOTALL
).fullmatch
_NO_VERSION: Final = "ff"
_KNOWN_FLAGS: Final = 0b11  # sampled, and that the trace id is random
_STATE_KEY: Final = r"[a-z0-9][a-z0-9_\-*/@]{0,255}"
_STATE: Final = re.compile(rf"({_STATE_KEY})=[ -+\--<>-~]{{0,255}}[!-+\--<>-~]").fullmatch
_TOKEN: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+").fullmatch
_BAGGAGE_PLAIN: Final = "!#$&'()*+-./:<=>?@[]^_`{|}~"
"""What stands for itself in a value of baggage, besides letters and digits."""


class TraceContext(NamedTuple):
    """W3C texts, empty where there is none."""

    traceparent: str = ""
    trace_id: str = ""
    span_id: str = ""
    tracestate: str = ""
    baggage: str = ""

    @property
    def texts(self) -> "TraceTexts":
        return TraceTexts(self.traceparent, self.tracestate, self.baggage)


def read_trace_context(
    values: Mapping[str, Sequence[bytes]], baggage_allowlist: Sequence[str]
) -> TraceContext:
    """`values` are those of headers by their names in lower case, in the order of arrival."""
    parents = values.get("traceparent", ())
    parsed = _parsed_parent(parents[-1]) if parents else None
    if parsed is None:
        return TraceContext()
    trace_id, span_id, flags = parsed
    return TraceContext(
        f"00-{trace_id}-{span_id}-{flags}",
        trace_id,
        span_id,
        _tracestate(_listed(values.get("tracestate", ()))),
        _baggage(_listed(values.get("baggage", ())), frozenset(baggage_allowlist)),
    )


class TraceTexts(NamedTuple):
    """Trace context as a caller states it: W3C texts, empty where there is none."""

    traceparent: str = ""
    tracestate: str = ""
    baggage: str = ""

    def checked(self) -> TraceContext:
        """As the recommendations have it; InvalidArgument where it is not as they say. What a
        header may leave out at will, a caller who states it means."""
        if not self.traceparent:
            for name, text in self._asdict().items():
                if text:
                    raise InvalidArgument("needs a traceparent", field=f"trace.{name}")
            return TraceContext()
        parsed = _parsed_parent(self.traceparent.encode(errors="replace"))
        if parsed is None:
            raise InvalidArgument(
                "is no W3C traceparent, as 00-<32 hex digits>-<16 hex digits>-01",
                field="trace.traceparent",
            )
        trace_id, span_id, flags = parsed
        states = _listed([self.tracestate.encode(errors="replace")])
        tracestate = _tracestate(states)
        if tracestate != ",".join(states):
            raise InvalidArgument(
                f"is no W3C tracestate: at most {MOST_STATES} members, as vendor=value, of "
                f"{LONGEST_TRACESTATE} characters together, and no vendor twice",
                field="trace.tracestate",
            )
        members = _listed([self.baggage.encode(errors="replace")])
        keys = [member.partition(";")[0].partition("=")[0].strip(" \t") for member in members]
        baggage = _baggage(members, frozenset(keys))
        if len(_listed([baggage.encode()])) != len(set(keys)):
            raise InvalidArgument(
                f"is no W3C baggage: at most {MOST_BAGGAGE} members, as key=value, of "
                f"{LONGEST_BAGGAGE} characters together",
                field="trace.baggage",
            )
        traceparent = f"00-{trace_id}-{span_id}-{flags}"
        return TraceContext(traceparent, trace_id, span_id, tracestate, baggage)


NO_TEXTS: Final = TraceTexts()


def _parsed_parent(came: bytes) -> tuple[str, str, str] | None:
    """Trace, span and flags. Of a version to come only what this one knows is told on."""
    found = _PARENT(came.decode(errors="replace").strip(" \t"))
    if found is None:
        return None
    version, trace_id, span_id, flags, more = found.groups()
    if version == _NO_VERSION or (version == "00" and more is not None):
        return None
    if not trace_id.strip("0") or not span_id.strip("0"):
        return None
    return trace_id, span_id, flags if version == "00" else f"{int(flags, 16) & _KNOWN_FLAGS:02x}"


def _listed(values: Iterable[bytes]) -> list[str]:
    members = (
        member.strip(" \t")
        for value in values
        for member in value.decode(errors="replace").split(",")
    )
    return [member for member in members if member]


def _tracestate(members: list[str]) -> str:
    """All or nothing of a list that is not as it should be; of one that is too long first what is
    long in it goes, then its end, which is its oldest part."""
    found = [_STATE(member) for member in members]
    keys = {state[1] for state in found if state}
    if len(members) > MOST_STATES or len(keys) < len(members):
        return ""
    size = sum(map(len, members)) + len(members) - 1
    if size > LONGEST_TRACESTATE:
        members = [member for member in members if len(member) <= LONGEST_STATE]
    while members and len(",".join(members)) > LONGEST_TRACESTATE:
        members.pop()
    return ",".join(members)


def _baggage(members: list[str], allowlist: frozenset[str]) -> str:
    """The members with those keys, each once with its last value, without properties."""
    found: dict[str, str] = {}
    for member in members:
        key, equals, value = member.partition(";")[0].partition("=")
        key = key.strip(" \t")
        if equals and key in allowlist and _TOKEN(key):
            found[key] = quote(unquote(value.strip(" \t")), safe=_BAGGAGE_PLAIN)
    kept: list[str] = []
    room = LONGEST_BAGGAGE
    for key, value in found.items():
        room -= len(key) + len(value) + 2
        if room >= 0 and len(kept) < MOST_BAGGAGE:
            kept.append(f"{key}={value}")
    return ",".join(kept)
