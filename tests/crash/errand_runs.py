"""Errands begun and watched from outside."""

from typing import NamedTuple

import tape
from tests.crash.book import Noted, read_book
from tests.crash.errand_processes import said
from tests.crash.errand_worker import Working
from tests.crash.errands import Errand
from tests.crash.watching import await_true, query
from tests.servers.tape_server import ServerProcess

PATIENCE_S = 30.0
POLL_S = 2.0
"""Past the end of a lease, how long it may take until another has the run."""
LEASE = "SELECT lease_owner, lease_expires_at_ms, fencing_token FROM tape_runs"


class Door(NamedTuple):
    """How a worker reaches a store which a server serves besides."""

    store: str
    server: ServerProcess
    url: str


def begin(url: str, errand: Errand) -> None:
    with tape.connect(url) as client:
        client.start_run("errand", errand._asdict(), invocation_id=str(errand.number))


def await_ended(store: str, count: int = 1) -> None:
    ended = "SELECT count(*) FROM tape_runs WHERE status = 4"
    await_true(lambda: query(store, ended) == [(count,)], PATIENCE_S, lambda: "it does not end")


def noted(given: Working, word: str, by: str = "", *, times: int = 1) -> Noted:
    """Wait for a line of the book."""

    def lines() -> list[Noted]:
        return [line for line in read_book(given.book) if line.word == word and by in ("", line.by)]

    await_true(lambda: len(lines()) >= times, PATIENCE_S, lambda: f"not {word}: {said(given)}")
    return lines()[times - 1]


def lease(store: str) -> tuple[str, int, int]:
    """Of the only run: its owner, when it is over, its token."""
    ((owner, expires_at_ms, token),) = query(store, LEASE)
    return owner, expires_at_ms, token
