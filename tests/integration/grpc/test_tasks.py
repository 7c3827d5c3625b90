"""Tasks through the doors: claimed on lease, settled, dead-lettered, replayed and dropped."""

import asyncio
from typing import Any

import grpc
import pytest

import tape
from tape.bus import Bus
from tape.client import AsyncTapeClient
from tape.model.task import TaskOutcome
from tape.reactions.tasks import Tasks
from tape.wire.errors import from_rpc_error
from tape.wire.mapping_tasks import task_from_wire
from tape.wire.v1 import tape_pb2 as pb

LONG_MS = 30_000
TRACE: dict[str, Any] = {"trace_id": "ab" * 16, "span_id": "cd" * 8, "parent_span_id": "ef" * 8}


async def react(rpc: Any, **fields: Any) -> None:
    settings: dict[str, Any] = {
        "reaction_id": "r",
        "handler_kind": 2,
        "max_concurrency": 100,
    } | fields
    await rpc.RegisterReaction(pb.Reaction(subject_pattern="/tape/event/**", **settings))


async def record(rpc: Any, *payloads: str, **fields: Any) -> None:
    events = [pb.NewEvent(event_type="a", payload_json=text, **fields) for text in payloads]
    await rpc.RecordEvents(pb.RecordEventsRequest(events=events))


async def claim(rpc: Any, owner: str = "me", **fields: Any) -> Any:
    request: dict[str, Any] = {
        "reaction_id": "r",
        "shard": -1,
        "owner": owner,
        "wait_ms": LONG_MS,
    } | fields
    return (await rpc.ClaimTasks(pb.ClaimTasksRequest(**request))).tasks


async def claim_all(rpc: Any, count: int, **fields: Any) -> list[Any]:
    """A claim may come while only some are matched."""
    tasks: list[Any] = []
    while len(tasks) < count:
        tasks += await claim(rpc, **fields)
    return sorted(tasks, key=lambda task: int(task.source_global_seq))


async def code(call: Any) -> tuple[str, str]:
    with pytest.raises(grpc.aio.AioRpcError) as failed:
        await call
    return failed.value.code().name, from_rpc_error(failed.value).reason


async def listed(rpc: Any, **fields: Any) -> list[Any]:
    return list((await rpc.ListTasks(pb.ListTasksRequest(**fields))).tasks)


async def matched(rpc: Any, count: int, **fields: Any) -> None:
    """Wait until a listing holds so many."""
    heard = 0
    while len(await listed(rpc, **fields)) < count:
        request = pb.ListenForTasksRequest(heard=heard, wait_ms=200)
        heard = (await rpc.ListenForTasks(request)).heard


async def test_a_task_has_its_entry(rpc: Any) -> None:
    await react(rpc)
    await record(rpc, '{"n": 1}', entity_type="order", entity_id="7", idempotency_key="k", **TRACE)
    (task,) = await claim(rpc)
    assert (task.task_id, task.reaction_id, task.shard) == ("r/0/1", "r", 0)
    assert (task.status, task.attempts, task.lease_owner) == (pb.TASK_STATUS_CLAIMED, 1, "me")
    assert task.lease_expires_at_ms - task.claimed_at_ms == 60_000
    assert (task.subject, task.payload_json) == ("/tape/event/recorded/a/order/7", '{"n": 1}')
    assert (task.trace_id, task.parent_span_id) == (TRACE["trace_id"], TRACE["span_id"])
    assert task.source_parent_span_id == TRACE["parent_span_id"]
    (entry,) = (
        await anext(aiter(rpc.FollowEntries(pb.FollowEntriesRequest(subject_pattern="/**"))))
    ).entries
    found = task_from_wire(task).entry
    assert (found.event_id, found.ts_ms, found.occurred_at_ms) == (
        entry.event_id,
        entry.ts_ms,
        entry.occurred_at_ms,
    )
    assert (found.kind, found.idempotency_key, found.span_id) == ("event", "k", TRACE["span_id"])


