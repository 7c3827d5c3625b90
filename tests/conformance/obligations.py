"""Obligations: unwound newest first under a claim, whoever unwinds; listed while they are due."""

from typing import Any

import pytest

from tape.errors import StaleLease
from tape.model.lease import Taker
from tape.model.move import Need, save
from tape.model.obligation import (
    ALONE,
    OBLIGATIONS,
    ClaimObligation,
    Obligation,
    ObligationKey,
    ObligationStatus,
    RecordObligationAttempt,
    RegisterCompensation,
    ResolveObligation,
)
from tape.model.run import RunStatus
from tape.ports.store import Store
from tests.conformance.playing import (
    MANY,
    Look,
    OpenStore,
    SaveRows,
    play,
    read_all,
)
from tests.conformance.running import (
    LONG_MS,
    SHORT_MS,
    Driver,
    changing,
    clock_of,
    drive,
    pass_beyond,
    race,
    resuming,
)


def undo(name: str) -> ObligationKey:
    return ObligationKey(name, "undo")


async def failed(store: Store, invocation_id: str, *names: str) -> Driver:
    """A run that unwinds these, the last first."""
    driver = await drive(store, invocation_id)
    await driver.extend(*(RegisterCompensation(*undo(name)) for name in names))
    assert (await driver.end(RunStatus.FAILED)).status == RunStatus.COMPENSATING
    return driver


async def unresolved(store: Store, limit: int = MANY, **fields: Any) -> list[str]:
    return [row.effect_key for row in await store.runs.list_unresolved_obligations(limit, **fields)]


def resolved(name: str, claim: Obligation) -> ResolveObligation:
    return ResolveObligation(
        undo(name), claim.claim_token, ObligationStatus.COMPENSATED, '"undone"', ""
    )


