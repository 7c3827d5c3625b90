"""A server that is told to end while it reads from Kafka: the next one goes on, no message is lost,
and none becomes two runs."""

import asyncio
import os
from base64 import b64encode
from pathlib import Path

import orjson
import pytest

from tape.wallet.keys import Keys
from tests.crash.listening.far_ends import NewEnd
from tests.crash.listening.field import a_field
from tests.crash.listening.test_stopped_in_order import (
    MESSAGES,
    WHOLE,
    asked_to_end,
    served,
    until_half_way,
)
from tests.crash.listening.truth import check_accepted, check_life


@pytest.mark.middle
async def test_what_is_in_hand_is_finished_or_given_back(
    kafka: NewEnd, sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TAPE_WALLET_KEY", b64encode(os.urandom(32)).decode())
    end = kafka()
    credential = orjson.dumps(end.credential).decode()
    async with a_field(
        sqlite_url, end, tmp_path, keys=Keys(os.environ), credential=credential, **WHOLE
    ) as field:
        with served(sqlite_url, tmp_path) as first:
            await field.send(MESSAGES)
            await until_half_way(field)
            took_s = await asked_to_end(field, first)
        assert check_life(sqlite_url) == "active"
        with served(sqlite_url, tmp_path) as second:
            await field.until_accepted()
            await field.until_passed()
            assert await asyncio.to_thread(second.stop) == 0
        told = check_accepted(sqlite_url, field.sent, of=str(field))
        print(f"\nended after {took_s:.2f} s, {told.redelivered} redelivered")
