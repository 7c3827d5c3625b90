"""Runs: their own numbering, read in their own order, fenced by their token; and listed."""

from itertools import product

import pytest

from tape.errors import NotFound, StaleLease
from tape.model.decision import RecordDecision
from tape.model.event import NewEvent
from tape.model.obligation import RegisterCompensation
from tape.model.run import Run, RunStatus
from tape.model.run_end import CancelRun
from tape.ports.runs import RecoverQuery, RunQuery
from tape.ports.store import Store
from tests.conformance.in_memory import runs_listed
from tests.conformance.playing import (
    MANY,
    OpenStore,
    a_run,
    load_run,
    read_all,
    record,
    save_run,
)
from tests.conformance.running import SHORT_MS, Driver, begin, drive, pass_beyond, take_over

EVERY = RunQuery(limit=MANY)


async def a_small_world(store: Store) -> list[Run]:
    """Runs of two apps in two pools and two sessions, at least one of each status."""
    parent = await drive(store, "parent")
    for number, (app, pool, session) in enumerate(
        product(["app", "other"], ["shared", "big"], [("u", "s"), ("u", "t")])
    ):
        driver = await drive(
            store,
            str(number),
            app_name=app,
            pool=pool,
            session=session,
            parent_run_id=parent.run_id if number % 2 else "",
            parent_fencing_token=parent.token,
        )
        await put_in(driver, list(RunStatus)[number], parent.run_id if number % 2 else "")
    await begin(store, "waits for a worker", owner="")
    ids = {entry.run_id for entry in await read_all(store)}
    return [run for run in [await store.runs.get_run(run_id) for run_id in ids] if run]


async def put_in(driver: Driver, status: RunStatus, parent_run_id: str) -> None:
    match status:
        case RunStatus.RUNNABLE:
            await driver.release()
        case RunStatus.WAITING:
            await driver.release(waiting_on="a gate")
        case RunStatus.COMPENSATING:
            await driver.write(RegisterCompensation("effect", "undo"))
            await driver.end(RunStatus.FAILED, parent_run_id)
        case RunStatus.CANCELLED:
            await driver.release()
            await driver.tell(CancelRun("enough", parent_run_id))
        case RunStatus.TERMINAL | RunStatus.FAILED | RunStatus.STUCK:
            await driver.end(status, parent_run_id)
        case RunStatus.RUNNING:
            pass
    assert (await driver.run()).status == status