async def test_completing(rpc: Any) -> None:
    await react(rpc)
    await record(rpc, "1")
    (task,) = await claim(rpc)
    mine = pb.CompleteTaskRequest(task_id=task.task_id, owner="me")
    other = pb.CompleteTaskRequest(task_id=task.task_id, owner="other")
    assert await code(rpc.CompleteTask(other)) == ("FAILED_PRECONDITION", "TASK_NOT_HELD")
    done = (await rpc.CompleteTask(mine)).task
    assert (done.status, done.attempts) == (pb.TASK_STATUS_DONE, 1)
    assert done.completed_at_ms >= done.created_at_ms > 0
    assert done.payload_json == "1"
    assert (await rpc.CompleteTask(mine)).task == done
    unknown = pb.CompleteTaskRequest(task_id="r/0/99", owner="me")
    assert await code(rpc.CompleteTask(unknown)) == ("NOT_FOUND", "NOT_FOUND")
    for bad in (pb.CompleteTaskRequest(task_id="r"), pb.CompleteTaskRequest()):
        assert (await code(rpc.CompleteTask(bad)))[0] == "INVALID_ARGUMENT"


async def test_where_a_handler_raised(rpc: Any) -> None:
    await react(rpc, retry_backoff_ms=0)
    await record(rpc, "1", "2")
    first, second = await claim_all(rpc, 2)
    nack = pb.NackTaskRequest(task_id=first.task_id, owner="me", error="no", traceback="at \0 one")
    assert (await rpc.NackTask(nack)).task.last_traceback == "at \\0 one"
    failed = pb.TaskOutcome(
        task_id=second.task_id, verdict=pb.VERDICT_REFUSED, error="never", traceback="x\n" * 90_000
    )
    await rpc.SettleTasks(pb.SettleTasksRequest(owner="me", outcomes=[failed]))
    kept = {task.task_id: task.last_traceback for task in await listed(rpc)}
    assert kept[first.task_id] == "at \\0 one"
    assert 7_000 < len(kept[second.task_id]) <= 8_000
    assert "lines left out" in kept[second.task_id]


async def test_failing(rpc: Any) -> None:
    await react(rpc, retry_backoff_ms=3_600_000)
    await record(rpc, "1", "2")
    first, second = await claim_all(rpc, 2)
    nack = pb.NackTaskRequest(task_id=first.task_id, owner="me", error="no luck")
    failed = (await rpc.NackTask(nack)).task
    assert (failed.status, failed.attempts) == (pb.TASK_STATUS_PENDING, 1)
    assert failed.last_error == "no luck"
    assert failed.next_attempt_at_ms > failed.created_at_ms + 3_000_000
    nack = pb.NackTaskRequest(task_id=second.task_id, owner="me", error="never", permanent=True)
    dead = (await rpc.NackTask(nack)).task
    assert (dead.status, dead.last_error) == (pb.TASK_STATUS_DLQ, "never")
    assert (await rpc.NackTask(nack)).task == dead
    nack.owner = "other"
    nack.task_id = first.task_id
    assert await code(rpc.NackTask(nack)) == ("FAILED_PRECONDITION", "TASK_NOT_HELD")
    nack.task_id = "r/0/99"
    assert await code(rpc.NackTask(nack)) == ("NOT_FOUND", "NOT_FOUND")


async def test_settling_many(rpc: Any) -> None:
    await react(rpc)
    await record(rpc, "1", "2", "3", "4")
    tasks = await claim_all(rpc, 4)
    verdicts = [pb.VERDICT_DONE, pb.VERDICT_FAILED, pb.VERDICT_REFUSED, pb.VERDICT_GIVEN_BACK]
    outcomes = [
        pb.TaskOutcome(task_id=task.task_id, verdict=verdict, error="e")
        for task, verdict in zip(tasks, verdicts, strict=True)
    ]
    outcomes.append(pb.TaskOutcome(task_id="r/0/99", verdict=pb.VERDICT_DONE))
    request = pb.SettleTasksRequest(owner="me", outcomes=outcomes)
    settled = (await rpc.SettleTasks(request)).tasks
    assert [each.status for each in settled] == [
        pb.TASK_STATUS_DONE,
        pb.TASK_STATUS_PENDING,
        pb.TASK_STATUS_DLQ,
        pb.TASK_STATUS_PENDING,
        pb.TASK_STATUS_UNSPECIFIED,
    ]
    assert (settled[4].reason, settled[0].reason) == ("NOT_FOUND", "")
    assert [task.attempts for task in await listed(rpc, status=pb.TASK_STATUS_PENDING)] == [1, 0]
    outcomes[1].verdict = 7  # type: ignore[assignment]
    refused = rpc.SettleTasks(pb.SettleTasksRequest(owner="me", outcomes=outcomes))
    assert await code(refused) == ("INVALID_ARGUMENT", "INVALID_ARGUMENT")
    assert not (await rpc.SettleTasks(pb.SettleTasksRequest(owner="me"))).tasks


