"""The key file: a key in base64 on each line, the newest first; # starts a comment line.

It is for its owner alone, and refused if others can read or change it. It is never written in
place: a new file is made beside it, flushed, and linked or renamed to its name, so that a reader,
and a crash at any moment, finds the old keys or the new ones. A key that is added comes first, and
a lock on the file keeps two who add at once from dropping each other's.
"""

import contextlib
import fcntl
import os
import secrets
import stat
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from tape.errors import InvalidArgument, WalletLocked
from tape.ports.durable_file import sync_folder
from tape.wallet.local_keys import LocalKeyring, key_id, new_key, read_keys, written

READ_MOST: Final = 64 * 1024
FILE_MODE: Final = 0o600
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO

Stamp = tuple[int, ...]
"""What changes when a file is replaced or written to."""


def stamp_of(path: Path, source: str) -> Stamp:
    """WalletLocked if there is no such file."""
    try:
        found = path.stat()
    except OSError as error:
        raise _unreadable(path, source, error) from None
    return (found.st_dev, found.st_ino, found.st_mtime_ns, found.st_ctime_ns, found.st_size)


def read_key_file(path: Path, source: str) -> LocalKeyring:
    """The keys of a file. `source` is what named it; WalletLocked says what is wrong with it."""
    try:
        with path.open("rb") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            if mode & _OTHERS:
                raise WalletLocked(
                    f"{source}: {path} is open to other users (mode {mode:03o}), so the key in it "
                    f"is refused: run chmod 600 {path}"
                )
            text = file.read(READ_MOST).decode("ascii", errors="replace")
    except OSError as error:
        raise _unreadable(path, source, error) from None
    lines = ((line.strip(), f"line {number}") for number, line in enumerate(text.splitlines(), 1))
    found = [(line, where) for line, where in lines if line and not line.startswith("#")]
    return read_keys(found, f"{source} ({path})")


def create_key_file(path: Path) -> str:
    """Make a file with a new key; the key's id. One that is there is never touched."""
    key = new_key()
    with _refusing(path):
        beside = _written_beside(path, _lines(key))
        try:
            path.hardlink_to(beside)
        except FileExistsError:
            raise InvalidArgument(
                f"{path} is there already: to rotate the key in it, add a new one with --add",
                field="file",
            ) from None
        finally:
            beside.unlink()
        sync_folder(path.parent)
    return key_id(key)


def add_key(path: Path) -> str:
    """Put a new key before those of a file; its id. The others stay, to open what they sealed."""
    path = path.resolve()  # renaming over a symbolic link would replace the link
    key = new_key()
    with _refusing(path), _locked(path):
        read_key_file(path, "file")
        before = path.read_bytes()  # its comments may be in any encoding
        beside = _written_beside(path, _lines(key) + before, owned_as=path.stat())
        try:
            beside.replace(path)
        except OSError:
            beside.unlink()
            raise
        sync_folder(path.parent)
    return key_id(key)


def _lines(key: bytes) -> bytes:
    made = f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
    return f"# {key_id(key)}, made {made}\n{written(key)}\n".encode()


def _written_beside(path: Path, content: bytes, owned_as: os.stat_result | None = None) -> Path:
    """A file next to it, on the disk; of us, or of who has another one."""
    beside = path.with_name(f".{path.name}.{secrets.token_hex(8)}.new")
    made = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)
    try:
        with os.fdopen(made, "wb") as file:
            os.fchmod(made, FILE_MODE)
            if owned_as is not None:
                _give(made, owned_as)
            file.write(content)
            file.flush()
            os.fsync(made)
    except BaseException:
        beside.unlink()
        raise
    return beside


def _give(made: int, owned_as: os.stat_result) -> None:
    """Else root, who adds a key, takes the file from the server that reads it."""
    mine = os.fstat(made)
    if (mine.st_uid, mine.st_gid) == (owned_as.st_uid, owned_as.st_gid):
        return
    try:
        os.fchown(made, owned_as.st_uid, owned_as.st_gid)
    except PermissionError:
        raise InvalidArgument(
            f"the key file is of user {owned_as.st_uid} and group {owned_as.st_gid}, which this "
            "user cannot give a file to: run it as that user, or as root",
            field="file",
        ) from None


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Alone with the file that has that name now: whoever held the lock may have replaced it."""
    while True:
        held = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(held, fcntl.LOCK_EX)
            if os.path.samestat(os.fstat(held), path.stat()):
                yield
                return
        finally:
            os.close(held)


@contextlib.contextmanager
def _refusing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InvalidArgument(f"{path} cannot be written: {error.strerror}", field="file") from None


def _unreadable(path: Path, source: str, error: OSError) -> WalletLocked:
    made = f"; `tape wallet init --file {path}` makes one"
    remedy = made if isinstance(error, FileNotFoundError) else ""
    return WalletLocked(f"{source}: {path} cannot be read: {error.strerror}{remedy}")
