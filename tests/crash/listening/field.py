"""One subscription on one store, what is sent to it, and the processes that listen for it."""

import asyncio
import os
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Final

import yaml

from tape.bus import Bus
from tape.stores.by_url import open_store
from tape.wallet.keys import NO_KEYS, KeySource
from tests.crash.forks import FORKS
from tests.crash.listening.far_ends import FarEnd, NumberedMessage
from tests.crash.listening.listener_process import NAME, Listening, listen, settings
from tests.crash.listening.trail import Spot, read_trail
from tests.crash.listening.truth import (
    Counts,
    check_accepted,
    check_passed,
    counts,
    read_fetched,
)

PATIENCE_S: Final = 60.0
TRIES: Final = 5
MORE_AFTER_S: Final = 3.0
KEYS: Final = 3
ALIAS: Final = "desk"


def document(end: FarEnd, **spec: Any) -> str:
    """Ten messages are fetched and accepted together, so that there are many boundaries."""
    said: dict[str, Any] = {
        "source": end.kind.value,
        "mode": "pull",
        "activation": "continuous",
        "auth": ALIAS,
        **end.spec,
        "runtime": {"batch": 10, "timeout_ms": 1_000},
        "dispatch": {"playbook": "desk", "batch_dispatch": True, "batch_max": 10},
    } | spec
    metadata = {"name": NAME, "path": f"subscriptions/{NAME}"}
    kind = {"apiVersion": "tape/v1", "kind": "Subscription"}
    return yaml.safe_dump({**kind, "metadata": metadata, "spec": said})