class ObligationsContract:
    async def test_a_row_comes_back_as_it_was_written(self, open_store: OpenStore) -> None:
        store = await open_store()
        row = Obligation(
            "r/ä", "k/ä", "undo", 1, "[1]", ObligationStatus.COMMITTED, 2, "c", 3, 4, 5, "e", "me",
            6, 7, "[2]", ALONE,
        )  # fmt: skip
        assert all(row)
        await play(store, SaveRows(save(OBLIGATIONS, row)))
        assert await (await open_store()).runs.list_obligations("r/ä") == [row]
        changed = row._replace(
            status=ObligationStatus.STUCK.value, attempts=0, next_attempt_at_ms=0, last_error="",
            claimed_by="", claim_expires_at_ms=0, claim_token=8, result_json='"ä"',
        )  # fmt: skip
        await play(store, SaveRows(save(OBLIGATIONS, changed)))
        assert await play(store, Look(Need(OBLIGATIONS, ("r/ä", "k/ä", "undo")))) == [changed]
        assert await store.runs.list_obligations("R/ä") == []

    async def test_one_for_an_effect_and_kind(self, open_store: OpenStore) -> None:
        store = await open_store()
        driver = await drive(store)
        first = await driver.write(RegisterCompensation("e", "undo", "[1]"))
        assert await driver.write(RegisterCompensation("e", "undo", "[2]")) == first
        other = await driver.write(RegisterCompensation("e", "another"))
        assert await store.runs.list_obligations(driver.run_id) == [other, first]
        assert (other.below, first.below) == (first.seq, 0)
        assert (await driver.run()).top_obligation == other.seq

    async def test_nothing_is_due_before_its_run_unwinds(self, open_store: OpenStore) -> None:
        store = await open_store()
        driver = await drive(store)
        await driver.write(RegisterCompensation(*undo("e")))
        assert await unresolved(store) == []
        assert await driver.tell(ClaimObligation(undo("e"), "c", LONG_MS)) is None
        await driver.end(RunStatus.TERMINAL)
        assert await unresolved(store, include_stuck=True) == []

    async def test_they_are_unwound_newest_first(self, open_store: OpenStore) -> None:
        store, other = await open_store(), await open_store()
        driver = await failed(store, "1", "a", "b", "c")
        for name, rest in (("c", "ab"), ("b", "a"), ("a", "")):
            assert await unresolved(other) == [name]
            for below in rest:
                assert await driver.tell(ClaimObligation(undo(below), "c", LONG_MS)) is None
            claim = await driver.tell(ClaimObligation(undo(name), "c", LONG_MS))
            assert await unresolved(store) == []
            done = await driver.tell(resolved(name, claim))
            assert await driver.tell(resolved(name, claim)) == done
        run = await driver.run()
        assert (run.status, run.ending, run.top_obligation) == (RunStatus.FAILED, 0, 0)
        entries = [entry for entry in await read_all(store) if entry.kind == "obligation"]
        compensated = [e.payload["effect_key"] for e in entries if "/compensated/" in e.subject]
        assert compensated == ["c", "b", "a"]

    async def test_one_of_many_claims_the_top(self, open_store: OpenStore) -> None:
        stores = [await open_store() for _ in range(4)]
        driver = await failed(stores[0], "1", "a")
        claiming = [ClaimObligation(undo("a"), f"c{n}", LONG_MS) for n in range(len(stores))]
        outcomes = await race(stores, [changing(driver.run_id, claim) for claim in claiming])
        claims = [extended.replies[0] for extended in outcomes]
        (claimed,) = [claim for claim in claims if claim is not None]
        assert await stores[0].runs.list_obligations(driver.run_id) == [claimed]
        assert claimed.claim_token == claimed.attempts == 1

    async def test_a_claim_that_ran_out_is_due_again(self, open_store: OpenStore) -> None:
        store = await open_store()
        driver = await failed(store, "1", "a")
        first = await driver.tell(ClaimObligation(undo("a"), "c", SHORT_MS))
        await pass_beyond(store, first.claim_expires_at_ms)
        assert await unresolved(store) == ["a"]
        second = await driver.tell(ClaimObligation(undo("a"), "d", LONG_MS))
        assert (second.claim_token, second.attempts) == (2, 2)
        with pytest.raises(StaleLease):
            await driver.tell(resolved("a", first))
        await driver.tell(resolved("a", second))
        assert (await driver.run()).status == RunStatus.FAILED

    async def test_one_that_waits_is_not_due_before_its_time(self, open_store: OpenStore) -> None:
        store = await open_store()
        soon, late = await failed(store, "1", "soon"), await failed(store, "2", "late")
        for driver, name, wait_ms in ((late, "late", LONG_MS), (soon, "soon", SHORT_MS)):
            claim = await driver.tell(ClaimObligation(undo(name), "c", LONG_MS))
            moment = await clock_of(store) + wait_ms
            attempted = RecordObligationAttempt(undo(name), claim.claim_token, "no", moment, "")
            await driver.tell(attempted)
        await pass_beyond(store, moment)
        assert await unresolved(store) == ["soon"]

    async def test_a_stuck_one_waits_for_an_operator(self, open_store: OpenStore) -> None:
        store = await open_store()
        driver = await failed(store, "1", "below", "top")
        claim = await driver.tell(ClaimObligation(undo("top"), "c", LONG_MS))
        await driver.tell(RecordObligationAttempt(undo("top"), claim.claim_token, "no", 0, ""))
        assert (await driver.run()).status == RunStatus.STUCK
        assert await unresolved(store) == []
        assert await unresolved(store, include_stuck=True) == ["top"]
        await play(store, resuming(driver.run_id, Taker()))
        assert await unresolved(store) == ["top"]
        assert await unresolved(store, include_stuck=True) == ["top"]
        again = await driver.tell(ClaimObligation(undo("top"), "c", LONG_MS))
        await driver.tell(resolved("top", again))
        assert await unresolved(store, include_stuck=True) == ["below"]

    async def test_what_stands_alone_is_due_however_its_run_goes(
        self, open_store: OpenStore
    ) -> None:
        store = await open_store()
        driver = await drive(store)
        await driver.extend(
            RegisterCompensation(*undo("once too often"), alone=True),
            RegisterCompensation(*undo("part of the stack")),
            RegisterCompensation(*undo("twice too often"), alone=True),
        )
        assert await unresolved(store) == ["once too often", "twice too often"]
        assert await unresolved(store, 1) == ["once too often"]
        claim = await driver.tell(ClaimObligation(undo("once too often"), "c", LONG_MS))
        assert await unresolved(store) == ["twice too often"]
        await driver.tell(resolved("once too often", claim))
        claim = await driver.tell(ClaimObligation(undo("twice too often"), "c", SHORT_MS))
        await pass_beyond(store, claim.claim_expires_at_ms)
        assert await unresolved(store) == ["twice too often"]
        await driver.tell(
            RecordObligationAttempt(undo("twice too often"), claim.claim_token, "no", 0, "")
        )
        assert await unresolved(store) == []
        assert await unresolved(store, include_stuck=True) == ["twice too often"]
        assert (await driver.end()).status == RunStatus.TERMINAL

    async def test_the_tops_of_many_runs_are_due_side_by_side(self, open_store: OpenStore) -> None:
        store = await open_store()
        for number in range(5):
            await failed(store, str(number), f"{number} below", f"{number} top")
        assert await unresolved(store) == [f"{number} top" for number in range(5)]
        assert await unresolved(store, 2) == ["0 top", "1 top"]
