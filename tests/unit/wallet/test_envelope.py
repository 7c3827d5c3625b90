"""What is sealed opens where it belongs, and nowhere else: not with one bit of it changed."""

import json
import random
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tape.errors import CredentialDamaged, TapeError, WalletLocked
from tape.model.credential import CredentialForm, CredentialVersion
from tape.ports.credentials import SecretValue
from tape.wallet.envelope import context_of, open_version, rewrap, seal
from tape.wallet.local_keys import LocalKeyring, new_key

SEED = random.randrange(2**32)
RECORDS = 10_000
CANARY = "canary-7d1f0c"
BINARY = ("wrapped_key", "nonce", "ciphertext")


@pytest.fixture
def chance() -> random.Random:
    print(f"seed {SEED}")
    return random.Random(SEED)


def random_text(chance: random.Random, most: int) -> str:
    """Of all planes, without surrogates, which are no text."""
    points = (chance.choice((0x7F, 0x7FF, 0xD7FF, 0x10FFFF)) for _ in range(chance.randrange(most)))
    drawn = (chance.randrange(1, point) for point in points)
    return "".join(chr(n) for n in drawn if not 0xD800 <= n <= 0xDFFF)


def value_of(opened: SecretValue) -> object:
    return opened.fields if opened.text is None else opened.text


def flipped(data: bytes, bit: int) -> bytes:
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def flipped_text(text: str, bit: int) -> str:
    """A text may be no UTF-8 any more; a store would give something like it."""
    return flipped(text.encode(), bit).decode(errors="surrogateescape")


def having(row: CredentialVersion, **fields: Any) -> CredentialVersion:
    """The row with other fields, by names that are not known until then."""
    return row._replace(**fields)


def every_flip(row: CredentialVersion) -> Iterator[CredentialVersion]:
    """The row with each bit of each of its parts flipped, one at a time."""
    for field in BINARY:
        for bit in range(8 * len(getattr(row, field))):
            yield having(row, **{field: flipped(getattr(row, field), bit)})
    for field in ("alias", "form", "key_id"):
        for bit in range(8 * len(getattr(row, field).encode())):
            yield having(row, **{field: flipped_text(getattr(row, field), bit)})
    for bit in range(63):
        yield row._replace(version=row.version ^ 1 << bit)


def a_flip(row: CredentialVersion, field: str, chance: random.Random) -> CredentialVersion:
    now = getattr(row, field)
    if field == "version":
        return row._replace(version=now ^ 1 << chance.randrange(63))
    if isinstance(now, bytes):
        return having(row, **{field: flipped(now, chance.randrange(8 * len(now)))})
    bit = chance.randrange(8 * len(now.encode()))
    return having(row, **{field: flipped_text(now, bit)})


async def refused(keyring: LocalKeyring, row: CredentialVersion) -> bool:
    """An altered name of the key is a key that is not there; all else is damage."""
    try:
        await open_version(keyring, row)
    except (CredentialDamaged, WalletLocked) as error:
        return CANARY not in str(error)
    return False


async def test_random_records_open_as_they_were_and_with_no_bit_flipped(
    chance: random.Random,
) -> None:
    keyring = LocalKeyring([new_key(), new_key()], "test")
    parts = ("alias", "version", "form", "key_id", *BINARY)
    let_in: list[str] = []
    for _ in range(RECORDS):
        alias = random_text(chance, 40) or "a"
        version = chance.randrange(1, 2**31)
        text = random_text(chance, 200)
        value: object = text
        form = chance.choice(list(CredentialForm))
        if form is CredentialForm.OBJECT:
            value = {"user": text, "n": chance.randrange(99), "deep": {"list": [text, None]}}
            text = json.dumps(value)
        row = await seal(keyring, alias, version, text, form)
        assert value_of(await open_version(keyring, row)) == value
        flips = {part: a_flip(row, part, chance) for part in parts}
        let_in += [part for part, flip in flips.items() if not await refused(keyring, flip)]
    assert let_in == []


@pytest.mark.parametrize(
    ("alias", "value", "form"),
    [
        ("nats_main", CANARY, CredentialForm.TEXT),
        ("é/hook", json.dumps({"secret": CANARY}), CredentialForm.OBJECT),
        ("_", "x", CredentialForm.TEXT),
    ],
)
async def test_every_single_bit_counts(alias: str, value: str, form: CredentialForm) -> None:
    keyring = LocalKeyring([new_key()], "test")
    row = await seal(keyring, alias, 3, value, form)
    flips = list(every_flip(row))
    assert len(flips) > 900
    let_in = [flip for flip in flips if not await refused(keyring, flip)]
    assert let_in == []


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    "records",
    [pytest.param(300, marks=pytest.mark.middle), pytest.param(RECORDS, marks=pytest.mark.long)],
)
async def test_every_single_bit_of_many_records_counts(records: int, chance: random.Random) -> None:
    """They are small, so that there may be many; each has an alias, a version, a form, two nonces
    and keys of its own."""
    begun = time.monotonic()
    keyring = LocalKeyring([new_key(), new_key()], "test")
    tried, let_in = 0, 0
    for number in range(records):
        form = chance.choice(list(CredentialForm))
        text = chance.choice("xyz") if form is CredentialForm.TEXT else "{}"
        row = await seal(keyring, f"{number:x}", chance.randrange(1, 2**31), text, form)
        await open_version(keyring, row)
        for flip in every_flip(row):
            tried += 1
            let_in += not await refused(keyring, flip)
    print(f"{records} records, {tried} flips, {time.monotonic() - begun:.0f} s")
    assert tried > 900 * records
    assert let_in == 0


