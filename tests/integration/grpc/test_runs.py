"""A run's life through the door: begun, leased, let go of, taken over, cancelled, looked at."""

from typing import Any

import pytest

from tape.model.run import RunName
from tape.wire.v1 import tape_pb2 as pb
from tests.integration.grpc.running import begun, entries, fault, refused, subjects, taken_over

TRACE: dict[str, Any] = {"trace_id": "ab" * 16, "span_id": "cd" * 8, "parent_span_id": "ef" * 8}


async def test_beginning(rpc: Any) -> None:
    made = await begun(rpc, input_json='{"n": 1}', pool="p", reactor_name="agent", **TRACE)
    assert (made.resumed, made.next_seq, made.fencing_token) == (False, 2, 1)
    assert made.run_id == RunName("app", "u", "s", "i").run_id
    assert (made.status, made.run.status) == (pb.RUN_STATUS_RUNNING, pb.RUN_STATUS_RUNNING)
    run = made.run
    assert (run.pool, run.reactor_name, run.lease_owner) == ("p", "agent", "me")
    assert (run.fencing_token, run.seq_cursor, run.ended_at_ms) == (1, 1, 0)
    assert run.lease_expires_at_ms - run.started_at_ms == 30_000
    (entry,) = await entries(rpc, made.run_id)
    assert (entry.seq, entry.kind, entry.run_id) == (1, "run", made.run_id)
    assert (entry.trace_id, entry.parent_span_id) == (TRACE["trace_id"], TRACE["parent_span_id"])
    assert '"input":{"n": 1}' in entry.payload_json


async def test_beginning_again(rpc: Any) -> None:
    first = await begun(rpc)
    held = await begun(rpc, "other")
    assert (held.resumed, held.fencing_token) == (True, 0)
    assert held.run == first.run
    again = await begun(rpc)  # its own: somebody who did not hear the answer
    assert (again.resumed, again.fencing_token, again.next_seq) == (True, 2, 3)
    queued = await begun(rpc, "", invocation_id="j")
    assert (queued.status, queued.fencing_token) == (pb.RUN_STATUS_RUNNABLE, 0)
    assert queued.run.pool == "shared"
    same = await begun(rpc, "", invocation_id="j")
    assert (same.resumed, same.run) == (True, queued.run)


async def test_resuming_for_a_pool(rpc: Any) -> None:
    made = await begun(rpc, "", pool="blue")
    resume = pb.ResumeRunRequest(run_id=made.run_id, lease_owner="w", pool="green")
    assert await fault(rpc.ResumeRun(resume)) == "pool"
    resume.pool = "blue"
    assert (await rpc.ResumeRun(resume)).run.pool == "blue"


async def test_beginning_with_writes(rpc: Any) -> None:
    writes = [
        pb.RunWrite(record_decision=pb.RecordDecisionRequest(model="m")),
        pb.RunWrite(end_run=pb.EndRunRequest(status=pb.RUN_STATUS_TERMINAL, detail_json="7")),
    ]
    made = await begun(rpc, writes=writes)
    assert (made.resumed, made.fencing_token, made.first_seq) == (False, 1, 2)
    assert (made.run.status, made.run.outcome_json) == (pb.RUN_STATUS_TERMINAL, "7")
    decided, ended = made.results
    assert (decided.record_decision.seq, ended.WhichOneof("result")) == (2, "end_run")
    assert await subjects(rpc, made.run_id) == ["run/running", "decision/recorded", "run/terminal"]
    again = await begun(rpc, writes=writes)
    assert (again.resumed, list(again.results), again.run) == (True, [], made.run)
    assert await fault(begun(rpc, "", writes=writes, invocation_id="j")) == "lease_owner"
    writes[0].record_decision.request_json = "{"
    assert await fault(begun(rpc, writes=writes, invocation_id="k")) == "request_json"
    assert (await refused(rpc.GetRun(pb.GetRunRequest(run_id="k"))))[0] == "NOT_FOUND"


