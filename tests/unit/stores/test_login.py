"""No part of a login is repeated, whatever form a URL has."""

import pytest

from tape.errors import InvalidArgument
from tape.programs.connect import open_operations
from tape.settings import Settings
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
NO_URLS = [
    "host=h user=u password=s3cret dbname=d",
    "host=h port=5432 options=-c:x password=s3cret:more",
    "s3cret@h/db",
    "s3cret@h:5432/db",
    "u/s3cret:more@h/db",
    "s3cret",
    "",
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


@pytest.mark.parametrize("url", NO_URLS)
async def test_what_is_no_url_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(InvalidArgument, match="'…' is not a store; use sqlite:PATH or") as store:
        dialect_of(url)
    with pytest.raises(InvalidArgument, match="'…' is not a kind of URL; use ") as client:
        await open_operations(url, "", Settings())
    for text in (str(store.value), str(client.value), display(url)):
        assert "s3cret" not in text


def test_a_file_is_shown_as_it_is() -> None:
    assert display("sqlite:desk@home.db") == "sqlite:desk@home.db"
