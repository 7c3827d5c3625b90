"""What is opened is kept for a second, and then as good as the store says, or as it was last known
where nobody can say."""

import asyncio
from collections.abc import Sequence

import pytest

from tape.errors import (
    Closed,
    CredentialDamaged,
    NoCredential,
    Overloaded,
    StoreUnavailable,
    TapeError,
    WalletLocked,
    WalletUnavailable,
)
from tape.model.credential import CredentialForm, CredentialVersion, no_credential
from tape.ports.credentials import OpenedCredential
from tape.ports.keyring import Keyring
from tape.wallet import opener as opener_module
from tape.wallet.envelope import seal
from tape.wallet.local_keys import LocalKeyring, new_key
from tape.wallet.opener import MOST_KEPT, RENEW_S, CredentialOpener


class Desk:
    """A store, a keyring and a clock, and an opener that uses them."""

    def __init__(self) -> None:
        self.rows: dict[str, list[CredentialVersion]] = {}
        self.reads = 0
        self.unwraps = 0
        self.opened: list[str] = []
        self.failure: TapeError | None = None
        self.hanging: asyncio.Event | None = None
        self.ring = LocalKeyring([new_key()], "test")
        self.now = 100.0
        self.open = CredentialOpener(self.read, self, self.opened.append, now=lambda: self.now)

    async def read(self, alias: str) -> Sequence[CredentialVersion]:
        self.reads += 1
        if self.hanging is not None:
            await self.hanging.wait()
        if self.failure is not None:
            raise self.failure
        if not self.rows.get(alias):
            raise no_credential(alias)
        return list(self.rows[alias])

    async def keyring(self) -> Keyring:
        self.unwraps += 1
        return self.ring

    async def close(self) -> None: ...

    async def put(self, alias: str, version: int, value: str, *, rotates: bool = False) -> None:
        row = await seal(self.ring, alias, version, value, CredentialForm.TEXT)
        self.rows[alias] = [row, *(self.rows[alias][:1] if rotates else [])]

    async def values(self, alias: str = "a") -> list[str | None]:
        return texts(await self.open(alias))


def texts(opened: OpenedCredential) -> list[str | None]:
    return [value.text for value in opened.values]


@pytest.fixture
async def desk() -> Desk:
    desk = Desk()
    await desk.put("a", 1, "one")
    return desk


