"""Bus subjects: tokens of lower-case letters, digits, `-` and `_`, with dots between.

`market.klines.binance.spot.btcusdt.1m` is one. They are what a broker routes by, unlike the
journal's own subjects (`model.subject`). In a *bus pattern* `*` stands for exactly one token and a
final `>` for one or more. Upper case is refused, not folded: two spellings of one symbol would be
two subjects at the broker. `bus_subject` makes one out of values and does fold them.
"""

import re

from tape.errors import InvalidArgument, TooLarge

BUS_SUBJECT_BYTES = 255

_ANY = "*"
_REST = ">"
_TOKEN = re.compile(r"[a-z0-9_-]+").fullmatch
_SUBJECT = re.compile(r"[a-z0-9_-]+(?:\.[a-z0-9_-]+)*").fullmatch
_FAULT = re.compile(r"[^a-z0-9_-]").search
_ALPHABET = "lower-case letters, digits, - and _"


def bus_subject(root: str, *values: str | int) -> str:
    """A subject from its root and values that become one token each, lower-cased.

    `bus_subject("market.klines.binance", "spot", "BTCUSDT", "1m")`
    """
    tokens = [_token(value, index) for index, value in enumerate(values)]
    check_bus_subject(root, field="root")
    return check_bus_subject(".".join((root, *tokens)))


def check_bus_subject(text: str, *, field: str = "subject") -> str:
    """`text` if it is a subject, or a refusal that says where the fault is."""
    if isinstance(text, str) and _SUBJECT(text) and len(text) <= BUS_SUBJECT_BYTES:
        return text
    _check_text(text, field)
    at = 0
    for token in text.split("."):
        if set(token) & {_ANY, _REST}:
            raise InvalidArgument(
                "an event has one subject; wildcards are only for patterns",
                field=field,
                position=at,
            )
        _check_token(token, at, field, text)
        at += len(token) + 1
    return text


def check_bus_pattern(text: str, *, field: str = "subject") -> str:
    """`text` if it is a pattern, or a refusal that says where the fault is."""
    _check_text(text, field)
    tokens = text.split(".")
    at = 0
    for index, token in enumerate(tokens):
        if token == _REST and index + 1 < len(tokens):
            raise InvalidArgument("> may only be the last token", field=field, position=at)
        if token not in (_ANY, _REST):
            _check_token(token, at, field, text)
        at += len(token) + 1
    return text


def matches_bus_pattern(pattern: str, subject: str) -> bool:
    """Whether a pattern that is one selects a subject that is one."""
    wanted, tokens = pattern.split("."), subject.split(".")
    deep = wanted[-1] == _REST
    if len(tokens) < len(wanted) or (len(tokens) > len(wanted) and not deep):
        return False
    return all(w in (_ANY, _REST, token) for w, token in zip(wanted, tokens, strict=False))


def _token(value: str | int, index: int) -> str:
    # Only ASCII is folded: the lower case of some other letters is a letter of the alphabet.
    text = str(value)
    folded = text.lower() if text.isascii() else text
    if not _TOKEN(folded):
        raise InvalidArgument(
            f"{text!r} is not one token of a subject: {_ALPHABET}", field=f"values[{index}]"
        )
    return folded


def _check_text(text: str, field: str) -> None:
    if not isinstance(text, str):
        raise InvalidArgument(f"must be a text, not {type(text).__name__}", field=field)
    if not text:
        raise InvalidArgument("must not be empty", field=field)
    if len(text) > BUS_SUBJECT_BYTES:
        raise TooLarge(f"{len(text)} characters, the limit is {BUS_SUBJECT_BYTES}", field=field)


def _check_token(token: str, at: int, field: str, text: str) -> None:
    if not token:
        raise InvalidArgument("a token is empty", field=field, position=at)
    fault = _FAULT(token)
    if fault is None:
        return
    hint = f"a token has {_ALPHABET}"
    if text.isascii() and _SUBJECT(text.lower()):
        hint += f"; write {text.lower()!r}"
    raise InvalidArgument(
        f"{fault[0]!r} is not allowed: {hint}", field=field, position=at + fault.start()
    )
