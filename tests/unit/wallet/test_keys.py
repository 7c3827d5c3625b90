"""Which keys a process has: of a file, of the environment, of several; and how it says what is
wrong with them without repeating one."""

import base64
import os
import threading
from pathlib import Path

import pytest

from tape.errors import InvalidArgument, WalletLocked
from tape.model.credential import CredentialForm
from tape.ports.keyring import Keyring
from tape.wallet.envelope import open_version, seal
from tape.wallet.key_file import add_key, create_key_file, read_key_file
from tape.wallet.keys import NO_KEYS, Keys
from tape.wallet.local_keys import key_id, new_key, written

OLD, NEW = b"o" * 32, b"n" * 32


def keys(**environment: str) -> Keys:
    return Keys({f"TAPE_WALLET_{name}": text for name, text in environment.items()})


async def refusal_of(source: Keys) -> str:
    with pytest.raises(WalletLocked) as refusal:
        await source.keyring()
    return str(refusal.value)


async def opens(keyring: Keyring, under: Keyring) -> bool:
    row = await seal(under, "a", 1, "value", CredentialForm.TEXT)
    try:
        return (await open_version(keyring, row)).text == "value"
    except WalletLocked:
        return False


def mode_of(file: Path) -> int:
    return file.stat().st_mode & 0o777


def set_mode(file: Path, mode: int) -> None:
    file.chmod(mode)


def write(file: Path, text: bytes) -> None:
    file.write_bytes(text)


def read(file: Path) -> bytes:
    return file.read_bytes()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "wallet.key"
    create_key_file(path)
    return path


async def test_without_a_key_the_remedy_is_said() -> None:
    assert not keys().is_named
    said = await refusal_of(keys())
    for name in ("TAPE_WALLET_KEY_FILE", "TAPE_WALLET_KEY", "TAPE_WALLET_KMS"):
        assert name in said
    with pytest.raises(WalletLocked):
        await NO_KEYS.keyring()


async def test_a_key_in_the_environment_and_older_ones_behind_it() -> None:
    one, both = keys(KEY=written(OLD)), keys(KEY=f"{written(NEW)}, {written(OLD)}")
    old, ring = await one.keyring(), await both.keyring()
    assert (await old.newest(), await ring.newest()) == (key_id(OLD), key_id(NEW))
    assert await opens(ring, old)
    assert not await opens(old, ring)
    assert both.is_named


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("c2VjcmV0", "key 1 is not 32 bytes in base64"),
        ("c2VjcmV0 not base64 at all!", "key 1 is not 32 bytes"),
        (f"{written(OLD)},c2VjcmV0", "key 2 is not 32 bytes"),
        (f"{written(OLD)},", "key 2 is not 32 bytes"),
        (base64.b64encode(b"c" * 33).decode(), "key 1 is not 32 bytes"),
        ("sécret", "key 1 is not 32 bytes"),
    ],
)
async def test_a_key_that_is_none_is_not_repeated(text: str, said: str) -> None:
    refusal = await refusal_of(keys(KEY=text))
    assert refusal.startswith(f"TAPE_WALLET_KEY: {said}")
    assert "tape wallet init" in refusal
    for part in text.split(","):
        assert len(part) < 4 or part not in refusal


def test_a_key_file_is_made_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "wallet.key"
    before = os.umask(0)
    try:
        made = create_key_file(path)
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o600
    text = path.read_text()
    assert text.startswith(f"# {made}, made ")
    assert len(base64.b64decode(text.splitlines()[1])) == 32
    assert read_key_file(path, "test").key_id == made
    assert [each.name for each in tmp_path.iterdir()] == ["wallet.key"]


