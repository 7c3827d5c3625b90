"""The RPCs as any gRPC client sees them, on each kind of store."""

from typing import Any

import grpc
import pytest

from tape import __version__
from tape.settings import Settings
from tape.stores.by_url import open_store
from tape.wire.v1 import tape_pb2 as pb
from tests.conformance.playing import a_run, save_run

TRACE: dict[str, Any] = {"trace_id": "ab" * 16, "span_id": "cd" * 8, "parent_span_id": "ef" * 8}
RUN: dict[str, Any] = {"run_id": "r", "fencing_token": 7}


async def record(rpc: Any, *events: dict[str, Any]) -> Any:
    request = pb.RecordEventsRequest(events=[pb.NewEvent(**event) for event in events])
    return (await rpc.RecordEvents(request)).results


async def begin_run(store_url: str) -> None:
    store = await open_store(store_url, Settings())
    await save_run(store, a_run("r", fencing_token=7))
    await store.close()


async def take(call: Any, count: int) -> list[Any]:
    messages = [await call.read() for _ in range(count)]
    call.cancel()
    return messages


async def test_an_event_alone_needs_only_its_type(rpc: Any) -> None:
    (result,) = await record(rpc, {"event_type": "a"})
    assert (result.global_seq, result.seq, result.duplicate) == (1, 0, False)
    (entry,) = await take(
        rpc.SubscribeBySubject(pb.SubscribeBySubjectRequest(subject_pattern="/**")), 1
    )
    assert (entry.payload_json, entry.schema_version, entry.run_id, entry.seq) == ("null", 1, "", 0)
    assert entry.ts_ms == entry.occurred_at_ms
    assert entry.event_id == result.event_id


async def test_a_request_is_all_or_nothing(rpc: Any) -> None:
    with pytest.raises(grpc.aio.AioRpcError, match=r"events\[1\]\.payload_json at position 1"):
        await record(rpc, {"event_type": "a"}, {"event_type": "b", "payload_json": "[}"})
    assert (await rpc.GetJournalInfo(pb.GetJournalInfoRequest())).head_global_seq == 0
    assert list(await record(rpc)) == []


async def test_subscribing(rpc: Any) -> None:
    await record(
        rpc,
        {"event_type": "a", "payload_json": "1", **TRACE},
        {"event_type": "b", "payload_json": "2"},
        {"event_type": "a", "payload_json": "3"},
    )
    await rpc.WriteValue(
        pb.WriteValueRequest(namespace="n", key="k", value_json="4", if_version=-1)
    )
    by_subject = pb.SubscribeBySubjectRequest(
        subject_pattern="/tape/event/recorded/a/**", predicate_cel="payload > 0"
    )
    first, third = await take(rpc.SubscribeBySubject(by_subject), 2)
    assert (first.global_seq, third.global_seq) == (1, 3)
    assert {name: getattr(first, name) for name in TRACE} == TRACE
    by_subject.from_global_seq = 1
    (third,) = await take(rpc.SubscribeBySubject(by_subject), 1)
    assert third.payload_json == "3"

    everything = await take(rpc.SubscribeEvents(pb.SubscribeEventsRequest()), 4)
    assert [entry.global_seq for entry in everything] == [1, 2, 3, 4]
    for request, expected in (
        (pb.SubscribeEventsRequest(kind="value"), 4),
        (pb.SubscribeEventsRequest(from_ts_ms=first.ts_ms, from_global_seq=2), 3),
        (pb.SubscribeEventsRequest(subject_pattern="/tape/event/recorded/b/*/*"), 2),
    ):
        (entry,) = await take(rpc.SubscribeEvents(request), 1)
        assert entry.global_seq == expected


async def test_following_by_the_batch(rpc: Any) -> None:
    await record(rpc, *({"event_type": f"t{i % 2}", "payload_json": str(i)} for i in range(10)))
    request = pb.FollowEntriesRequest(
        subject_pattern="/tape/event/recorded/t1/**",
        predicate_cel="payload != 5",
        max_batch=2,
        to_global_seq=9,
    )
    batches = [batch async for batch in rpc.FollowEntries(request)]
    assert [e.payload_json for batch in batches for e in batch.entries] == ["1", "3", "7"]
    assert max(len(batch.entries) for batch in batches) <= 2
    assert batches[-1].cursor == 9
    request.predicate_cel = "payload.a == 1"
    batches = [batch async for batch in rpc.FollowEntries(request)]
    assert sum(batch.skipped for batch in batches) == 4
    assert "entry 8" in batches[-1].last_error


