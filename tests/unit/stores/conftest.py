"""Files that are not there yet: making and migrating them is what is tested here."""

import pytest


@pytest.fixture
def sqlite_url(new_sqlite_url: str) -> str:
    return new_sqlite_url
