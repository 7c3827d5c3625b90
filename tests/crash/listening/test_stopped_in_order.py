"""A server or worker that is asked to end while messages come: it finishes what it has in hand.

It ends within thirty seconds, gives back what it has not accepted, lets go of the hold, and leaves
the subscription active: whoever comes next listens on at once, and no operator is needed. What an
operator does is in the journal.
"""

import asyncio
import os
import time
from base64 import b64encode
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Final, Protocol

import orjson
import pytest

from tape.wallet.keys import Keys
from tests.crash.listening.far_ends import NatsEnd
from tests.crash.listening.field import Field, a_field
from tests.crash.listening.listener_process import NAME
from tests.crash.listening.truth import check_accepted, check_life, counts, lifecycle, state_of
from tests.servers.nats import NatsServer
from tests.servers.tape_server import ServerProcess
from tests.servers.tape_worker import WorkerProcess

pytestmark = pytest.mark.timeout(300)

ENDS_WITHIN_S: Final = 30.0
KEPT_S: Final = 300.0
"""So long NATS would keep what nobody gives back."""
MESSAGES: Final = 6_000
POOL: Final = "iot"
OPERATED: Final = {"drain": ["draining", "deactivated"], "deactivate": ["deactivated"]}
WHOLE: Final = {"runtime": {"batch": 100, "pool": POOL}, "dispatch": {"playbook": "desk"}}
"""As it is by default."""


class Program(Protocol):
    """What listens, in a process of its own."""

    def stop(self) -> int:
        """Ask it to end; its exit code."""


class Listen(Protocol):
    def __call__(self, url: str, folder: Path) -> AbstractContextManager[Program]: ...


def served(url: str, folder: Path) -> AbstractContextManager[Program]:
    return _ServerThatMayHaveEnded(url)


@contextmanager
def worked(url: str, folder: Path) -> Iterator[Program]:
    arguments = ("-m", "tape.cli", "worker", "--listen", POOL, "--store", url)
    with WorkerProcess(*arguments, log=folder / "worker.log") as process:
        yield process


class _ServerThatMayHaveEnded(ServerProcess):
    def __exit__(self, *_error: object) -> None:
        if self._process is not None:
            self.kill()


@pytest.fixture
def end(nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch) -> NatsEnd:
    monkeypatch.setenv("TAPE_WALLET_KEY", b64encode(os.urandom(32)).decode())
    return NatsEnd(nats_server, ack_wait_s=KEPT_S)


def a_subscription(url: str, end: NatsEnd, folder: Path) -> Any:
    """With its credential in the wallet."""
    credential = orjson.dumps(end.credential).decode()
    return a_field(url, end, folder, keys=Keys(os.environ), credential=credential, **WHOLE)


async def until_half_way(field: Field) -> None:
    first = counts(field.url).accepted
    await field.until(lambda: counts(field.url).accepted > first + 500, "half way")


async def asked_to_end(field: Field, program: Program) -> float:
    """It ends in order; how many seconds that takes."""
    began = time.monotonic()
    assert await asyncio.to_thread(program.stop) == 0
    took_s = time.monotonic() - began
    left = counts(field.url)
    assert took_s < ENDS_WITHIN_S
    assert left.lease_owner == "", "it has not let go"
    assert left.accepted < len(field.sent), "it was at its end already"
    return took_s


@pytest.mark.parametrize("listen", [served, pytest.param(worked, marks=pytest.mark.middle)])
async def test_what_is_in_hand_is_finished_or_given_back(
    store_url: str, end: NatsEnd, tmp_path: Path, listen: Listen
) -> None:
    async with a_subscription(store_url, end, tmp_path) as field:
        await field.send(MESSAGES)
        with listen(store_url, tmp_path) as first:
            await until_half_way(field)
            took_s = await asked_to_end(field, first)
        told = lifecycle(store_url)
        assert (told[-1], check_life(store_url)) == ("activated", "active")
        began = time.monotonic()
        with listen(store_url, tmp_path) as second:
            await field.until_accepted()
            await field.until_passed()
            over_s = time.monotonic() - began
            assert await asyncio.to_thread(second.stop) == 0
        assert lifecycle(store_url) == told
        check_accepted(store_url, field.sent, of=str(field))
        assert over_s < KEPT_S
        print(f"\nended after {took_s:.2f} s; the next was through after {over_s:.1f} s")


async def test_what_an_operator_does_is_journaled(
    sqlite_url: str, end: NatsEnd, tmp_path: Path
) -> None:
    async with a_subscription(sqlite_url, end, tmp_path) as field:
        with served(sqlite_url, tmp_path) as server:
            for verb, words in OPERATED.items():
                await field.send(MESSAGES)
                await until_half_way(field)
                before = lifecycle(sqlite_url)
                await field.subscriptions.move_subscription(NAME, verb)
                await field.until(lambda: _is_off(field), "deactivated and let go")
                assert lifecycle(sqlite_url) == [*before, *words]
                assert check_life(sqlite_url) == "deactivated"
                assert counts(sqlite_url).accepted < len(field.sent)
                await field.subscriptions.move_subscription(NAME, "activate")
            await field.until_accepted()
            assert await asyncio.to_thread(server.stop) == 0
        check_accepted(sqlite_url, field.sent, of=str(field))


def _is_off(field: Field) -> bool:
    return state_of(field.url) == "deactivated" and counts(field.url).lease_owner == ""