async def test_extending(rpc: Any) -> None:
    await react(rpc)
    await record(rpc, "1", "2")
    first, second = await claim_all(rpc, 2, lease_ms=20_000)
    ids = [first.task_id, second.task_id, "r/0/99"]
    await rpc.CompleteTask(pb.CompleteTaskRequest(task_id=second.task_id, owner="me"))
    request = pb.ClaimTasksRequest(owner="me", lease_ms=LONG_MS, task_ids=ids)
    answer = await rpc.ClaimTasks(request)
    assert (list(answer.extended), list(answer.tasks)) == ([first.task_id], [])
    (now,) = await listed(rpc, task_id=first.task_id)
    assert now.lease_expires_at_ms >= first.lease_expires_at_ms + 10_000
    assert now.attempts == 1
    request.owner = "other"
    assert list((await rpc.ClaimTasks(request)).extended) == []


async def test_several_reactions_and_shards_at_once(rpc: Any) -> None:
    await react(rpc, num_shards=4)
    await react(rpc, reaction_id="q")
    await record(rpc, *map(str, range(20)))
    await record(rpc, "20", entity_id="b")
    await matched(rpc, 42)
    tasks = await listed(rpc, reaction_id="r")
    shards = {task.shard for task in tasks}
    one, other = min(shards), (min(shards) + 1) % 4
    mine = sum(task.shard == one for task in tasks)
    assert len(await claim(rpc, shard=one, max=1000)) == mine
    assert len(await claim(rpc, shard=one, wait_ms=0)) == 0
    wants = [
        pb.Want(reaction_id="r", shard=other, max=1000),
        pb.Want(reaction_id="q", shard=-1, max=3),
        pb.Want(reaction_id="gone", shard=-1),
    ]
    await react(rpc, reaction_id="gone")
    await rpc.DeregisterReaction(pb.DeregisterReactionRequest(reaction_id="gone"))
    request = pb.ClaimTasksRequest(owner="me", wants=wants, reaction_id="ignored")
    found = (await rpc.ClaimTasks(request)).tasks
    others = sum(task.shard == other for task in tasks)
    assert sorted(task.reaction_id for task in found) == ["q"] * 3 + ["r"] * others
    assert len(await claim(rpc, reaction_id="q", max=-1)) == 16


async def test_listing(rpc: Any) -> None:
    await react(rpc)
    await react(rpc, reaction_id="q")
    await record(rpc, *map(str, range(5)))
    first, second, *_ = await claim_all(rpc, 5)
    await rpc.CompleteTask(pb.CompleteTaskRequest(task_id=first.task_id, owner="me"))
    await rpc.NackTask(pb.NackTaskRequest(task_id=second.task_id, owner="me", permanent=True))
    await matched(rpc, 10)
    assert [t.task_id for t in await listed(rpc, status=pb.TASK_STATUS_DONE)] == ["r/0/1"]
    assert [t.task_id for t in await listed(rpc, status=pb.TASK_STATUS_DLQ)] == ["r/0/2"]
    claimed = await listed(rpc, reaction_id="r", status=pb.TASK_STATUS_CLAIMED)
    assert [t.source_global_seq for t in claimed] == [3, 4, 5]
    pages, after = [], ""
    while page := await listed(rpc, limit=3, after_task_id=after):
        pages.append([task.task_id for task in page])
        after = pages[-1][-1]
    assert [len(page) for page in pages] == [3, 3, 3, 1]
    assert len({task_id for page in pages for task_id in page}) == 10
    nonsense: list[dict[str, Any]] = [{"status": 9}, {"after_task_id": "x"}]
    for wrong in nonsense:
        assert (await code(listed(rpc, **wrong)))[0] == "INVALID_ARGUMENT"


