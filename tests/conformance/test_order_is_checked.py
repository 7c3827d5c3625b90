"""The check of the order can fail: a journal numbered by a sequence alone does not pass it."""

import psycopg
import pytest

from tests.conformance.contracts import OpenStore
from tests.conformance.order import expect_no_skips

# What most journals do: draw from a sequence, take no lock, commit when one is done.
SEQUENCE_ALONE = """
CREATE OR REPLACE FUNCTION tape_take_turn(OUT head BIGINT, OUT now_ms BIGINT) LANGUAGE plpgsql AS $$
BEGIN
  head := nextval('tape_global_seq') * 1000;
  now_ms := 1;
  PERFORM pg_sleep(random() * 0.01);
END $$;
CREATE OR REPLACE FUNCTION tape_announce(last BIGINT) RETURNS VOID LANGUAGE plpgsql AS $$
BEGIN
END $$;
"""


@pytest.fixture
def store_url(postgres_url: str) -> str:
    return postgres_url


async def test_a_journal_without_the_lock_is_caught(
    open_store: OpenStore, postgres_url: str
) -> None:
    stores = [await open_store() for _ in range(4)]
    with psycopg.connect(postgres_url, autocommit=True) as database:
        database.execute(SEQUENCE_ALONE)
    with pytest.raises(AssertionError, match="At index"):
        await expect_no_skips(stores[:3], stores[3], rounds=40)


@pytest.mark.parametrize("rounds", [40, pytest.param(5000, marks=pytest.mark.long)])
async def test_the_same_journal_with_the_lock_passes(open_store: OpenStore, rounds: int) -> None:
    stores = [await open_store() for _ in range(4)]
    await expect_no_skips(stores[:3], stores[3], rounds=rounds)
