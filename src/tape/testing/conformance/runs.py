"""Runs: their own numbering, read in their own order, fenced by their token."""

import pytest

from tape.errors import NotFound, StaleLease
from tape.model.event import NewEvent
from tape.testing.conformance.playing import (
    MANY,
    OpenStore,
    a_run,
    load_run,
    read_all,
    record,
    save_run,
)


class RunsContract:
    async def test_a_row_comes_back_as_it_was_written(self, open_store: OpenStore) -> None:
        store = await open_store()
        run = a_run(
            "r/ä", app_name="app", user_id="u", session_id="s", invocation_id="i", pool="p",
            status=7, seq_cursor=5, lease_owner="w", reactor_name="x", lease_expires_at_ms=6,
            fencing_token=7, started_at_ms=8, ended_at_ms=9,
        )  # fmt: skip
        await save_run(store, run)
        assert await load_run(await open_store(), "r/ä") == run
        changed = run._replace(status=4, lease_owner="", ended_at_ms=10)
        await save_run(store, changed)
        assert await load_run(store, "r/ä") == changed
        assert await load_run(store, "R/ä") is None

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