async def test_dead_letters(rpc: Any) -> None:
    await react(rpc)
    await record(rpc, "1", "2", "3")
    for task in await claim_all(rpc, 3):
        request = pb.NackTaskRequest(task_id=task.task_id, owner="me", permanent=True, error="bad")
        await rpc.NackTask(request)
    (progress,) = (await rpc.ListReactions(pb.ListReactionsRequest())).progress
    assert (progress.matched, progress.pending, progress.dead_letters) == (3, 0, 3)
    replay = pb.ReplayDeadLettersRequest(reaction_id="r", task_ids=["r/0/1"])
    assert (await rpc.ReplayDeadLetters(replay)).count == 1
    (again,) = await claim(rpc)
    assert (again.task_id, again.attempts, again.last_error) == ("r/0/1", 1, "bad")
    drop = pb.DropDeadLettersRequest(reaction_id="r", task_ids=["r/0/2"])
    assert (await rpc.DropDeadLetters(drop)).count == 1
    assert (await rpc.DropDeadLetters(drop)).count == 0
    (dropped,) = await listed(rpc, task_id="r/0/2")
    assert dropped.status == pb.TASK_STATUS_FAILED
    all_of_it = pb.ReplayDeadLettersRequest(reaction_id="r")
    assert (await rpc.ReplayDeadLetters(all_of_it)).count == 1
    foreign = pb.ReplayDeadLettersRequest(reaction_id="q", task_ids=["r/0/2"])
    assert (await code(rpc.ReplayDeadLetters(foreign)))[0] == "INVALID_ARGUMENT"


async def test_a_claim_waits_for_a_task(rpc: Any) -> None:
    await react(rpc)
    waiting = asyncio.create_task(claim(rpc))
    assert await claim(rpc, wait_ms=700) == []
    assert not waiting.done()
    await record(rpc, "1")
    async with asyncio.timeout(10):
        assert len(await waiting) == 1


async def test_listening(rpc: Any) -> None:
    await react(rpc)
    heard = (await rpc.ListenForTasks(pb.ListenForTasksRequest())).heard
    request = pb.ListenForTasksRequest(reaction_ids=["r"], heard=heard, wait_ms=LONG_MS)
    await record(rpc, "1")
    async with asyncio.timeout(10):
        while (await rpc.ListenForTasks(request)).heard == heard:
            pass
        assert len(await claim(rpc)) == 1


async def test_a_caller_that_goes_away_takes_nothing_with_it(rpc: Any) -> None:
    await react(rpc)
    for number in range(5):
        request = pb.ClaimTasksRequest(reaction_id="r", shard=-1, owner="gone", wait_ms=LONG_MS)
        leaving = rpc.ClaimTasks(request)
        await asyncio.sleep(0.01 * number)  # at different points of its wait
        leaving.cancel()
        await record(rpc, str(number))
        async with asyncio.timeout(10):
            (task,) = await claim(rpc, owner="here")
        assert (task.attempts, task.payload_json) == (1, str(number))
        await rpc.CompleteTask(pb.CompleteTaskRequest(task_id=task.task_id, owner="here"))