def test_a_key_file_is_never_written_over(file: Path) -> None:
    before = file.read_bytes()
    with pytest.raises(InvalidArgument, match=r"is there already.*--add"):
        create_key_file(file)
    link = file.with_name("link")
    link.symlink_to(file)
    with pytest.raises(InvalidArgument, match="is there already"):
        create_key_file(link)
    dangling = file.with_name("dangling")
    dangling.symlink_to(file.with_name("nowhere"))
    with pytest.raises(InvalidArgument, match="is there already"):
        create_key_file(dangling)
    assert file.read_bytes() == before
    with pytest.raises(InvalidArgument, match="No such file"):
        create_key_file(file.parent / "none" / "wallet.key")


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
async def test_a_key_is_added_before_a_comment_in_any_encoding(file: Path, encoding: str) -> None:
    commented = "# Schlüssel für München\n".encode(encoding) + read(file)
    write(file, commented)
    old = await keys(KEY_FILE=str(file)).keyring()
    added = add_key(file)
    assert read(file).endswith(commented)
    ring = await keys(KEY_FILE=str(file)).keyring()
    assert await ring.newest() == added
    assert await opens(ring, old)


async def test_a_key_that_is_added_comes_first_and_is_known_at_once(file: Path) -> None:
    source = keys(KEY_FILE=str(file))
    old = await source.keyring()
    assert (await source.keyring()) is old  # it is not read again while it stays as it is
    added = add_key(file)
    new = await source.keyring()
    assert await new.newest() == added != await old.newest()
    assert await opens(new, old)
    assert mode_of(file) == 0o600
    assert read_key_file(file, "test").key_ids == [added, await old.newest()]


async def test_adding_through_a_link_leaves_the_link(file: Path) -> None:
    link = file.with_name("link")
    link.symlink_to(file)
    added = add_key(link)
    assert link.is_symlink()
    assert await (await keys(KEY_FILE=str(file)).keyring()).newest() == added


def test_two_who_add_at_once_drop_none(file: Path) -> None:
    added: list[str] = []
    start = threading.Barrier(8)

    def add() -> None:
        start.wait()
        added.append(add_key(file))

    threads = [threading.Thread(target=add) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = read_key_file(file, "test").key_ids
    assert len(found) == 9
    assert set(added) < set(found)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602, 0o610, 0o666])
async def test_a_key_file_that_is_open_to_others_is_refused(file: Path, mode: int) -> None:
    source = keys(KEY_FILE=str(file))
    await source.keyring()
    set_mode(file, mode)
    said = await refusal_of(source)  # also by a process that has read it before
    assert f"TAPE_WALLET_KEY_FILE: {file} is open to other users (mode {mode:03o})" in said
    assert f"chmod 600 {file}" in said
    with pytest.raises(WalletLocked):
        add_key(file)
    set_mode(file, 0o400)
    await source.keyring()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"", "holds no key"),
        (b"# nothing\n\n", "holds no key"),
        (b"# one\n" + written(OLD).encode() + b"\nc2VjcmV0\n", "line 3 is not 32 bytes"),
        (b"\xff\xfe\x00c2VjcmV0", "line 1 is not 32 bytes"),
    ],
)
async def test_a_key_file_that_is_none(file: Path, text: bytes, said: str) -> None:
    write(file, text)
    refusal = await refusal_of(keys(KEY_FILE=str(file)))
    assert refusal.startswith(f"TAPE_WALLET_KEY_FILE ({file})")
    assert said in refusal
    assert "c2VjcmV0" not in refusal
    assert written(OLD) not in refusal


async def test_a_key_file_that_is_not_there(tmp_path: Path) -> None:
    said = await refusal_of(keys(KEY_FILE=str(tmp_path / "none")))
    assert "No such file" in said
    assert f"tape wallet init --file {tmp_path / 'none'}" in said
    assert "Is a directory" in await refusal_of(keys(KEY_FILE=str(tmp_path)))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_root_adds_a_key_and_the_file_stays_its_owner_s(tmp_path: Path) -> None:
    path = tmp_path / "key"
    create_key_file(path)
    os.chown(path, 12_345, 54_321)
    added = add_key(path)
    found = path.stat()
    assert (found.st_uid, found.st_gid, found.st_mode & 0o777) == (12_345, 54_321, 0o600)
    assert read_key_file(path, "test").key_ids[0] == added