async def test_a_child_is_begun_by_its_parents_driver(rpc: Any) -> None:
    parent = await begun(rpc)
    child: dict[str, Any] = {"invocation_id": "c", "parent_run_id": parent.run_id}
    made = await begun(rpc, "", parent_fencing_token=parent.fencing_token, **child)
    assert made.run.parent_run_id == parent.run_id
    listed = await rpc.ListRuns(pb.ListRunsRequest(parent_run_id=parent.run_id))
    assert [run.run_id for run in listed.runs] == [made.run_id]
    taken = await rpc.ResumeRun(pb.ResumeRunRequest(run_id=made.run_id, lease_owner="w"))
    end = pb.EndRunRequest(
        run_id=made.run_id,
        fencing_token=taken.fencing_token,
        status=pb.RUN_STATUS_TERMINAL,
        detail_json="[1]",
    )
    await rpc.EndRun(end)
    gate = pb.AwaitSignalRequest(
        run_id=parent.run_id, fencing_token=1, gate_name=f"run:{made.run_id}"
    )
    told = await rpc.AwaitSignal(gate)
    assert (told.delivered, told.resolution_json) == (True, '{"status":"terminal","outcome":[1]}')


async def test_taking_over(rpc: Any) -> None:
    first = await begun(rpc, lease_ttl_ms=1)
    taken = await taken_over(rpc, first.run_id)
    assert (taken.fencing_token, taken.run.lease_owner) == (2, "other")
    assert (taken.run.reactor_name, taken.run.status) == ("recovery", pb.RUN_STATUS_RUNNING)
    resume = pb.ResumeRunRequest(run_id=first.run_id, lease_owner="me", expected_token=2)
    assert await refused(rpc.ResumeRun(resume)) == ("FAILED_PRECONDITION", "LEASE_HELD")
    resume.lease_owner = "other"
    resume.expected_token = 1
    assert await refused(rpc.ResumeRun(resume)) == ("FAILED_PRECONDITION", "LEASE_HELD")
    resume.expected_token = 2
    assert (await rpc.ResumeRun(resume)).fencing_token == 3
    assert await refused(rpc.ResumeRun(pb.ResumeRunRequest(run_id="none", lease_owner="w"))) == (
        "NOT_FOUND",
        "NOT_FOUND",
    )
    resume.lease_ttl_ms = 10**12
    assert await fault(rpc.ResumeRun(resume)) == "lease_ttl_ms"


async def test_heartbeats(rpc: Any) -> None:
    first = await begun(rpc, lease_ttl_ms=1_000)
    beat = pb.HeartbeatRunRequest(run_id=first.run_id, fencing_token=1, lease_ttl_ms=60_000)
    run = (await rpc.HeartbeatRun(beat)).run
    assert run.lease_expires_at_ms >= first.run.lease_expires_at_ms + 50_000
    assert run.seq_cursor == 1
    beat.lease_ttl_ms = 0
    shorter = (await rpc.HeartbeatRun(beat)).run
    assert shorter.lease_expires_at_ms < run.lease_expires_at_ms
    beat.run_id = "none"
    assert await refused(rpc.HeartbeatRun(beat)) == ("NOT_FOUND", "NOT_FOUND")


async def test_letting_go(rpc: Any) -> None:
    first = await begun(rpc)
    release = pb.ReleaseRunRequest(
        run_id=first.run_id, fencing_token=1, waiting_on="gate g", seen_seq=1
    )
    run = (await rpc.ReleaseRun(release)).run
    assert (run.status, run.waiting_on_gate) == (pb.RUN_STATUS_WAITING, "gate g")
    assert (run.lease_owner, run.fencing_token) == ("", 1)
    assert (await rpc.ReleaseRun(release)).run == run
    back = await rpc.ResumeRun(pb.ResumeRunRequest(run_id=first.run_id))
    assert (back.run.status, back.fencing_token) == (pb.RUN_STATUS_RUNNABLE, 0)
    taken = await rpc.ResumeRun(pb.ResumeRunRequest(run_id=first.run_id, lease_owner="w"))
    release.fencing_token = taken.fencing_token
    run = (await rpc.ReleaseRun(release)).run  # something came since it was seen at 1
    assert (run.status, run.waiting_on_gate) == (pb.RUN_STATUS_RUNNABLE, "")


