"""Rewraps credentials, and kills itself at one of the steps: `rewrapper.py STORE STEP`.

A step is before or after anything that it does to the store or with a key. Each is printed when it
is come to, so that an undisturbed run tells which there are; STEP counts from 1, and 0 is none.
"""

import asyncio
import os
import signal
import sys
from typing import Any

from tape.bus import Bus
from tape.settings import Settings
from tape.stores.by_url import open_store
from tape.wallet.keys import Keys

STEPS = {"list_versions_under_other_keys", "unwrap", "wrap", "commit"}


class Stepping:
    """Does what another does, and notes each step."""

    def __init__(self, of: Any, note: Any) -> None:
        self._of = of
        self._note = note

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._of, name)
        if name not in STEPS:
            return found

        async def step(*args: Any, **options: Any) -> Any:
            self._note(f"before {name}")
            result = await found(*args, **options)
            self._note(f"after {name}")
            return result

        return step


class SteppingKeys:
    def __init__(self, keys: Keys, note: Any) -> None:
        self._keys = keys
        self._note = note

    async def keyring(self) -> Any:
        return Stepping(await self._keys.keyring(), self._note)

    async def close(self) -> None:
        await self._keys.close()


async def rewrap(url: str, stop_at: int) -> None:
    passed = 0

    def note(name: str) -> None:
        nonlocal passed
        passed += 1
        print(name, flush=True)
        if passed == stop_at:
            os.kill(os.getpid(), signal.SIGKILL)

    store: Any = await open_store(url, Settings())
    store.wallet = Stepping(store.wallet, note)
    bus = Bus(Stepping(store, note), Settings(), keys=SteppingKeys(Keys(os.environ), note))
    try:
        await bus.wallet.rewrap_credentials()
    finally:
        await bus.close()


if __name__ == "__main__":
    asyncio.run(rewrap(sys.argv[1], int(sys.argv[2])))