@pytest.mark.parametrize("call", ["fchown", "fsync", "replace"])
def test_a_key_that_cannot_be_added_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    path = tmp_path / "key"
    create_key_file(path)
    before = path.read_bytes()
    if os.geteuid() == 0:
        os.chown(path, 12_345, 54_321)
    elif call == "fchown":
        pytest.skip("only root has a file of another")

    def refuse(*_arguments: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    with monkeypatch.context() as patched:
        patched.setattr(Path if call == "replace" else os, call, refuse)
        with pytest.raises(InvalidArgument, match=r"run it as that user|cannot be written"):
            add_key(path)
    assert path.read_bytes() == before
    assert [each.name for each in tmp_path.iterdir()] == ["key"]


def test_lines_may_be_indented_commented_and_repeated(file: Path) -> None:
    file.write_text(f"  {written(NEW)}  \r\n\n# old\n{written(OLD)}\n{written(NEW)}\n")
    assert read_key_file(file, "test").key_ids == [key_id(NEW), key_id(OLD)]


async def test_a_wallet_moves_from_one_place_to_another(file: Path) -> None:
    """Both are named for a while: the file wraps, and both unwrap."""
    environment = await keys(KEY=written(OLD)).keyring()
    both = await keys(KEY=written(OLD), KEY_FILE=str(file)).keyring()
    alone = await keys(KEY_FILE=str(file)).keyring()
    assert await both.newest() == await alone.newest()
    assert await opens(both, environment)
    assert await opens(both, alone)
    assert await opens(alone, both)
    stranger = await keys(KEY=written(NEW)).keyring()
    row = await seal(stranger, "a", 1, "value", CredentialForm.TEXT)
    with pytest.raises(WalletLocked, match=f"under the key '{key_id(NEW)}'"):
        await open_version(both, row)
    await both.close()


async def test_the_operator_says_which_place_seals(file: Path) -> None:
    """Else a wallet could move in one direction alone."""
    environment = {"KEY": written(OLD), "KEY_FILE": str(file)}
    of_file = await keys(KEY_FILE=str(file)).keyring()
    for place, wanted in (("environment", key_id(OLD)), ("file", await of_file.newest())):
        both = await keys(**environment, SEAL_WITH=place).keyring()
        assert await both.newest() == wanted
        assert (await both.wrap(b"x" * 32, b"")).key_id == wanted
        assert await opens(both, of_file)
        assert await opens(both, await keys(KEY=written(OLD)).keyring())
    assert "'moon' is not one of kms, file, env" in await refusal_of(
        keys(**environment, SEAL_WITH="moon")
    )
    assert "TAPE_WALLET_KMS is not set" in await refusal_of(keys(**environment, SEAL_WITH="kms"))


@pytest.mark.parametrize("text", ["alias/tape", "gcp:projects/p", "aws:", "aws:a,", "aws:a,b"])
async def test_a_name_of_a_key_that_is_none(text: str) -> None:
    assert "names no key; use aws:KEY-ID" in await refusal_of(keys(KMS=text))


async def test_keys_are_not_printed(file: Path) -> None:
    write(file, written(OLD).encode())
    for source in (keys(KEY=written(OLD)), keys(KEY_FILE=str(file))):
        ring = await source.keyring()
        for secret in (written(OLD), OLD.decode()):
            assert secret not in f"{ring!r} {ring} {vars(ring)!r}"


def test_a_name_is_made_of_the_key_and_tells_nothing_of_it() -> None:
    names = {key_id(new_key()) for _ in range(1_000)}
    assert len(names) == 1_000
    assert key_id(OLD) == key_id(OLD) != key_id(NEW)
