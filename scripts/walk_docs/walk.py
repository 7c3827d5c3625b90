"""One page, followed from its first block to its last."""

import socket
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from scripts.walk_docs.environments import Environments
from scripts.walk_docs.servers import servers_of
from tests.integration.docs.pages import PORTS, ROOT, Block, Install, blocks
from tests.integration.docs.shell import Shell

PATIENCE_S = 240


class Round(NamedTuple):
    """Where a page is followed."""

    version: str
    python: Path
    extra: str


class Walked(NamedTuple):
    page: str
    python: str
    extra: str
    blocks: int
    run: int
    compared: int
    not_run: dict[str, str]
    faults: list[str]
    seconds: float


def walk(page: Path, where: Round, environments: Environments, ports: Mapping[int, int]) -> Walked:
    begun = time.monotonic()
    found = blocks(page, ports)
    to_run = [block for block in found if block.steps]
    try:
        faults = _followed(page, to_run, where, environments, ports) if to_run else []
    except RuntimeError as fault:  # an environment or a server that could not be had
        faults, to_run = [f"not followed: {fault}"], []
    return Walked(
        page=str(page.relative_to(ROOT)),
        python=where.version,
        extra=where.extra,
        blocks=len(found),
        run=len(to_run),
        compared=sum(block.is_compared for block in to_run),
        not_run={
            f"line {block.line}": block.reason or "NO REASON GIVEN"
            for block in found
            if not block.steps
        },
        faults=faults,
        seconds=round(time.monotonic() - begun, 1),
    )


def _followed(
    page: Path,
    to_run: list[Block],
    where: Round,
    environments: Environments,
    ports: Mapping[int, int],
) -> list[str]:
    """Do what the blocks say, in order; what was otherwise."""
    installs = any(isinstance(step, Install) for block in to_run for step in block.steps)
    make = environments.fresh if installs else environments.shared
    environment = make(where.python, where.extra)
    path, variables = environments.path(environment), environments.variables(environment)
    with (
        tempfile.TemporaryDirectory(prefix="tape-walk-") as folder,
        servers_of(page.read_text(), ports),
        Shell(Path(folder), path, variables, PATIENCE_S) as shell,
    ):
        return [
            f"line {block.line}: {fault}"
            for block in to_run
            if (fault := next(filter(None, map(shell.fault, block.steps)), ""))
        ]


def taken_ports() -> list[int]:
    """Which of the ports that pages print somebody listens on."""
    return [port for port in PORTS if _is_taken(port)]


def _is_taken(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