async def test_a_run_writes_with_its_token(rpc: Any, store_url: str) -> None:
    await begin_run(store_url)
    (result,) = await record(rpc, {"event_type": "a", **RUN})
    assert result.seq == 1
    write: dict[str, Any] = {"namespace": "n", "key": "k", **RUN, **TRACE}
    await rpc.WriteValue(pb.WriteValueRequest(**write, value_json="1", if_version=-1, writer="w"))
    await rpc.DeleteValue(pb.DeleteValueRequest(**write, writer="x"))
    await rpc.CreateSession(pb.CreateSessionRequest(app_name="a", user_id="u", session_id="s"))
    session: dict[str, Any] = {"app_name": "a", "user_id": "u", "session_id": "s"}
    await rpc.AppendEvent(
        pb.AppendEventRequest(**session, event=pb.EventRecord(id="e"), **RUN, **TRACE)
    )
    entries = await take(rpc.SubscribeRun(pb.SubscribeRunRequest(run_id="r")), 4)
    assert [entry.seq for entry in entries] == [1, 2, 3, 4]
    assert [entry.kind for entry in entries] == ["event", "value", "value", "event"]
    assert {entry.trace_id for entry in entries[1:]} == {TRACE["trace_id"]}
    assert entries[0].event_type == "a"
    (last,) = await take(rpc.SubscribeRun(pb.SubscribeRunRequest(run_id="r", from_seq=3)), 1)
    assert last.seq == 4
    of_run = await take(rpc.SubscribeEvents(pb.SubscribeEventsRequest(run_id="r", kind="value")), 2)
    assert [entry.run_id for entry in of_run] == ["r", "r"]

    stale: dict[str, Any] = {"run_id": "r", "fencing_token": 6}
    for call in (
        record(rpc, {"event_type": "a", "run_id": "r"}),
        rpc.WriteValue(pb.WriteValueRequest(namespace="n", key="k", value_json="1", **stale)),
        rpc.DeleteValue(pb.DeleteValueRequest(namespace="n", key="k", **stale)),
        rpc.AppendEvent(pb.AppendEventRequest(**session, event=pb.EventRecord(), **stale)),
    ):
        with pytest.raises(grpc.aio.AioRpcError, match="abandon the work") as refused:
            await call
        assert refused.value.code() == grpc.StatusCode.FAILED_PRECONDITION


async def test_values(rpc: Any) -> None:
    name: dict[str, Any] = {"namespace": "n", "key": "k"}
    assert not (await rpc.GetValue(pb.GetValueRequest(**name))).HasField("value")
    writing = pb.WriteValueRequest(**name, value_json="1", if_version=0, request_id="r")
    made = await rpc.WriteValue(writing)
    assert (made.version, made.deleted) == (1, False)
    assert await rpc.WriteValue(writing) == made
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await rpc.WriteValue(pb.WriteValueRequest(**name, value_json="2", if_version=5))
    assert refused.value.code() == grpc.StatusCode.ABORTED
    found = await rpc.GetValue(pb.GetValueRequest(**name))
    assert (found.found, found.value) == (True, made)
    deleted = await rpc.DeleteValue(pb.DeleteValueRequest(**name))
    assert (deleted.deleted, deleted.version) == (True, 2)
    tombstone = await rpc.GetValue(pb.GetValueRequest(**name))
    assert (tombstone.found, tombstone.value.deleted, tombstone.value.version) == (False, True, 2)
    created, removed = await take(rpc.WatchValue(pb.WatchValueRequest(**name)), 2)
    assert (created.value, created.prev_version) == (made, 0)
    assert (removed.prev_version, removed.prev_value_json) == (1, "1")
    for key in "abc":
        await rpc.WriteValue(
            pb.WriteValueRequest(namespace="n", key=key, value_json="1", if_version=-1)
        )
    listing = pb.ListValuesRequest(namespace="n", after_key="a", limit=1)
    assert [value.key for value in (await rpc.ListValues(listing)).values] == ["b"]


async def test_sessions(rpc: Any) -> None:
    name: dict[str, Any] = {"app_name": "a", "user_id": "u", "session_id": "s"}
    made = await rpc.CreateSession(pb.CreateSessionRequest(**name, state_json='{"a": 1}'))
    assert (made.session_id, made.state_json, list(made.events)) == ("s", '{"a": 1}', [])
    event = pb.EventRecord(id="e", author="me", content_json='{"t": 1}')
    appended = await rpc.AppendEvent(
        pb.AppendEventRequest(**name, event=event, state_delta_json='{"b": 2}')
    )
    assert appended.event.actions_json == "null"
    assert appended.last_update_time_ms == appended.event.timestamp_ms
    found = await rpc.GetSession(pb.GetSessionRequest(**name))
    assert found.found
    assert list(found.session.events) == [appended.event]
    listed = await rpc.ListSessions(pb.ListSessionsRequest(app_name="a", user_id="u"))
    assert [session.session_id for session in listed.sessions] == ["s"]
    assert (await rpc.DeleteSession(pb.DeleteSessionRequest(**name))).deleted
    assert not (await rpc.DeleteSession(pb.DeleteSessionRequest(**name))).deleted
    assert not (await rpc.GetSession(pb.GetSessionRequest(**name))).found


async def test_an_answer_too_large_to_send_is_refused_with_advice(rpc: Any) -> None:
    name: dict[str, Any] = {"app_name": "a", "user_id": "u", "session_id": "s"}
    await rpc.CreateSession(pb.CreateSessionRequest(**name))
    large = pb.EventRecord(content_json='"' + "x" * 1_000_000 + '"')
    for _ in range(17):
        await rpc.AppendEvent(pb.AppendEventRequest(**name, event=large))
    with pytest.raises(grpc.aio.AioRpcError, match="ask for less") as refused:
        await rpc.GetSession(pb.GetSessionRequest(**name))
    assert refused.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    few = await rpc.GetSession(pb.GetSessionRequest(**name, max_events=2))
    assert len(few.session.events) == 2


async def test_journal_info(rpc: Any, store_url: str) -> None:
    await record(rpc, {"event_type": "a"}, {"event_type": "a"})
    info = await rpc.GetJournalInfo(pb.GetJournalInfoRequest())
    assert info.store == store_url.partition(":")[0]
    assert (info.first_global_seq, info.head_global_seq) == (1, 2)
    assert info.migration > 0
    assert info.version == __version__
