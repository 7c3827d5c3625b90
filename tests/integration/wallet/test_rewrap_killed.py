"""The key-encryption key is rotated under load, and who rewraps is killed wherever that can be:
each credential opens before, meanwhile and afterwards, and no change of anybody's is lost.
"""

import asyncio
import os
import random
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

from tape.bus import Bus
from tape.model.credential import CredentialState
from tape.settings import Settings
from tape.stores.by_url import open_store
from tape.wallet.key_file import add_key, create_key_file, read_key_file
from tape.wallet.keys import Keys
from tests.integration.wallet import rewrapper
from tests.integration.wallet.wallets import texts

SEED = random.randrange(2**32)
ALIASES = [f"a{number}" for number in range(5)]
PATIENCE_S = 60.0

Kill = Callable[[], Awaitable[object]]


class Desk:
    """A wallet in use: somebody opens each credential again and again, somebody changes them."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url = url
        self.key_file = folder / "wallet.key"
        create_key_file(self.key_file)
        self.environment = {"TAPE_WALLET_KEY_FILE": str(self.key_file)}
        self.bus: Bus
        self.given: dict[str, list[str]] = {alias: [] for alias in ALIASES}
        """Every value of a credential, in order; the last one may be on its way."""
        self.current = dict.fromkeys(ALIASES, 0)
        """Which of them is in the store for sure."""
        self.opened = 0
        self.changed = 0
        self.kills = 0
        self.stop = asyncio.Event()

    @asynccontextmanager
    async def in_use(self) -> AsyncIterator[None]:
        settings = Settings()
        keys = Keys(self.environment)
        self.bus = Bus(await open_store(self.url, settings), settings, keys=keys)
        try:
            for alias in ALIASES:
                await self.change(alias, "first")
            async with asyncio.TaskGroup() as group:
                group.create_task(self.keep_opening())
                group.create_task(self.keep_changing())
                try:
                    yield
                finally:
                    self.stop.set()
        finally:
            await self.bus.close()

    async def change(self, alias: str, value: str, *, rotates: bool = False) -> None:
        self.given[alias].append(value)
        wallet = self.bus.wallet
        await (wallet.rotate_credential if rotates else wallet.put_credential)(alias, value)
        self.current[alias] = len(self.given[alias]) - 1
        self.changed += 1

    async def keep_changing(self) -> None:
        number = 0
        while not self.stop.is_set():
            number += 1
            await self.change(ALIASES[number % 2], f"value {number}", rotates=number % 3 > 0)
            await asyncio.sleep(0.002)

    async def keep_opening(self) -> None:
        while not self.stop.is_set():
            await self.open_all()

    async def open_all(self) -> None:
        """Each as it is in the store at that moment, not from memory."""
        for alias in ALIASES:
            since = self.current[alias]
            self.bus.wallet._opener.forget(alias)
            found = texts(await self.bus.wallet.open_credential(alias))
            given = self.given[alias]
            place = given.index(str(found[0]), since)  # none that is older
            assert found[1:] in ([], given[place - 1 : place])
            self.opened += 1

    async def until_opened(self) -> None:
        """Until every credential was opened once more by whoever opens them all the time."""
        wanted = self.opened + 2 * len(ALIASES)
        async with asyncio.timeout(PATIENCE_S):
            while self.opened < wanted:  # noqa: ASYNC110 - it is done all the time
                await asyncio.sleep(0.005)

    async def rewrap(self, step: int = 0) -> list[str]:
        """In a process of its own, killed at a step if it comes to it; the steps it came to."""
        process = await self._started(step)
        out, _ = await process.communicate()
        steps = out.decode().splitlines()
        is_killed = process.returncode == -signal.SIGKILL
        assert is_killed or process.returncode == 0
        assert is_killed == (0 < step <= len(steps))
        self.kills += is_killed
        return steps

    async def rewrap_and_kill(self, after_s: float) -> None:
        """In a process of its own, killed so long after its first step unless it has ended."""
        process = await self._started(0)
        assert process.stdout is not None
        await process.stdout.readline()
        await asyncio.sleep(after_s)
        if process.returncode is None:
            process.kill()
        await process.communicate()
        self.kills += process.returncode == -signal.SIGKILL

    async def _started(self, step: int) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            sys.executable, "-m", rewrapper.__name__, self.url, str(step),
            env={**os.environ, **self.environment}, stdout=subprocess.PIPE,
        )  # fmt: skip

    async def drop_old_keys(self) -> None:
        """As the page says: rewrap until no other key is listed, and then keep the newest alone."""
        newest = read_key_file(self.key_file, "test").key_id
        wallet = self.bus.wallet
        async with asyncio.timeout(PATIENCE_S):
            while other_keys(await wallet.list_credentials(), newest):
                await wallet.rewrap_credentials()
        keep_newest(self.key_file)


def other_keys(states: list[CredentialState], newest: str) -> set[str]:
    named = {key for state in states for key in (state.key_id, state.previous_key_id)}
    return named - {"", newest}


def keep_newest(file: Path) -> None:
    """A key and the comment above it are two lines."""
    beside = file.with_name("newest")
    beside.touch(0o600)
    beside.write_text("".join(file.read_text().splitlines(keepends=True)[:2]))
    beside.replace(file)


@pytest.mark.timeout(300)
async def test_whoever_rewraps_is_killed_at_each_step(store_url: str, tmp_path: Path) -> None:
    await rotate_with_kills(store_url, tmp_path, most=8)


@pytest.mark.long
@pytest.mark.timeout(3600)
async def test_whoever_rewraps_is_killed_at_every_step(store_url: str, tmp_path: Path) -> None:
    await rotate_with_kills(store_url, tmp_path, most=1_000, at_random=50)


async def rotate_with_kills(url: str, folder: Path, *, most: int, at_random: int = 0) -> None:
    """For each kill: a new key, a rewrap that is killed, one that comes to its end, and no old key
    any more. At most so many steps, evenly; and so many kills at moments of chance."""
    print(f"seed {SEED}")
    chance = random.Random(SEED)
    desk = Desk(url, folder)
    async with desk.in_use():
        add_key(desk.key_file)
        steps = await desk.rewrap()
        assert {name.split()[1] for name in steps} == rewrapper.STEPS
        await desk.drop_old_keys()
        every = -(-len(steps) // most)
        numbers = range(1 + chance.randrange(every), len(steps) + 1, every)
        kills: list[Kill] = [partial(desk.rewrap, number) for number in numbers]
        kills += [partial(desk.rewrap_and_kill, chance.uniform(0, 0.05)) for _ in range(at_random)]
        for kill in kills:
            await desk.until_opened()
            add_key(desk.key_file)
            await kill()
            await desk.until_opened()
            await desk.rewrap()
            await desk.drop_old_keys()
            await desk.until_opened()
    assert desk.kills > len(numbers) // 2
    assert desk.opened > 100
    assert desk.changed > 10
