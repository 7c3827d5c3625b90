"""Bus subjects and the patterns that select them."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tape.errors import InvalidArgument, TooLarge
from tape.model.bus_subject import (
    BUS_SUBJECT_BYTES,
    bus_subject,
    check_bus_pattern,
    check_bus_subject,
    matches_bus_pattern,
)

TOKENS = st.text("abz019_-", min_size=1, max_size=4)
SUBJECTS = st.lists(TOKENS, min_size=1, max_size=5).map(".".join)


@given(SUBJECTS)
def test_what_the_grammar_says_is_a_subject(subject: str) -> None:
    assert check_bus_subject(subject) == subject
    assert check_bus_pattern(subject) == subject


@pytest.mark.parametrize(
    ("text", "position", "said"),
    [
        ("market.BTCUSDT.1m", 7, "'B' is not allowed: .*write 'market.btcusdt.1m'"),
        ("market..1m", 7, "a token is empty"),
        (".market", 0, "a token is empty"),
        ("market.", 7, "a token is empty"),
        ("market.*", 7, "an event has one subject; wildcards"),
        ("market.>", 7, "an event has one subject; wildcards"),
        ("market klines", 6, "' ' is not allowed: a token has lower-case letters"),
        ("market.kl\0nes", 9, "is not allowed"),
        ("märkte", 1, "is not allowed: a token has lower-case letters, digits, - and _$"),
        ("market\n", 6, "is not allowed"),
    ],
)
def test_a_fault_is_named_and_placed(text: str, position: int, said: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        check_bus_subject(text)
    assert refused.value.position == position
    assert refused.value.field == "subject"
    assert re.search(said, str(refused.value))


def test_the_length_is_bounded() -> None:
    assert check_bus_subject("a" * BUS_SUBJECT_BYTES)
    with pytest.raises(TooLarge, match="256 characters, the limit is 255"):
        check_bus_subject("a" * (BUS_SUBJECT_BYTES + 1))
    with pytest.raises(InvalidArgument, match="must not be empty"):
        check_bus_subject("")
    with pytest.raises(InvalidArgument, match="must be a text, not bytes"):
        check_bus_subject(b"market")  # type: ignore[arg-type]


def test_values_become_tokens() -> None:
    made = bus_subject("market.klines.binance", "spot", "BTCUSDT", "1m")
    assert made == "market.klines.binance.spot.btcusdt.1m"
    assert bus_subject("trading.fills", 7) == "trading.fills.7"


@pytest.mark.parametrize("value", ["", "BTC.USDT", "BTC USDT", "*", ">", "\u212a1m", "\uff22TC"])
def test_what_cannot_be_a_token_is_refused(value: str) -> None:
    """The Kelvin sign's lower case is an ordinary k."""
    with pytest.raises(InvalidArgument, match="is not one token") as refused:
        bus_subject("market", "spot", value)
    assert refused.value.field == "values[1]"


def test_the_root_is_taken_as_it_is() -> None:
    with pytest.raises(InvalidArgument, match=r"root at position 0.*write 'market'"):
        bus_subject("Market", "spot")


@pytest.mark.parametrize("text", ["market.>.1m", "market.a*", "market.>>", "*.Spot", ""])
def test_what_is_no_pattern_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgument):
        check_bus_pattern(text)


PATTERNS = st.lists(TOKENS | st.just("*"), min_size=1, max_size=4).flatmap(
    lambda tokens: st.sampled_from([".".join(tokens), ".".join([*tokens, ">"])])
)


@given(PATTERNS, SUBJECTS)
def test_a_pattern_selects_what_its_expression_does(pattern: str, subject: str) -> None:
    check_bus_pattern(pattern)
    parts = [{"*": "[^.]+", ">": ".+"}.get(t, re.escape(t)) for t in pattern.split(".")]
    expression = r"\.".join(parts)
    assert matches_bus_pattern(pattern, subject) == bool(re.fullmatch(expression, subject))


@pytest.mark.parametrize(
    ("pattern", "subject", "selected"),
    [
        ("market.klines.>", "market.klines.binance.spot", True),
        ("market.klines.>", "market.klines", False),
        ("market.*.binance", "market.klines.binance", True),
        ("market.*.binance", "market.klines.kraken", False),
        ("market.*", "market.klines.binance", False),
        (">", "market", True),
        ("intents.executor", "intents.executor", True),
        ("intents.executor", "intents", False),
    ],
)
def test_patterns(pattern: str, subject: str, selected: bool) -> None:
    assert matches_bus_pattern(pattern, subject) is selected
