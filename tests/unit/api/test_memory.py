import asyncio

import pytest

from tape.api import memory
from tape.api.memory import Trimming


async def test_streams_that_keep_ending_do_not_put_trimming_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    trimmed = asyncio.Event()
    loop = asyncio.get_running_loop()

    def trim(_pad: int) -> int:
        loop.call_soon_threadsafe(trimmed.set)
        return 0

    monkeypatch.setattr(memory, "_trimmer", lambda: trim)
    monkeypatch.setattr(memory, "AFTER_S", 0.05)
    trimming = Trimming()
    for _ in range(2):  # the second is for what ended after the first was due
        trimmed.clear()
        async with asyncio.timeout(20):
            while not trimmed.is_set():
                trimming.soon()
                await asyncio.sleep(0)