class RunsContract:
    async def test_a_row_comes_back_as_it_was_written(self, open_store: OpenStore) -> None:
        store = await open_store()
        run = a_run(
            "r/ä", app_name="app", user_id="u", session_id="s", invocation_id="i", pool="p",
            status=7, seq_cursor=5, lease_owner="w", reactor_name="x", lease_expires_at_ms=6,
            fencing_token=7, started_at_ms=8, ended_at_ms=9, app_version="v", parent_run_id="q",
            waiting_on="g", cancel_reason="c", top_obligation=10, ending=5, outcome_json="[1]",
        )  # fmt: skip
        assert all(run)
        await save_run(store, run)
        assert await load_run(await open_store(), "r/ä") == run
        changed = run._replace(
            status=4, seq_cursor=11, lease_owner="", reactor_name="", lease_expires_at_ms=0,
            fencing_token=12, ended_at_ms=10, app_version="w", waiting_on="", cancel_reason="",
            top_obligation=0, ending=0, outcome_json='"ä"',
        )  # fmt: skip
        await save_run(store, changed)
        assert await load_run(store, "r/ä") == changed
        assert await store.runs.get_run("r/ä") == changed
        assert await load_run(store, "R/ä") is None
        assert await store.runs.get_run("R/ä") is None

    async def test_entries_are_numbered_per_run(self, open_store: OpenStore) -> None:
        store = await open_store()
        await save_run(store, a_run("r1"))
        await save_run(store, a_run("r2", seq_cursor=10))
        one, two = (NewEvent("e", run_id=run, fencing_token=1) for run in ("r1", "r2"))
        recorded = await record(store, one, two, NewEvent("e"), one)
        assert [r.seq for r in recorded] == [1, 11, 0, 2]
        (more,) = await record(store, one)
        assert more.seq == 3
        run = await load_run(store, "r1")
        assert run is not None
        assert run.seq_cursor == 3

    async def test_a_run_is_read_in_its_own_order(self, open_store: OpenStore) -> None:
        store = await open_store()
        await save_run(store, a_run("r1"))
        await save_run(store, a_run("r2"))
        one, two = (NewEvent("e", run_id=run, fencing_token=1) for run in ("r1", "r2"))
        await record(store, one, two, one, NewEvent("e"), one, two)

        async def seqs(run_id: str, after: int, limit: int) -> list[int]:
            return [entry.seq for entry in await store.read_run(run_id, after, limit)]

        assert await seqs("r1", 0, MANY) == [1, 2, 3]
        assert await seqs("r1", 1, MANY) == [2, 3]
        assert await seqs("r1", 0, 2) == [1, 2]
        assert await seqs("r1", 3, MANY) == []
        assert await seqs("r2", 0, MANY) == [1, 2]
        assert await seqs("r3", 0, MANY) == []
        assert await seqs("", 0, MANY) == []
        assert [e.run_id for e in await store.read_run("r2", 0, 1)] == ["r2"]

    @pytest.mark.parametrize(("budget", "count"), [(1, 1), (10, 1), (11, 2), (20, 2), (41, 4)])
    async def test_a_page_of_a_run_ends_with_the_entry_that_reaches_the_budget(
        self, open_store: OpenStore, budget: int, count: int
    ) -> None:
        store = await open_store()
        await save_run(store, a_run("r"))
        event = NewEvent("e", '"aa€€"', run_id="r", fencing_token=1)
        assert len(event.payload_json.encode()) == 10
        await record(store, event, event, event, event)
        found = await store.read_run("r", 0, MANY, budget)
        assert [entry.seq for entry in found] == list(range(1, count + 1))
        assert [entry.seq for entry in await store.read_run("r", 1, 1, budget)] == [2]

    @pytest.mark.parametrize("token", [0, 1, 3])
    async def test_a_stale_token_writes_nothing(self, open_store: OpenStore, token: int) -> None:
        store = await open_store()
        await save_run(store, a_run("r", fencing_token=2))
        with pytest.raises(StaleLease):
            await record(store, NewEvent("a"), NewEvent("b", run_id="r", fencing_token=token))
        assert await read_all(store) == []

    async def test_an_unknown_run_is_not_found(self, open_store: OpenStore) -> None:
        store = await open_store()
        with pytest.raises(NotFound):
            await record(store, NewEvent("a", run_id="r", fencing_token=1))
        assert await read_all(store) == []

    async def test_a_list_lets_through_what_its_filters_say(self, open_store: OpenStore) -> None:
        store = await open_store()
        runs = await a_small_world(store)
        statuses = (0, *RunStatus)
        sessions = (None, ("u", "s"), ("u", "t"), ("s", "u"))
        parents = ("", *{run.parent_run_id for run in runs} - {""}, "nobody")
        for status, app, pool, parent, session in product(
            statuses, ("", "app", "App"), ("", "big", "none"), parents, sessions
        ):
            query = RunQuery(int(status), app, pool, MANY, "", parent, session)
            assert await store.runs.list_runs(query) == runs_listed(runs, query), query

    async def test_a_list_goes_on_after_the_last_run_of_a_page(self, open_store: OpenStore) -> None:
        store = await open_store()
        runs = await a_small_world(store)
        for query in (EVERY, EVERY._replace(app_name="app"), EVERY._replace(pool="shared")):
            every = runs_listed(runs, query)
            for size in (1, 2, len(every)):
                found, last = list[Run](), ""
                while page := await store.runs.list_runs(query._replace(limit=size, after=last)):
                    assert len(page) <= size
                    found += page
                    last = page[-1].run_id
                assert found == every

    async def test_runs_that_began_at_once_are_listed_once(self, open_store: OpenStore) -> None:
        store = await open_store()
        for name in "bdac":
            await save_run(store, a_run(name, started_at_ms=5))
        first = await store.runs.list_runs(EVERY._replace(limit=2))
        assert [run.run_id for run in first] == ["d", "c"]
        second = await store.runs.list_runs(EVERY._replace(after="c"))
        assert [run.run_id for run in second] == ["b", "a"]

    async def test_a_list_cannot_go_on_after_an_unknown_run(self, open_store: OpenStore) -> None:
        store = await open_store()
        with pytest.raises(NotFound, match="no run has the id 'gone'"):
            await store.runs.list_runs(EVERY._replace(after="gone"))

    async def test_what_waits_is_told_by_app_and_pool(self, open_store: OpenStore) -> None:
        store = await open_store()
        assert await store.runs.list_waiting_runs(0) == []
        lost = await drive(store, "lost", ttl_ms=SHORT_MS)
        await drive(store, "held")
        other = await drive(store, "other", app_name="other", pool="big")
        await other.release()
        gate = await drive(store, "gate", app_name="gate")
        await gate.release(waiting_on="a gate")
        await (await drive(store, "done", app_name="done")).end()
        first = (await begin(store, "first", owner="", pool="big")).run
        for name in ("second", "third"):
            await begin(store, name, owner="", pool="big")
        expires = (await lost.run()).lease_expires_at_ms
        await pass_beyond(store, expires)
        found = {(row.pool, row.app_name): row for row in await store.runs.list_waiting_runs(0)}
        assert found[("shared", "app")] == ("shared", "app", 1, 1, lost.run_id, expires)
        newest = (await store.read_run(other.run_id, 0, MANY))[-1]
        assert found[("big", "other")] == ("big", "other", 1, 0, other.run_id, newest.ts_ms)
        assert found.pop(("big", "app"))[2:4] == (3, 0)
        assert set(found) == {("shared", "app"), ("big", "other")}
        rows = await store.runs.list_waiting_runs(0)
        assert [row.since_ms for row in rows] == sorted(row.since_ms for row in rows)
        oldest = next(row for row in rows if (row.pool, row.app_name) == ("big", "app"))
        assert oldest.since_ms == first.started_at_ms
        assert await store.runs.list_waiting_runs(10**12) == []

    async def test_runs_to_recover_are_those_nobody_drives(self, open_store: OpenStore) -> None:
        store = await open_store()
        lost = await drive(store, "lost", ttl_ms=SHORT_MS)
        held = await drive(store, "held")
        ready = await drive(store, "ready", app_name="other", pool="big")
        await ready.release()
        waiting = await drive(store, "waiting")
        await waiting.release(waiting_on="a gate")
        await (await drive(store, "done")).end()
        new = (await begin(store, "new", owner="", pool="big")).run
        await pass_beyond(store, (await lost.run()).lease_expires_at_ms)

        async def ids(pool: str = "", *apps: str, limit: int = MANY) -> list[str]:
            found = await store.runs.list_runs_to_recover(RecoverQuery(pool, apps, limit))
            return [run.run_id for run in found]

        assert await ids() == [lost.run_id, ready.run_id, new.run_id]
        assert await ids(limit=2) == [lost.run_id, ready.run_id]
        assert await ids("shared") == [lost.run_id]
        assert await ids("big") == [ready.run_id, new.run_id]
        assert await ids("", "app", "none", "app") == [lost.run_id, new.run_id]
        assert await ids("big", "app") == [new.run_id]
        assert await ids("big", "app", "other") == [ready.run_id, new.run_id]
        assert await ids("big", "app", "other", limit=1) == [ready.run_id]
        assert await ids("none") == await ids("", "none") == await ids("none", "app") == []
        await take_over(store, lost.run_id, "b")
        assert await ids("shared") == []
        assert (await held.run()).lease_owner == "a"

    async def test_a_decision_is_the_entry_that_records_it(self, open_store: OpenStore) -> None:
        store = await open_store()
        driver = await drive(store)
        other = await drive(store, "2")
        await driver.extend(
            RecordDecision(0, "m", response_json="[0]"), RecordDecision(7, "m", response_json="[7]")
        )
        await other.write(RecordDecision(0, "m", response_json='"other"'))
        again = await driver.write(RecordDecision(7, "m", response_json="[8]"))
        entry = await store.runs.get_decision(driver.run_id, 7)
        assert entry is not None
        assert entry.payload["response"] == [7]
        assert (entry.seq, entry.ts_ms) == (again.seq, again.ts_ms)
        assert [entry] == await store.read_run(driver.run_id, entry.seq - 1, 1)
        assert await store.runs.get_decision(driver.run_id, 1) is None
        assert await store.runs.get_decision("nobody", 0) is None
        assert len(await store.read_run(driver.run_id, 0, MANY)) == 3