class Field:
    def __init__(self, url: str, end: FarEnd, folder: Path, bus: Bus) -> None:
        self.url = url
        self.end = end
        self.folder = folder
        self.subscriptions = bus.subscriptions
        self.sent: list[NumberedMessage] = []
        self._numbers: Counter[str] = Counter()
        self._processes = 0

    def __str__(self) -> str:
        return f"{self.end.kind} and {self.url.partition(':')[0]}"

    async def begin(self, **spec: Any) -> None:
        await self.end.make()
        await self.subscriptions.register_subscription(document(self.end, **spec))
        await self.subscriptions.move_subscription(NAME, "activate")

    async def send(self, count: int, keys: str = "k") -> None:
        """Messages of a few keys, whose names begin so."""
        messages = []
        for number in range(count):
            key = f"{keys}-{number % KEYS}"
            self._numbers[key] += 1
            messages.append(NumberedMessage(f"m{len(self.sent) + number}", key, self._numbers[key]))
        self.sent += messages
        await self.end.send(messages)

    def given(self, **more: Any) -> Listening:
        self._processes += 1
        trail = self.folder / f"{self._processes}.trail"
        return Listening(self.url, self.end.kind, self.end.credential, trail, **more)

    @asynccontextmanager
    async def running(self, given: Listening) -> AsyncIterator[BaseProcess]:
        """A process that listens; killed at the end, if it is there still."""
        process = FORKS.Process(target=listen, args=(given,), daemon=True)
        await asyncio.to_thread(process.start)
        try:
            yield process
        finally:
            process.kill()
            await asyncio.to_thread(process.join, 30)

    async def killed(self, spot: Spot, messages: int, **more: Any) -> None:
        """Have a process kill itself there, while there is work; and look at what is left."""
        for _ in range(TRIES):
            given = self.given(spot=spot, **more)
            await self.send(messages, f"k{self._processes}")
            exitcode = await self._listened(given, spot)
            # One that was asked to end may end by another way than the undisturbed one.
            if not (spot.at_end and exitcode == 0):
                break
        assert exitcode == -signal.SIGKILL, f"{spot}: {self.said(given)}"
        assert read_trail(given.trail)[spot.name] >= spot.nth
        check_passed(self.url, await self.end.passed(), of=f"{self} {spot}")

    async def _listened(self, given: Listening, spot: Spot) -> int | None:
        """Listen until the process has ended, by itself or by being asked; its exit code."""
        async with self.running(given) as process:
            if spot.at_end:
                await self.until(lambda: read_trail(given.trail)["after fetch"] > 0, "fetched")
                send_signal(process, signal.SIGTERM)
            try:
                async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
                    group.create_task(self._ended(process))
                    if "partitions" in spot.name:
                        group.create_task(self._rebalanced(process, given))
            except TimeoutError:
                raise AssertionError(f"not killed {spot}: {self.said(given)}") from None
            return process.exitcode

    async def _ended(self, process: BaseProcess) -> None:
        loop = asyncio.get_running_loop()
        more_at = loop.time() + MORE_AFTER_S
        while process.is_alive():
            await asyncio.sleep(0.02)
            if loop.time() > more_at:  # by the clock it has gone another way
                more_at += MORE_AFTER_S
                await self.send(5, f"more{self._processes}")

    async def _rebalanced(self, process: BaseProcess, given: Listening) -> None:
        """Another member comes and goes. It comes again once the listener has its share back: if
        it came sooner it would be given the share of the one before, and nobody would lose any."""

        def come() -> int:
            return read_trail(given.trail)["after partitions come"]

        while process.is_alive():
            async with self.end.rebalanced():
                before = come()
            while process.is_alive() and come() == before:  # noqa: ASYNC110 - only the file tells
                await asyncio.sleep(0.02)

    async def until_accepted(self) -> None:
        await self.until(lambda: counts(self.url).accepted >= len(self.sent), "accepted")

    async def until_passed(self) -> None:
        """Until the source has heard of all that was accepted, where it says so."""
        async with asyncio.timeout(PATIENCE_S):
            while not await self._has_passed():  # noqa: ASYNC110 - only asking tells
                await asyncio.sleep(0.1)

    async def _has_passed(self) -> bool:
        passed = await self.end.passed()
        return passed is None or len(passed) >= len(self.sent)

    async def until(self, is_so: Callable[[], bool], what: str) -> None:
        try:
            async with asyncio.timeout(PATIENCE_S):
                while not await asyncio.to_thread(is_so):  # noqa: ASYNC110 - only asking tells
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise AssertionError(f"not {what} of {len(self.sent)}: {counts(self.url)}") from None

    async def finished(self) -> Counts:
        """Listen to the end undisturbed, and judge."""
        given = self.given()
        async with self.running(given) as process:
            await self.until_accepted()
            await self.until_passed()
            await self.ended_in_order(process, given)
        fetched = [] if self.end.keeps_order else read_fetched(self.folder)
        return check_accepted(self.url, self.sent, of=str(self), fetched=fetched)

    async def judged(self, kills: int) -> None:
        """Listen to the end and judge; of those that were killed something must have come again."""
        began = time.monotonic()
        told = await self.finished()
        fetched = [message for each in read_fetched(self.folder) for message in each]
        again = len(fetched) - len(set(fetched))
        print(
            f"\n{self}: {kills} kills, {len(self.sent)} messages, {told.redelivered} redelivered "
            f"after they were accepted, {again} fetched again; the last listener worked "
            f"for {time.monotonic() - began:.0f} s"
        )
        assert told.redelivered + again > 0

    async def ended_in_order(self, process: BaseProcess, given: Listening) -> None:
        await self.until(given.ready.exists, "ready to end")
        send_signal(process, signal.SIGTERM)
        await asyncio.to_thread(process.join, PATIENCE_S)
        assert process.exitcode == 0, self.said(given)

    def said(self, given: Listening) -> str:
        trail = " · ".join(given.trail.read_text().splitlines()[-12:])
        return f"{given.log.read_text()[-2000:]}\nits trail: {trail}"


def send_signal(process: BaseProcess, number: signal.Signals) -> None:
    assert process.pid is not None
    os.kill(process.pid, number)


@asynccontextmanager
async def a_field(
    url: str,
    end: FarEnd,
    folder: Path,
    *,
    keys: KeySource = NO_KEYS,
    credential: str = "",
    **spec: Any,
) -> AsyncIterator[Field]:
    """With an active subscription, and what its processes note in a folder of the store's kind.
    Those that are not started here find the credential in the wallet."""
    folder /= url.partition(":")[0]
    folder.mkdir()
    ours = settings()
    bus = Bus(await open_store(url, ours), ours, keys=keys)  # it looks at no source
    try:
        if credential:
            await bus.wallet.put_credential(ALIAS, credential)
        field = Field(url, end, folder, bus)
        await field.begin(**spec)
        yield field
    finally:
        await bus.close()
