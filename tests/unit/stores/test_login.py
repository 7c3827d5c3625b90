"""No part of a login is repeated, whatever form a URL has."""

import pytest

from tape.errors import InvalidArgument
from tape.stores.by_url import dialect_of, display
from tape.stores.postgres.connection import address

WELL_FORMED = [
    ("postgres://u:s3cret@h:5433/db", "postgres://h:5433/db", "h:5433/db"),
    ("postgresql://u:s3cret@h/db?password=s3cret", "postgresql://h/db", "h:5432/db"),
    ("postgres:///db?password=s3cret", "postgres:///db", "localhost:5432/db"),
    ("postgres://[::1]:5433/db", "postgres://[::1]:5433/db", "[::1]:5433/db"),
    ("postgres://u:s3cret@[::1]/db#s3cret", "postgres://[::1]/db", "[::1]:5432/db"),
]
MALFORMED = [
    "postgres:u:s3cret@x",
    "postgres:u:s3cret@x/db",
    "postgresql:/u:s3cret@h",
    "postgresql:/u:s3cret@h/db",
    "postgres://u:s3cret/more@h/db",
    "postgres://u:?s3cret@h/db",
    "postgres://u:#s3cret@h/db",
    "postgres://u:s3cret@h:port/db",
    "postgres:db?password=s3cret",
    "postgres:db?password=s3@s3cret",
]


@pytest.mark.parametrize(("url", "shown", "named"), WELL_FORMED)
def test_what_is_shown_of_a_url(url: str, shown: str, named: str) -> None:
    assert (display(url), address(url)) == (shown, named)
    assert dialect_of(url) == "postgres"


@pytest.mark.parametrize("url", MALFORMED)
def test_malformed_urls_are_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(InvalidArgument, match=r"store: (is not|names no) ") as refused:
        dialect_of(url)
    for text in (str(refused.value), display(url), address(url)):
        assert "s3cret" not in text


def test_a_file_is_shown_as_it_is() -> None:
    assert display("sqlite:desk@home.db") == "sqlite:desk@home.db"
