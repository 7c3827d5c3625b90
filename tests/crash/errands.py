"""Apps that run errands: steps that act upon a counterparty, in a process that may not live long.

Whatever a process writes down for a run bears its mark, the name of the owner of its leases, so
that the journal tells who has written what. Each process declares the apps for itself.
"""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import tape
from tape.runs.declare import Apps
from tests.crash.book import Book

SLEEP_S = 0.2
LOOK_S = 0.02
CHILD_STEPS = 2
GATE = "go"


class Errand(NamedTuple):
    """What a run is given: its number, how many acts, which of them by the outbox, and what it
    waits for in the middle.
    """

    number: int
    steps: int
    by_outbox: Sequence[int] = ()
    waits_for: str = ""

    @property
    def result(self) -> list[str]:
        """What it must come to."""
        answers = [answer(self.number, step) for step in range(self.steps)]
        if self.waits_for == "child":
            answers += child_of(self.number).result
        elif self.waits_for == "gate":
            answers.append(f"{GATE} {self.number}")
        return answers


def answer(number: int, step: int) -> str:
    return f"{number}.{step}"


def child_of(number: int) -> Errand:
    return Errand(-number, CHILD_STEPS)


class Errands:
    """The app `errand` as a process with that mark declares it."""

    def __init__(self, book: Book, by: str, *, pace_s: float, hold: Path) -> None:
        """An act takes `pace_s`; one that the counterparty recognises, longer while there is a
        file `hold`.
        """
        self._book = book
        self._by = by
        self._pace_s = pace_s
        self._hold = hold
        self.apps = Apps()
        self._ask = tape.effect(name="ask", registry=self.apps)(self._asked)
        self._pay = tape.effect(
            name="pay",
            semantics="non_idempotent",
            dispatch="outbox",
            check=self._look,
            registry=self.apps,
        )(self._paid)
        self._errand = tape.app("errand", version="1", registry=self.apps)(self._run)

    async def _run(self, ctx: tape.Context, given: dict[str, Any]) -> list[str]:
        work = Errand(**given)
        answers: list[str] = []
        waited: list[str] = []
        for step in range(work.steps):
            ctx.sample(lambda: {"by": self._by}, name="who")
            act = self._pay if step in work.by_outbox else self._ask
            done = await ctx.call(act, work.number, step)
            answers.append(done["answer"])
            if step == work.steps // 2:
                waited = await self._wait(ctx, work)
        return answers + waited

    async def _wait(self, ctx: tape.Context, work: Errand) -> list[str]:
        if work.waits_for == "gate":
            return [(await ctx.gate(GATE))["word"]]
        if work.waits_for == "sleep":
            await ctx.sleep(SLEEP_S)
        elif work.waits_for == "child":
            child = await ctx.start(self._errand, child_of(work.number)._asdict())
            answers: list[str] = await ctx.result(child)
            return answers
        return []

    async def _asked(self, number: int, step: int) -> dict[str, str]:
        key = tape.idempotency_key()
        self._book.note("asked", key, self._by)
        try:
            await asyncio.sleep(self._pace_s)
            while self._is_held():  # noqa: ASYNC110 - the file is another process's
                await asyncio.sleep(LOOK_S)
        except asyncio.CancelledError:
            self._book.note("left", key, self._by)
            raise
        return self._answer(number, step)

    async def _paid(self, number: int, step: int) -> dict[str, str]:
        key = tape.idempotency_key()
        self._book.note("asked", key, self._by)
        await asyncio.sleep(self._pace_s / 2)
        self._book.note("did", key, self._by)
        await asyncio.sleep(self._pace_s / 2)
        return self._answer(number, step)

    def _look(self, key: str, request: Any) -> tape.Observed:
        """What the book says of a payment."""
        there = self._book.has("did", key)
        self._book.note("present" if there else "absent", key, self._by)
        if not there:
            return tape.Observed("absent")
        return tape.Observed("confirmed", self._answer(*request["args"]))

    def _answer(self, number: int, step: int) -> dict[str, str]:
        return {"answer": answer(number, step), "by": self._by}

    def _is_held(self) -> bool:
        return self._hold.exists()
