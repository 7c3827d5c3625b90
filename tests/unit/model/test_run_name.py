"""A run's id is made of its name, and is what it always was."""

import hashlib
from base64 import b32hexencode

from hypothesis import given
from hypothesis import strategies as st

from tape.model.run import RunName


@given(st.lists(st.text(max_size=20), min_size=4, max_size=4))
def test_it_is_the_beginning_of_a_digest(parts: list[str]) -> None:
    digest = hashlib.sha256("\0".join(parts).encode(errors="surrogatepass")).digest()
    expected = b32hexencode(digest[:16]).decode().rstrip("=").lower()
    assert RunName(*parts).run_id == expected


def test_journals_that_are_there_know_it() -> None:
    assert RunName("desk", "event", "s", "event:order.placed:E3").run_id == (
        "mdq4jnlcotc4gv2c1kuh9b5ob4"
    )
