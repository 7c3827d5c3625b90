"""The wallet of a bus, on both stores: what is put is opened, here and by other processes."""

import asyncio
import json
import sqlite3

import psycopg
import pytest

from tape.bus import Bus, FollowQuery
from tape.errors import (
    CredentialDamaged,
    InvalidArgument,
    NoCredential,
    TooLarge,
    WalletLocked,
)
from tape.model.credential import RewrapCredential
from tape.settings import Limits
from tape.wallet.local_keys import key_id
from tape.wallet.operations import VALUE_BYTES
from tests.conformance.playing import IDS
from tests.integration.wallet.wallets import CANARY, KEY, NEWER, bus_with, texts, until_opened

LOGIN = json.dumps({"user": "tape", "password": CANARY, "ä": [1.5, None]})


async def told(bus: Bus) -> list[tuple[str, int, int]]:
    """Every entry of the wallet; none says anything of a value."""
    found = []
    head = (await bus.info()).head_global_seq
    async for page in bus.follow(FollowQuery(kind="wallet", until=head)):
        for entry in page.entries:
            assert CANARY not in repr(entry)
            payload = entry.payload
            verb = entry.subject.split("/")[3]
            found.append((verb, payload["version"], payload["previous_version"]))
    return found


async def test_what_is_put_is_opened_by_whoever_has_the_key(store_url: str) -> None:
    async with bus_with(store_url, KEY) as here, bus_with(store_url, KEY) as there:
        state = await here.wallet.put_credential("nats_main", LOGIN)
        assert (state.version, state.form, state.key_id) == (1, "object", key_id(KEY))
        assert texts(await here.wallet.open_credential("nats_main")) == [json.loads(LOGIN)]
        assert texts(await there.wallet.open_credential("nats_main")) == [json.loads(LOGIN)]
        for form, value, kept in (
            ("text", LOGIN, LOGIN), ("text", LOGIN[:-1], LOGIN[:-1]),
            ("", LOGIN, json.loads(LOGIN)), ("object", LOGIN, json.loads(LOGIN)),
        ):  # fmt: skip
            await here.wallet.put_credential("forms", value, form=form)
            assert texts(await here.wallet.open_credential("forms")) == [kept]
        await here.wallet.put_credential("hook/é", CANARY)
        opened = await there.wallet.open_credential("hook/é")
        assert (opened.alias, opened.version, opened.current.text) == ("hook/é", 1, CANARY)
        with pytest.raises(NoCredential, match=r"'none'.*tape wallet put"):
            await there.wallet.open_credential("none")


async def test_another_process_learns_of_every_change(store_url: str) -> None:
    async with bus_with(store_url, KEY) as here, bus_with(store_url, KEY) as there:
        seen = there.wallet.open_credential
        await here.wallet.put_credential("a", "one")
        await until_opened(seen, "a", ["one"])
        rotated = await here.wallet.rotate_credential("a", "two")
        assert (rotated.version, rotated.previous_version) == (2, 1)
        assert texts(await here.wallet.open_credential("a")) == ["two", "one"]
        await until_opened(seen, "a", ["two", "one"])
        await here.wallet.rotate_credential("a", "three")
        await until_opened(seen, "a", ["three", "two"])
        await here.wallet.retire_credential("a")
        assert texts(await here.wallet.open_credential("a")) == ["three"]
        await until_opened(seen, "a", ["three"])
        await here.wallet.put_credential("a", "four")
        await until_opened(seen, "a", ["four"])
        assert await here.wallet.delete_credential("a") is True
        assert await here.wallet.delete_credential("a") is False
        await until_opened(seen, "a", "NO_CREDENTIAL")
        await here.wallet.put_credential("a", "five")
        await until_opened(seen, "a", ["five"])
        assert await told(there) == [
            ("put", 1, 0), ("rotated", 2, 1), ("rotated", 3, 2), ("retired", 3, 0), ("put", 4, 0),
            ("deleted", 4, 0), ("put", 5, 0),
        ]  # fmt: skip


async def test_all_who_put_at_once_are_kept_in_some_order(store_url: str) -> None:
    async with bus_with(store_url, KEY) as here, bus_with(store_url, KEY) as there:
        await here.wallet.put_credential("a", "0")
        puts = [
            (bus.wallet.put_credential if number % 3 else bus.wallet.rotate_credential)(
                "a", f"{number} of {bus is here}"
            )
            for bus in (here, there)
            for number in range(20)
        ]
        states = await asyncio.gather(*puts)
        assert sorted(state.version for state in states) == [*range(2, 42)]
        (last,) = await there.wallet.list_credentials()
        assert last.version == 41
        opened = await here.wallet.open_credential("a")
        assert opened.version == 41
        assert len(opened.values) == 1 + bool(last.previous_version)