async def test_what_was_opened_stays_good_while_nobody_unwraps(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But what was retired is refused: that needs no key."""
    await desk.put("a", 2, "two", rotates=True)
    await desk.put("b", 1, "other")
    assert await desk.values() == ["two", "one"]

    async def away(*_asked: object) -> bytes:
        raise WalletUnavailable("KMS did not answer")

    with monkeypatch.context() as patched:
        patched.setattr(LocalKeyring, "unwrap", away)
        await desk.put("a", 3, "three", rotates=True)
        for _ in range(3):
            desk.now += RENEW_S
            assert await desk.values() == ["two", "one"]
        desk.rows["a"] = desk.rows["a"][1:]  # as after a retirement of what there was
        desk.now += RENEW_S
        assert await desk.values() == ["two"]
        await desk.put("a", 3, "three", rotates=True)
        with pytest.raises(WalletUnavailable):
            await desk.values("b")
    desk.now += RENEW_S
    assert await desk.values() == ["three", "two"]


async def test_it_is_read_once_a_second_however_often_it_is_opened(desk: Desk) -> None:
    for _ in range(1_000):
        assert await desk.values() == ["one"]
    assert (desk.reads, desk.unwraps) == (1, 1)
    desk.now += RENEW_S - 0.001
    await desk.values()
    assert desk.reads == 1
    desk.now += 0.001
    await desk.values()
    assert (desk.reads, desk.unwraps) == (2, 1)  # it is as it was, so it is not opened again
    assert desk.opened == ["a"] * 1_002


async def test_a_change_is_known_after_a_second(desk: Desk) -> None:
    assert RENEW_S + opener_module.PATIENCE_S < 2
    await desk.values()
    await desk.put("a", 2, "two", rotates=True)
    assert await desk.values() == ["one"]
    desk.now += RENEW_S
    assert await desk.values() == ["two", "one"]
    await desk.put("a", 3, "three")
    desk.now += RENEW_S
    assert await desk.values() == ["three"]
    del desk.rows["a"]
    assert await desk.values() == ["three"]
    desk.now += RENEW_S
    for _ in range(2):
        with pytest.raises(NoCredential):
            await desk.values()
    assert len(desk.opened) == 5


async def test_a_rewrap_opens_nothing_again(desk: Desk) -> None:
    await desk.values()
    desk.ring = LocalKeyring([new_key()], "test")  # which could not open it
    (row,) = desk.rows["a"]
    desk.rows["a"] = [row._replace(key_id=desk.ring.key_id, wrapped_key=b"rewrapped")]
    desk.now += RENEW_S
    assert await desk.values() == ["one"]
    assert desk.unwraps == 1


@pytest.mark.parametrize("failure", [StoreUnavailable(), Overloaded()])
async def test_what_was_opened_outlives_a_store_that_is_away(
    desk: Desk, failure: TapeError
) -> None:
    await desk.values()
    desk.failure = failure
    for _ in range(5):
        desk.now += RENEW_S
        assert await desk.values() == await desk.values() == ["one"]
    assert desk.reads == 6  # it is asked for once a second, and not by each who opens it
    with pytest.raises(type(failure)):
        await desk.open("another")
    await desk.put("a", 2, "two")
    desk.failure = None
    desk.now += RENEW_S
    assert await desk.values() == ["two"]


async def test_a_store_that_hangs_is_waited_for_by_one_and_for_a_moment(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    await desk.values()
    monkeypatch.setattr(opener_module, "PATIENCE_S", 0.01)
    desk.hanging = asyncio.Event()
    await desk.put("a", 2, "two")
    desk.now += RENEW_S
    found = await asyncio.gather(*(desk.values() for _ in range(20)))
    assert found == [["one"]] * 20
    assert desk.reads == 2
    desk.hanging.set()
    while await desk.values() == ["one"]:  # noqa: ASYNC110 - the task that reads rings nobody
        await asyncio.sleep(0)
    assert await desk.values() == ["two"]
    assert desk.reads == 2


@pytest.mark.parametrize("failure", [WalletLocked(), CredentialDamaged()])
async def test_any_other_refusal_is_told_and_nothing_is_kept(
    desk: Desk, failure: TapeError
) -> None:
    await desk.values()
    desk.failure = failure
    desk.now += RENEW_S
    for _ in range(2):
        with pytest.raises(type(failure)):
            await desk.values()
    desk.failure = None
    assert await desk.values() == ["one"]


async def test_a_version_under_a_key_that_is_not_here_takes_away_no_other(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    """As when one host has a new key and rotates, before the other host has that key."""
    assert (await desk.open("a")).revision == (1, 1)
    mine, newer = desk.ring, LocalKeyring([new_key()], "test")
    desk.ring = newer
    await desk.put("a", 2, "two", rotates=True)
    desk.ring = mine
    for _ in range(3):
        desk.now += RENEW_S
        assert await desk.values() == ["one"]
    assert (await desk.open("a")).revision == (1, 1)
    desk.open.forget("a")  # as in a process that begins now
    assert await desk.values() == ["one"]
    assert caplog.text.count("It is left out, as another version opens") == 1
    assert "version 2" in caplog.text
    desk.ring = newer  # what is open stays open, and the other one opens now
    desk.now += RENEW_S
    assert await desk.values() == ["two", "one"]
    assert (await desk.open("a")).revision == (2, 2)
    desk.ring = mine
    del desk.rows["a"][1]
    desk.open.forget("a")
    with pytest.raises(WalletLocked, match="version 2"):
        await desk.values()


async def test_a_damaged_row_takes_away_no_other(desk: Desk) -> None:
    await desk.put("a", 2, "two", rotates=True)
    newest, before = desk.rows["a"]
    desk.rows["a"] = [newest._replace(ciphertext=b"0" * len(newest.ciphertext)), before]
    assert await desk.values() == ["one"]
    desk.rows["a"] = [newest, before._replace(ciphertext=b"0" * len(before.ciphertext))]
    desk.open.forget("a")
    assert await desk.values() == ["two"]
    desk.rows["a"] = desk.rows["a"][1:]
    desk.open.forget("a")
    with pytest.raises(CredentialDamaged, match="version 1"):
        await desk.values()


async def test_a_row_of_another_alias_does_not_open(desk: Desk) -> None:
    await desk.put("b", 1, "two")
    desk.rows["a"] = desk.rows["b"]  # as it stands, with its own alias in it
    with pytest.raises(CredentialDamaged):
        await desk.values("a")
    assert await desk.values("b") == ["two"]


async def test_those_who_open_it_at_once_share_one_read(desk: Desk) -> None:
    assert await asyncio.gather(*(desk.values() for _ in range(50))) == [["one"]] * 50
    assert (desk.reads, desk.unwraps) == (1, 1)


async def test_one_who_gives_up_takes_it_from_no_other(desk: Desk) -> None:
    desk.hanging = asyncio.Event()
    first, second = (asyncio.ensure_future(desk.values()) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    desk.hanging.set()
    assert await second == ["one"]
    assert desk.reads == 1


async def test_what_was_changed_here_is_read_again_at_once(desk: Desk) -> None:
    await desk.values()
    await desk.put("a", 2, "two")
    desk.open.forget("a")
    assert await desk.values() == ["two"]
    desk.hanging = asyncio.Event()
    desk.now += RENEW_S
    waiting = asyncio.ensure_future(desk.values())  # reads what was there before the next put
    await asyncio.sleep(0)
    before = desk.rows["a"]
    await desk.put("a", 3, "three")
    now, desk.rows["a"] = desk.rows["a"], before
    desk.open.forget("a")
    desk.hanging.set()
    desk.hanging = None
    assert await waiting == ["two"]
    desk.rows["a"] = now
    assert await desk.values() == ["three"]


async def test_no_more_are_kept_than_there_is_room_for(desk: Desk) -> None:
    for number in range(MOST_KEPT + 10):
        await desk.put(f"n{number}", 1, "x")
        await desk.values(f"n{number}")
    assert len(desk.open._kept) == MOST_KEPT
    reads = desk.reads
    await desk.values("n0")
    assert desk.reads == reads + 1


async def test_closing_lets_nobody_wait(desk: Desk) -> None:
    desk.hanging = asyncio.Event()
    waiting = asyncio.ensure_future(desk.values())
    await asyncio.sleep(0)
    await desk.open.close()
    with pytest.raises(Closed):
        await waiting
