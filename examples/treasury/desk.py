"""The desk that every request to act goes through, whichever counterparty it is for.

A request that comes with a key is done once: a repeat gets the first answer, and the same key with
another body is refused. A refusal is not an answer: nothing was done, so its key stays free.

What was done, its answer and its line in the list of calls are written in one transaction. A kill
leaves all of it or none.

A hook is something that goes wrong on purpose. Hooks of one route are met in the order they were
set, one by each request, whatever becomes of that request otherwise.
"""

import json
import os
import signal
import sqlite3
from collections.abc import Callable
from http import HTTPStatus
from typing import TypeVar, cast, get_args

from examples.treasury.records import Call, Do, Hook, Outcome, Route
from examples.treasury.refusals import Body, Refusal

T = TypeVar("T")
Work = Callable[[Do | None], tuple[T, Outcome]]

CAN_BE_MADE_TWICE: tuple[Route, ...] = ("bank.wire", "bank.plain_wire")
MOST_TIMES = 1_000_000

_SCHEMA = """
CREATE TABLE IF NOT EXISTS answers (
    route TEXT, key TEXT, asked TEXT, answer TEXT, PRIMARY KEY (route, key)
);
CREATE TABLE IF NOT EXISTS hooks (number INTEGER PRIMARY KEY, route TEXT, "do" TEXT, times INTEGER);
CREATE TABLE IF NOT EXISTS calls (
    number INTEGER PRIMARY KEY, route TEXT, key TEXT, outcome TEXT, hook TEXT
);
"""


class Away(Exception):
    """Nothing was done; it may be tried again later."""


class AckWithheld(Exception):
    """It was done, and the caller must not hear of it."""


class Desk:
    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        db.executescript(_SCHEMA)

    def once(self, route: Route, key: str, asked: Body, act: Callable[[], T]) -> T:
        """Act, or give the first answer if this key has been here before."""
        asked_text = json.dumps(asked, sort_keys=True)

        def work(hook: Do | None) -> tuple[T, Outcome]:
            first = self._db.execute(
                "SELECT asked, answer FROM answers WHERE route = ? AND key = ?", (route, key)
            ).fetchone()
            if first is None:
                answer = _made(act, hook)
                self._db.execute(
                    "INSERT INTO answers VALUES (?, ?, ?, ?)",
                    (route, key, asked_text, json.dumps(answer)),
                )
                return answer, "did"
            if first["asked"] != asked_text:
                raise Refusal(f"key {key!r} came before with another body", HTTPStatus.CONFLICT)
            return json.loads(first["answer"]), "repeated"

        return self._serve(route, key, work)

    def each_time(self, route: Route, reference: str, act: Callable[[], T]) -> T:
        """Act, even if this reference has been here before."""
        return self._serve(route, reference, lambda hook: (_made(act, hook), "did"))

    def set_hook(self, body: Body) -> Hook:
        route, do, times = body.get("route"), body.get("do"), body.get("times", 1)
        if route not in get_args(Route):
            raise Refusal(f"no route {route!r}; there are {', '.join(get_args(Route))}")
        if do not in get_args(Do):
            raise Refusal(f"a hook cannot {do!r}; it can {', '.join(get_args(Do))}")
        if do == "twice" and route not in CAN_BE_MADE_TWICE:
            raise Refusal(f"'twice' is for {' and '.join(CAN_BE_MADE_TWICE)}, not {route}")
        if type(times) is not int or not 0 < times <= MOST_TIMES:
            raise Refusal(f"'times' must be 1 to {MOST_TIMES}, not {times!r}")
        with self._db:
            self._db.execute(
                'INSERT INTO hooks (route, "do", times) VALUES (?, ?, ?)', (route, do, times)
            )
        return {"route": cast("Route", route), "do": cast("Do", do), "times": times}

    def clear_hooks(self) -> None:
        with self._db:
            self._db.execute("DELETE FROM hooks")

    def calls(self) -> list[Call]:
        rows = self._db.execute("SELECT route, key, outcome, hook FROM calls ORDER BY number")
        return [cast("Call", dict(row)) for row in rows]

    def _serve(self, route: Route, key: str, work: Work[T]) -> T:
        hook = self._next_hook(route)
        try:
            with self._db:
                _before(hook)
                answer, outcome = work(hook)
                self._note(route, key, outcome, hook)
        except (Refusal, Away) as error:
            with self._db:
                self._note(route, key, "failed" if isinstance(error, Away) else "refused", hook)
            raise
        _after(hook)
        return answer

    def _next_hook(self, route: Route) -> Do | None:
        hook = self._db.execute(
            'SELECT number, "do" FROM hooks WHERE route = ? AND times > 0 ORDER BY number', (route,)
        ).fetchone()
        if hook is None:
            return None
        with self._db:
            self._db.execute(
                "UPDATE hooks SET times = times - 1 WHERE number = ?", (hook["number"],)
            )
        do: Do = hook["do"]
        return do

    def _note(self, route: Route, key: str, outcome: Outcome, hook: Do | None) -> None:
        self._db.execute(
            "INSERT INTO calls (route, key, outcome, hook) VALUES (?, ?, ?, ?)",
            (route, key, outcome, hook),
        )


def _before(hook: Do | None) -> None:
    if hook == "fail":
        raise Away("away, as a hook asks")
    if hook == "refuse":
        raise Refusal("refused, as a hook asks")


def _made(act: Callable[[], T], hook: Do | None) -> T:
    answer = act()
    if hook == "twice":
        act()
    return answer


def _after(hook: Do | None) -> None:
    if hook == "crash":
        os.kill(os.getpid(), signal.SIGKILL)
    if hook == "lose_ack":
        raise AckWithheld