async def test_without_the_key_nothing_is_put_and_nothing_opened(store_url: str) -> None:
    async with bus_with(store_url, KEY) as owner:
        await owner.wallet.put_credential("a", CANARY)
    async with bus_with(store_url) as locked, bus_with(store_url, NEWER) as stranger:
        for refused in (
            locked.wallet.put_credential("b", "x"),
            locked.wallet.rotate_credential("a", "x"),
            locked.wallet.open_credential("a"),
            locked.wallet.rewrap_credentials(),
        ):
            with pytest.raises(WalletLocked, match="set TAPE_WALLET_KEY_FILE"):
                await refused
        with pytest.raises(WalletLocked, match=f"'a', version 1: .*{key_id(KEY)}"):
            await stranger.wallet.open_credential("a")
        # What needs no key is done without one.
        assert [state.alias for state in await locked.wallet.list_credentials()] == ["a"]
        sealed = await locked.wallet.get_sealed_credential("a")
        assert CANARY not in repr(sealed)
        await locked.wallet.retire_credential("a")
        assert await locked.wallet.delete_credential("a") is True


@pytest.mark.parametrize(
    ("alias", "value", "form", "field"),
    [
        ("", "x", "", "alias"),
        ("a\0b", "x", "", "alias"),
        ("a" * 600, "x", "", "alias"),
        ("a", "", "", "value"),
        ("a", "x" * (VALUE_BYTES + 1), "", "value"),
        ("a", "é" * (VALUE_BYTES // 2 + 1), "", "value"),
        ("a", CANARY, "object", "value"),
        ("a", f'["{CANARY}"]', "object", "value"),
        ("a", f'{{"password": "{CANARY}",}}', "", "value"),
        ("a", f' \n{{"password": "{CANARY}"', "", "value"),
        ("a", f"{CANARY}\ud800", "", "value"),
        ("a", CANARY, "yaml", "form"),
    ],
)
async def test_a_refusal_names_the_field_and_repeats_no_value(
    sqlite_url: str, alias: str, value: str, form: str, field: str
) -> None:
    async with bus_with(sqlite_url, KEY) as bus:
        for refused in (
            bus.wallet.put_credential(alias, value, form=form),
            bus.wallet.rotate_credential(alias, value, form=form),
        ):
            with pytest.raises(InvalidArgument) as refusal:
                await refused
            assert refusal.value.field == field
            assert CANARY not in str(refusal.value)
            assert isinstance(refusal.value, TooLarge) == ("bytes" in str(refusal.value))
        assert await bus.wallet.list_credentials() == []
        assert (await bus.info()).head_global_seq == 0


async def test_who_got_no_answer_may_rotate_or_put_once_more(store_url: str) -> None:
    """A second rotation to the same value would throw away what the other side still knows."""
    async with bus_with(store_url, KEY) as bus:
        put, rotate = bus.wallet.put_credential, bus.wallet.rotate_credential
        first = await put("a", "one")
        assert await put("a", "one") == first
        rotated = await rotate("a", LOGIN)
        assert await rotate("a", LOGIN) == rotated
        assert (rotated.version, rotated.previous_version) == (2, 1)
        assert texts(await bus.wallet.open_credential("a")) == [json.loads(LOGIN), "one"]
        assert await told(bus) == [("put", 1, 0), ("rotated", 2, 1)]
        # It is asked for that the other value be refused, or for another form.
        assert (await put("a", LOGIN)).previous_version == 0
        assert (await rotate("a", LOGIN, form="text")).version == 4
        assert (await rotate("a", "one")).version == 5
        await bus.wallet.delete_credential("a")
        assert (await put("a", "one")).version == 6
    async with bus_with(store_url, NEWER) as stranger:
        assert (await stranger.wallet.put_credential("a", "one")).version == 7


async def test_the_largest_value_there_can_be(sqlite_url: str) -> None:
    async with bus_with(sqlite_url, KEY) as bus:
        value = "é" * (VALUE_BYTES // 2)
        await bus.wallet.put_credential("a", value)
        assert texts(await bus.wallet.open_credential("a")) == [value]


async def test_the_key_is_rotated_and_the_old_one_goes(store_url: str) -> None:
    async with bus_with(store_url, KEY) as before, bus_with(store_url, NEWER, KEY) as during:
        for number in range(5):
            await before.wallet.put_credential(f"a{number}", str(number))
        await before.wallet.rotate_credential("a0", "rotated")
        await during.wallet.put_credential("new", "x")
        await during.wallet.rotate_credential("a1", "rotated")  # one version under each key
        states = {s.alias: s for s in await during.wallet.list_credentials()}
        assert states["a1"].key_id == key_id(NEWER)
        assert states["a1"].previous_key_id == key_id(KEY)
        assert await during.wallet.rewrap_credentials() == 6
        assert await during.wallet.rewrap_credentials() == 0
        for state in await during.wallet.list_credentials():
            assert state.key_id == key_id(NEWER)
            assert state.previous_key_id in ("", key_id(NEWER))
        rewrapped = [one for one in await told(during) if one[0] == "rewrapped"]
        assert len(rewrapped) == 6
    async with bus_with(store_url, NEWER) as after:
        assert texts(await after.wallet.open_credential("a0")) == ["rotated", "0"]
        assert texts(await after.wallet.open_credential("a1")) == ["rotated", "1"]
        for number in range(2, 5):
            assert texts(await after.wallet.open_credential(f"a{number}")) == [str(number)]


async def test_one_that_cannot_be_rewrapped_keeps_no_other_from_it(store_url: str) -> None:
    stranger = b"s" * 32
    async with bus_with(store_url, stranger) as bus:
        await bus.wallet.put_credential("b", "under a key that is lost")
    async with bus_with(store_url, KEY) as bus:
        for alias in ("a", "c"):
            await bus.wallet.put_credential(alias, alias)
    async with bus_with(store_url, NEWER, KEY) as bus:
        with pytest.raises(WalletLocked, match=r"'b', version 1: .*\(2 others were rewrapped\)"):
            await bus.wallet.rewrap_credentials()
        keys = {state.alias: state.key_id for state in await bus.wallet.list_credentials()}
        assert keys == {"a": key_id(NEWER), "b": key_id(stranger), "c": key_id(NEWER)}


async def test_a_put_during_a_rewrap_is_not_lost(store_url: str) -> None:
    """The data key of a version that is gone by then is put nowhere."""
    async with bus_with(store_url, NEWER, KEY) as bus:
        wallet = bus.wallet
        await wallet.put_credential("a", "one")
        (row,) = await bus._store.wallet.get_credential_versions("a")
        await wallet.put_credential("a", "two")
        late = RewrapCredential(row.wrapped_key, row, next(IDS), Limits())
        assert await bus._writer.submit(late) is False
        assert texts(await wallet.open_credential("a")) == ["two"]


def alter(url: str, change: str) -> None:
    """What somebody does who can write into the database."""
    if url.startswith("sqlite:"):
        with sqlite3.connect(url.removeprefix("sqlite:")) as db:
            db.execute(change)
        return
    with psycopg.connect(url) as postgres:
        postgres.execute(change.encode())


SWAP = """UPDATE tape_credential_versions SET alias = CASE alias WHEN 'a' THEN 'tmp' ELSE 'a' END
    WHERE alias IN ('a', 'b')"""
BACK = "UPDATE tape_credential_versions SET alias = 'b' WHERE alias = 'tmp'"
TAKEN = """UPDATE tape_credential_versions SET {0} = (
    SELECT {0} FROM tape_credential_versions WHERE alias = 'b') WHERE alias = 'a'"""


@pytest.mark.parametrize(
    "changes",
    [
        (SWAP, BACK),
        (TAKEN.format("wrapped_key"),),
        (TAKEN.format("ciphertext"),),
        (TAKEN.format("nonce"),),
        (TAKEN.format("wrapped_key"), TAKEN.format("nonce"), TAKEN.format("ciphertext")),
        ("UPDATE tape_credential_versions SET version = 2",),
        ("UPDATE tape_credential_versions SET form = 'object'",),
    ],
    ids=["rows", "wrapped keys", "ciphertexts", "nonces", "all that is sealed", "version", "form"],
)
async def test_what_was_swapped_in_the_database_does_not_open(
    store_url: str, changes: tuple[str, ...]
) -> None:
    async with bus_with(store_url, KEY) as bus:
        await bus.wallet.put_credential("a", "one")
        await bus.wallet.put_credential("b", "two")
    for change in changes:
        alter(store_url, change)
    async with bus_with(store_url, KEY) as bus:
        with pytest.raises(CredentialDamaged, match=r"'a'.*put the credential again"):
            await bus.wallet.open_credential("a")
        await bus.wallet.put_credential("a", "again")
        assert texts(await bus.wallet.open_credential("a")) == ["again"]


async def test_openings_are_on_the_row_when_the_process_ends(store_url: str) -> None:
    async with bus_with(store_url, KEY) as bus:
        await bus.wallet.put_credential("a", "x")
        for _ in range(25):
            await bus.wallet.open_credential("a")
        await bus.wallet.get_sealed_credential("a")
    async with bus_with(store_url) as bus:
        (state,) = await bus.wallet.list_credentials()
        assert state.opened == 26
        assert await told(bus) == [("put", 1, 0)]