async def test_ending(rpc: Any) -> None:
    first = await begun(rpc)
    end = pb.EndRunRequest(
        run_id=first.run_id, fencing_token=1, status=pb.RUN_STATUS_TERMINAL, detail_json='{"a": 1}'
    )
    run = (await rpc.EndRun(end)).run
    assert (run.status, run.outcome_json) == (pb.RUN_STATUS_TERMINAL, '{"a": 1}')
    assert run.ended_at_ms >= run.started_at_ms
    assert (await rpc.EndRun(end)).run == run
    assert await rpc.GetRun(pb.GetRunRequest(run_id=first.run_id)) == run
    gone = pb.ResumeRunRequest(run_id=first.run_id, lease_owner="w")
    assert await refused(rpc.ResumeRun(gone)) == ("FAILED_PRECONDITION", "RUN_ENDED")
    end.status = pb.RUN_STATUS_RUNNING
    assert await fault(rpc.EndRun(end)) == "status"
    timer = pb.SetTimerRequest(run_id=first.run_id, fencing_token=1, timer_id="t")
    assert await refused(rpc.SetTimer(timer)) == ("FAILED_PRECONDITION", "RUN_ENDED")


async def test_cancelling(rpc: Any) -> None:
    driven = await begun(rpc)
    cancel = pb.CancelRunRequest(run_id=driven.run_id, reason="no \0 money")
    run = (await rpc.CancelRun(cancel)).run
    assert (run.status, run.cancel_reason) == (pb.RUN_STATUS_RUNNING, "no \\0 money")
    assert (await rpc.CancelRun(cancel)).run.cancel_reason == run.cancel_reason
    assert (await subjects(rpc, driven.run_id)).count("run/cancel_requested") == 1
    effect = pb.BeginEffectRequest(run_id=driven.run_id, fencing_token=1, tool_name="t")
    assert await refused(rpc.BeginEffect(effect)) == ("FAILED_PRECONDITION", "RUN_CANCELLED")
    queued = await begun(rpc, "", invocation_id="q")
    run = (await rpc.CancelRun(pb.CancelRunRequest(run_id=queued.run_id))).run
    assert (run.status, run.cancel_reason) == (pb.RUN_STATUS_CANCELLED, "cancelled")
    assert await refused(rpc.CancelRun(pb.CancelRunRequest(run_id="none"))) == (
        "NOT_FOUND",
        "NOT_FOUND",
    )


async def test_listing(rpc: Any) -> None:
    ids = [(await begun(rpc, "", invocation_id=f"{n}")).run_id for n in range(5)]
    ids.append((await begun(rpc, "", app_name="b", pool="p", user_id="v")).run_id)
    driven = await begun(rpc, invocation_id="0")

    async def listed(**query: Any) -> list[str]:
        answer = await rpc.ListRuns(pb.ListRunsRequest(**query))
        assert not answer.more
        return [run.run_id for run in answer.runs]

    assert sorted(await listed()) == sorted(ids)
    newest_first = await listed()
    pages = [await listed(limit=4), await listed(limit=4, after=newest_first[3])]
    assert [run_id for page in pages for run_id in page] == newest_first
    assert (
        await listed(app_name="b")
        == await listed(pool="p")
        == await listed(user_id="v", session_id="s")
    )
    assert await listed(status=pb.RUN_STATUS_RUNNING) == [driven.run_id]
    assert await listed(user_id="v") == await listed(app_name="none") == []
    assert await fault(rpc.ListRuns(pb.ListRunsRequest(pool="\0"))) == "pool"
    wrong = pb.ListRunsRequest()
    wrong.status = 9  # type: ignore[assignment]
    assert await fault(rpc.ListRuns(wrong)) == "status"


