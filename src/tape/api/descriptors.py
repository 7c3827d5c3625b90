"""The files that this process may have open, of which each connection is one.

Where there are none left, nobody gets in: neither a question of health nor whoever would drive out
a half request. So the doors together never take them all.
"""

import logging
import sys
from collections.abc import Sequence
from dataclasses import replace

from tape.settings import DoorSettings

log = logging.getLogger("tape.serve")
RESERVE = 256
"""For the store, brokers, files, and HTTP's questions of health above the limit."""
SERVED = ("gRPC", "HTTP")


def fit_to_descriptors(doors: DoorSettings, names: Sequence[str] = SERVED) -> DoorSettings:
    """Let this process open as many files as its doors need, or they take fewer."""
    needed = len(names) * doors.connections + RESERVE
    limit = _raised_to(needed)
    most = max(1, (limit - RESERVE) // len(names))
    if doors.connections <= most:
        return doors
    log.warning(
        "%s accept %d connections each instead of %d (tape.doors.connections), "
        "because this process may open %d files: raise the hard limit (ulimit -Hn) to %d",
        " and ".join(names), most, doors.connections, limit, needed,
    )  # fmt: skip
    return replace(doors, connections=most)


def _raised_to(wanted: int) -> int:
    """How many files it may open, after asking for so many."""
    if sys.platform == "win32":
        return wanted
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return wanted
    allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    except (OSError, ValueError):
        return soft
    return allowed
