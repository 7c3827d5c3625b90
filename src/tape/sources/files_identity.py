"""What tells a file from another that has its name later: its inode, and when that was made.

An inode is given to the next file as soon as one is deleted, so its number alone tells nothing.
Python does not say yet when a file was made on Linux, but the kernel does (`statx`). Where nobody
says it, that is 0.
"""

import ctypes
import os
import struct
from functools import cache
from typing import Any, Final, NamedTuple

_AT_EMPTY_PATH: Final = 0x1000
_STATX_BTIME: Final = 0x800
_SIZE: Final = 256
_MASK: Final = struct.Struct("=I")
_BTIME: Final = struct.Struct("=qI")
_BTIME_AT: Final = 80
_NS: Final = 1_000_000_000


class FileIdentity(NamedTuple):
    inode: int
    born_ns: int


def identity_of(file: int) -> FileIdentity:
    told = os.fstat(file)
    born_s: float | None = getattr(told, "st_birthtime", None)
    return FileIdentity(told.st_ino, _born_ns(file) if born_s is None else int(born_s * _NS))


def _born_ns(file: int) -> int:
    statx = _statx()
    answer = ctypes.create_string_buffer(_SIZE)
    if statx is None or statx(file, b"", _AT_EMPTY_PATH, _STATX_BTIME, answer):
        return 0
    if not _MASK.unpack_from(answer)[0] & _STATX_BTIME:
        return 0
    seconds, ns = _BTIME.unpack_from(answer, _BTIME_AT)
    return int(seconds) * _NS + int(ns)


@cache
def _statx() -> Any:
    """The function of the C library, None where it has none."""
    return getattr(ctypes.CDLL(None), "statx", None)