async def test_what_somebody_should_drive(rpc: Any) -> None:
    queued = await begun(rpc, "", invocation_id="q", pool="p")
    await begun(rpc, invocation_id="driven")
    lost = await begun(rpc, invocation_id="lost", lease_ttl_ms=1)

    async def listed(**query: Any) -> list[str]:
        request = pb.ListRunsToRecoverRequest(**query)
        return [run.run_id for run in (await rpc.ListRunsToRecover(request)).runs]

    while len(found := await listed(now_ms=1)) < 2:  # the client's clock does not matter
        pass
    assert found == [queued.run_id, lost.run_id]
    assert await listed(limit=1) == [queued.run_id]
    assert await listed(pool="p") == [queued.run_id]
    assert await listed(app_names=["x", "app"]) == found
    assert await listed(app_names=["x"]) == []
    bad = pb.ListRunsToRecoverRequest(app_names=["a", "\0"])
    assert await fault(rpc.ListRunsToRecover(bad)) == "app_names[1]"


async def test_reading_a_journal(rpc: Any) -> None:
    run_id = (await begun(rpc)).run_id
    large = '"' + "x" * 1_000_000 + '"'
    for index in range(6):
        await rpc.RecordDecision(
            pb.RecordDecisionRequest(
                run_id=run_id, fencing_token=1, decision_index=index, request_json=large
            )
        )
    read = pb.ReadRunEntriesRequest(run_id=run_id)
    first = await rpc.ReadRunEntries(read)
    assert ([entry.seq for entry in first.entries], first.cursor) == ([1, 2, 3, 4, 5], 5)
    assert first.more
    read.after_seq = first.cursor
    rest = await rpc.ReadRunEntries(read)
    assert ([entry.seq for entry in rest.entries], rest.more) == ([6, 7], False)
    read.after_seq = rest.cursor
    end = await rpc.ReadRunEntries(read)
    assert (list(end.entries), end.cursor, end.more) == ([], 7, False)
    some = await rpc.ReadRunEntries(pb.ReadRunEntriesRequest(run_id=run_id, after_seq=1, limit=2))
    assert ([entry.seq for entry in some.entries], some.more) == ([2, 3], False)
    read.after_seq = -1
    assert await fault(rpc.ReadRunEntries(read)) == "after_seq"


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"app_name": ""}, "app_name"),
        ({"session_id": "\0"}, "session_id"),
        ({"input_json": "{"}, "input_json"),
        ({"lease_ttl_ms": 10**12}, "lease_ttl_ms"),
        ({"trace_id": "x"}, "trace_id"),
        ({"writes": [pb.RunWrite()]}, "writes[0]"),
    ],
)
async def test_a_bad_beginning(rpc: Any, fields: dict[str, Any], field: str) -> None:
    assert await fault(begun(rpc, **fields)) == field
    assert not (await rpc.ListRuns(pb.ListRunsRequest())).runs


async def test_runs_that_do_not_fit_into_an_answer(rpc: Any) -> None:
    large = '"' + "x" * 1_000_000 + '"'
    for n in range(5):
        end = pb.EndRunRequest(status=pb.RUN_STATUS_TERMINAL, detail_json=large)
        await begun(rpc, invocation_id=f"{n}", writes=[pb.RunWrite(end_run=end)])
    first = await rpc.ListRuns(pb.ListRunsRequest())
    assert (len(first.runs), first.more) == (4, True)
    rest = await rpc.ListRuns(pb.ListRunsRequest(after=first.runs[-1].run_id))
    assert (len(rest.runs), rest.more) == (1, False)