@pytest.mark.parametrize("field", BINARY)
async def test_what_is_cut_short_or_longer_is_refused(field: str) -> None:
    keyring = LocalKeyring([new_key()], "test")
    row = await seal(keyring, "a", 1, "value", CredentialForm.TEXT)
    whole: bytes = getattr(row, field)
    for size in range(len(whole)):
        assert await refused(keyring, having(row, **{field: whole[:size]}))
    assert await refused(keyring, having(row, **{field: whole + b"\0"}))


async def test_nothing_can_stand_in_the_place_of_another() -> None:
    """Rows, and parts of rows, of one alias and of two, swapped in every way."""
    keyring = LocalKeyring([new_key()], "test")
    rows = [
        await seal(keyring, alias, version, "value", CredentialForm.TEXT)
        for alias in ("a", "b")
        for version in (1, 2)
    ]
    for one in rows:
        for other in rows:
            if one is other:
                continue
            assert await refused(keyring, other._replace(alias=one.alias, version=one.version))
            for field in BINARY:
                swapped = having(one, **{field: getattr(other, field)})
                assert await refused(keyring, swapped), field
            # The whole sealed part with its key, and only the name is another's.
            sealed = {field: getattr(other, field) for field in BINARY}
            assert await refused(keyring, having(one, **sealed))


async def test_each_version_has_a_data_key_and_a_nonce_of_its_own() -> None:
    keyring = LocalKeyring([new_key()], "test")
    rows = [await seal(keyring, "a", 1, "value", CredentialForm.TEXT) for _ in range(100)]
    for field in BINARY:
        assert len({getattr(row, field) for row in rows}) == 100
    assert all(b"value" not in row.ciphertext for row in rows)


async def test_a_rewrap_moves_the_data_key_and_nothing_else() -> None:
    old, new = new_key(), new_key()
    row = await seal(LocalKeyring([old], "test"), "a", 1, "value", CredentialForm.TEXT)
    both = LocalKeyring([new, old], "test")
    moved = await rewrap(both, row)
    assert moved.key_id == both.key_id != row.key_id
    assert moved[5:] == row[5:]
    assert (await open_version(LocalKeyring([new], "test"), moved)).text == "value"
    assert (await open_version(both, row)).text == "value"
    with pytest.raises(WalletLocked, match=f"'a', version 1: .* key {row.key_id!r}"):
        await open_version(LocalKeyring([new], "test"), row)
    with pytest.raises(CredentialDamaged):
        await rewrap(both, row._replace(version=2))


async def test_another_key_with_the_same_name_does_not_open_it() -> None:
    """The name of a key is made of it; a row could name any."""
    one, other = LocalKeyring([new_key()], "test"), LocalKeyring([new_key()], "test")
    row = await seal(one, "a", 1, "value", CredentialForm.TEXT)
    with pytest.raises(CredentialDamaged):
        await open_version(other, row._replace(key_id=other.key_id))


def test_contexts_are_told_apart_whatever_an_alias_holds() -> None:
    aliases = ["a", "a/1/text", "a/1", "", "_", "%5F", "é", "%C3%A9", "a b", "a%20b"]
    contexts = {
        context_of(alias, version, form)
        for alias in aliases
        for version in (1, 11)
        for form in ("text", "object")
    }
    assert len(contexts) == 4 * len(aliases)
    assert all(context.isascii() for context in contexts)


async def test_an_error_of_a_keyring_is_told_with_whose_it_is() -> None:
    class Away(LocalKeyring):
        async def unwrap(self, key: object, context: bytes) -> bytes:
            raise TapeError("no answer")

    row = await seal(LocalKeyring([new_key()], "test"), "a", 7, "value", CredentialForm.TEXT)
    with pytest.raises(TapeError, match=r"^credential 'a', version 7: no answer$"):
        await open_version(Away([new_key()], "test"), row)


def test_what_is_opened_is_not_printed() -> None:
    for value in (SecretValue(CANARY), SecretValue({"password": CANARY})):
        assert CANARY not in f"{value!r} {value} {[value]} {(value,)}"
