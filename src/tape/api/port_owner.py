"""Who listens on a port of this machine, as far as /proc tells this user: for the one who wanted to
listen there."""

import re
from collections.abc import Iterator
from pathlib import Path

_LISTENING = "0A"  # the state of a socket in /proc/net/tcp
_SOCKET = re.compile(r"socket:\[(\d+)\]")
SHOWN = 60  # characters of a command


def port_owner(port: int, proc: Path = Path("/proc")) -> str:
    """`process 4711 (tape serve)`; empty where /proc does not tell."""
    inodes = set(_listening(port, proc))
    if not inodes:
        return ""
    for process in proc.glob("[0-9]*"):
        if inodes & set(_sockets_of(process)):
            return f"process {process.name} ({_command(process)})"
    return ""


def in_use(address: str, port: int) -> str:
    """What to say of an address that is taken."""
    owner = port_owner(port)
    by = f" by {owner}" if owner else ""
    return f"cannot listen on {address}: it is in use{by}; name another port, or 0 for any"


def _listening(port: int, proc: Path) -> Iterator[str]:
    """The numbers of the sockets that listen there, of any address."""
    for name in ("tcp", "tcp6"):
        try:
            lines = (proc / "net" / name).read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            columns = line.split()
            if columns[3] == _LISTENING and int(columns[1].rpartition(":")[2], 16) == port:
                yield columns[9]


def _sockets_of(process: Path) -> Iterator[str]:
    try:
        for descriptor in (process / "fd").iterdir():
            if found := _SOCKET.fullmatch(str(descriptor.readlink())):
                yield found[1]
    except OSError:  # it has ended, or is another user's
        return


def _command(process: Path) -> str:
    """Its program and sub-commands. Options are left out: they may hold a password."""
    try:
        program, *words = (process / "cmdline").read_text(errors="replace").split("\0")
    except OSError:
        return "unknown"
    shown = [Path(program).name]
    for word in words:
        if (word.startswith("-") and word not in ("-m", "-c")) or not word or "://" in word:
            break
        shown.append(Path(word).name)
    return " ".join(" ".join(shown).split())[:SHOWN]