async def test_a_server_that_closes_does_not_wait_for_those_who_wait(
    store_url: str, serving: Any, dial: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = await serving(store_url)
    rpc = await dial(server.address)
    await react(rpc)
    arrived, claim_of_bus = asyncio.Semaphore(0), Tasks.claim_tasks

    async def claiming(*arguments: Any) -> list[tape.Task]:
        arrived.release()
        return await claim_of_bus(*arguments)

    monkeypatch.setattr(Tasks, "claim_tasks", claiming)
    waiting = [asyncio.create_task(claim(rpc)) for _ in range(3)]
    for _ in waiting:
        await arrived.acquire()
    async with asyncio.timeout(10):
        await server.stop()
        assert [list(tasks) for tasks in await asyncio.gather(*waiting)] == [[]] * 3


async def test_what_does_not_fit_into_an_answer_is_given_back(rpc: Any) -> None:
    await react(rpc)
    large = '"' + "x" * 900_000 + '"'
    for _ in range(3):
        await record(rpc, large, large, large)
    await matched(rpc, 1, limit=1, after_task_id="r/0/8")
    first = await claim(rpc, max=100)
    assert len(first) == 4
    rest = [
        task.attempts
        for after in ("r/0/4", "r/0/8")
        for task in await listed(rpc, status=pb.TASK_STATUS_PENDING, after_task_id=after)
    ]
    assert rest == [0] * 5
    again = await claim(rpc, max=100)
    assert {task.attempts for task in again} == {1}


async def matching(client: AsyncTapeClient) -> None:
    """In process nobody else matches; a server does."""
    if isinstance(client._operations, Bus):
        client._operations.start_matching()


async def test_from_every_url(url: str) -> None:
    async with tape.connect_async(url) as client:
        await matching(client)
        await client.register_reaction("r", "/tape/event/**", max_concurrency=100)
        await client.register_reaction("q", "/tape/event/**")
        await client.record_many([tape.event("a", n, entity_id=f"{n}") for n in range(4)])
        tasks: list[tape.Task] = []
        while len(tasks) < 4:
            tasks += await client.claim_tasks("r", owner="me", wait_ms=LONG_MS)
        entries = [entry async for entry in client.follow("/tape/event/**", live=False)]
        assert [task.entry for task in tasks] == entries
        assert await client.extend_tasks([t.task_id for t in tasks[:2]], owner="me") == [
            t.task_id for t in tasks[:2]
        ]
        assert await client.extend_tasks([], owner="me") == []
        (other,) = await client.claim_tasks(["q", "r"], owner="you", wait_ms=LONG_MS)
        assert other.reaction_id == "q"

        done = await client.complete_task(tasks[0].task_id, owner="me")
        assert done.status == tape.TaskStatus.DONE
        assert await client.complete_task(done.task_id, owner="me") == done
        assert await client.get_task(done.task_id) == done
        with pytest.raises(tape.NotHeld, match="another owner than 'me'"):
            await client.complete_task(other.task_id, owner="me")
        with pytest.raises(tape.NotFound, match="r/0/99"):
            await client.nack_task("r/0/99", owner="me")
        retried = await client.nack_task(tasks[1].task_id, owner="me", error="later")
        assert (retried.status, retried.last_error) == (tape.TaskStatus.PENDING, "later")
        results = await client.settle_tasks(
            [
                TaskOutcome(tasks[2].task_id, "refused", "bad"),
                TaskOutcome(tasks[3].task_id, "given_back"),
                TaskOutcome(other.task_id),
            ],
            owner="me",
        )
        assert results[:2] == [tape.TaskStatus.DLQ, tape.TaskStatus.PENDING]
        assert isinstance(results[2], tape.NotHeld)

        (dead,) = await client.list_tasks("r", status=tape.TaskStatus.DLQ)
        assert (dead.task_id, dead.last_error) == (tasks[2].task_id, "bad")
        assert len(await client.list_tasks("r")) == 4
        assert len(await client.list_tasks(limit=3)) == 3
        assert await client.get_task("r/0/99") is None
        assert await client.replay_dead_letters("r", [dead.task_id]) == 1
        (again,) = await client.claim_tasks("r", owner="me", most=1, wait_ms=LONG_MS)
        await client.nack_task(again.task_id, owner="me", permanent=True)
        assert await client.drop_dead_letters("r") == 1
        assert await client.get_task("nonsense") is None


def test_without_an_event_loop(sqlite_url: str) -> None:
    with tape.connect(sqlite_url) as client:
        made = client.register_reaction("r", "/**", retry_max=1)
        assert client.list_reactions()[0].reaction == made
        assert client.claim_tasks("r", owner="me") == []
        assert client.deregister_reaction("r")


async def test_a_listing_larger_than_an_answer(sqlite_url: str, serving: Any) -> None:
    server = await serving(sqlite_url)
    async with tape.connect_async(server.url) as client:
        await client.register_reaction("r", "/tape/event/**")
        for _ in range(9):
            await client.record("a", "x" * 900_000)
        heard = 0
        while (await client.list_reactions())[0].pending < 9:
            heard = await client._operations.tasks.listen_for_tasks(["r"], heard, 200)
        assert len(await client.list_tasks("r")) == 9


async def test_unknown_ids_are_not_found(rpc: Any) -> None:
    missing = ("NOT_FOUND", "NOT_FOUND")
    unknown: dict[str, Any] = {"reaction_id": "nosuch"}
    claiming = pb.ClaimTasksRequest(shard=-1, owner="me", wait_ms=LONG_MS, **unknown)
    assert await code(rpc.ClaimTasks(claiming)) == missing
    assert await code(rpc.ListTasks(pb.ListTasksRequest(**unknown))) == missing
    listening = pb.ListenForTasksRequest(reaction_ids=["nosuch"], wait_ms=LONG_MS)
    assert await code(rpc.ListenForTasks(listening)) == missing
    for letters, call in (
        (pb.ReplayDeadLettersRequest, rpc.ReplayDeadLetters),
        (pb.DropDeadLettersRequest, rpc.DropDeadLetters),
    ):
        assert await code(call(letters(**unknown))) == missing
    await react(rpc)
    assert await claim(rpc, wait_ms=0) == []
    for task_id in ("nosuch", "r/0/7"):
        naming: dict[str, Any] = {"task_id": task_id, "owner": "me"}
        assert await code(rpc.CompleteTask(pb.CompleteTaskRequest(**naming))) == missing
        assert await code(rpc.NackTask(pb.NackTaskRequest(**naming))) == missing
        assert await code(rpc.ListTasks(pb.ListTasksRequest(task_id=task_id))) == missing
        named = pb.ReplayDeadLettersRequest(reaction_id="r", task_ids=[task_id])
        assert await code(rpc.ReplayDeadLetters(named)) == missing
        dropped = pb.DropDeadLettersRequest(reaction_id="r", task_ids=[task_id])
        assert await code(rpc.DropDeadLetters(dropped)) == missing


async def test_one_unknown_task_leaves_the_others_as_they_are(rpc: Any) -> None:
    await react(rpc)
    await record(rpc, "1")
    (task,) = await claim(rpc)
    nack = pb.NackTaskRequest(task_id=task.task_id, owner="me", error="no", permanent=True)
    await rpc.NackTask(nack)
    both = pb.ReplayDeadLettersRequest(reaction_id="r", task_ids=[task.task_id, "r/0/999"])
    assert await code(rpc.ReplayDeadLetters(both)) == ("NOT_FOUND", "NOT_FOUND")
    assert [one.status for one in await listed(rpc, reaction_id="r")] == [5]
    only = pb.ReplayDeadLettersRequest(reaction_id="r", task_ids=[task.task_id])
    assert (await rpc.ReplayDeadLetters(only)).count == 1
    assert (await rpc.ReplayDeadLetters(only)).count == 0  # a repeat finds it queued


async def test_an_unknown_run_has_nothing_to_look_at(rpc: Any) -> None:
    for call, request in (
        (rpc.AdmitBudget, pb.AdmitBudgetRequest(run_id="nosuch")),
        (rpc.ListObligations, pb.ListObligationsRequest(run_id="nosuch")),
        (rpc.ListTimers, pb.ListTimersRequest(run_id="nosuch")),
        (rpc.ReadRunEntries, pb.ReadRunEntriesRequest(run_id="nosuch")),
    ):
        assert await code(call(request)) == ("NOT_FOUND", "NOT_FOUND")


async def test_a_token_without_its_run_is_refused(rpc: Any) -> None:
    wrong = ("INVALID_ARGUMENT", "INVALID_ARGUMENT")
    value: dict[str, Any] = {"namespace": "n", "key": "k", "fencing_token": 7}
    assert await code(rpc.WriteValue(pb.WriteValueRequest(value_json="1", **value))) == wrong
    assert await code(rpc.DeleteValue(pb.DeleteValueRequest(**value))) == wrong
    event = pb.NewEvent(event_type="a", fencing_token=7)
    assert await code(rpc.RecordEvents(pb.RecordEventsRequest(events=[event]))) == wrong
    session: dict[str, Any] = {"app_name": "a", "user_id": "u", "session_id": "s"}
    await rpc.CreateSession(pb.CreateSessionRequest(**session))
    assert await code(rpc.AppendEvent(pb.AppendEventRequest(fencing_token=7, **session))) == wrong
    assert not (await rpc.GetValue(pb.GetValueRequest(namespace="n", key="k"))).found
