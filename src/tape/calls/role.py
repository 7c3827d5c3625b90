"""What a caller must be allowed to."""

from enum import IntEnum


class Role(IntEnum):
    """Each may do what the ones below it may."""

    READ = 1
    WRITE = 2
    ADMIN = 3
