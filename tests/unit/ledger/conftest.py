"""Databases that have their tables already: making those takes longer than most of these tests."""

import pytest


@pytest.fixture
def postgres_url(migrated_postgres_url: str) -> str:
    return migrated_postgres_url
