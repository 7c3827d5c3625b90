"""A hold on a row: granted with the next token, stale from the takeover on."""

from typing import NamedTuple

import pytest

from tape.errors import InvalidArgument, StaleLease
from tape.model.hold import check_held, check_ttl, granted, is_held, let_go, renewed
from tape.model.lease import MOST_TTL_MS

NOW, TTL = 1_000, 100


class Post(NamedTuple):
    """A row that is held, with a column beside."""

    name: str
    lease_owner: str = ""
    lease_expires_at_ms: int = 0
    fencing_token: int = 0


def check(row: Post | None, token: int) -> Post:
    return check_held(row, token, what="post 'p'", who="guard")


def test_each_grant_has_the_next_token_and_leaves_the_rest_of_the_row() -> None:
    first = granted(Post("p"), "a", TTL, NOW)
    assert first == Post("p", "a", NOW + TTL, 1)
    assert granted(first, "b", TTL, NOW + TTL) == Post("p", "b", NOW + 2 * TTL, 2)


def test_it_is_alive_until_it_expires() -> None:
    row = granted(Post("p"), "a", TTL, NOW)
    assert is_held(row, NOW + TTL - 1)
    assert not is_held(row, NOW + TTL)
    assert is_held(renewed(row, TTL, NOW + TTL), NOW + TTL)
    assert not is_held(Post("p", "", NOW + TTL), NOW)


def test_a_token_is_good_after_its_expiry_until_another_is_granted() -> None:
    row = granted(Post("p"), "a", TTL, NOW)
    assert check(row, 1) is row
    taken = granted(row, "b", TTL, NOW + 2 * TTL)
    with pytest.raises(StaleLease, match=r"post 'p' is at fencing token 2, this guard has 1"):
        check(taken, 1)


@pytest.mark.parametrize(
    "row", [None, Post("p"), let_go(granted(Post("p"), "a", TTL, NOW))], ids=str
)
def test_without_a_lease_no_token_is_good(row: Post | None) -> None:
    for token in (0, 1):
        with pytest.raises(StaleLease):
            check(row, token)


def test_whoever_lets_go_leaves_the_token_to_count_on() -> None:
    left = let_go(granted(Post("p"), "a", TTL, NOW))
    assert left == Post("p", "", 0, 1)
    assert granted(left, "b", TTL, NOW).fencing_token == 2


@pytest.mark.parametrize("ttl_ms", [-1, 0, MOST_TTL_MS + 1])
def test_a_lease_has_a_length(ttl_ms: int) -> None:
    with pytest.raises(InvalidArgument) as refused:
        check_ttl(ttl_ms)
    assert refused.value.field == "lease_ttl_ms"
    assert check_ttl(MOST_TTL_MS) == MOST_TTL_MS
