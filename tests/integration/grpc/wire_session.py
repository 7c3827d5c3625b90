"""A session that makes every call of the service, with refusals among them.

It is played to a server whose clock stands still, so that what goes over the wire is always the
same but for ids, which are numbered in the order in which they appear.
"""

import asyncio
import re
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import pytest
from google.protobuf.message import Message
from google.rpc.error_details_pb2 import ErrorInfo  # type: ignore[import-untyped]
from google.rpc.status_pb2 import Status  # type: ignore[import-untyped]

from tape.api.auth import Tokens
from tape.api.grpc.server import GrpcServer
from tape.bus import Bus
from tape.calls.call import SERVICE
from tape.programs.connect import open_bus
from tape.settings import Settings
from tape.wire.v1 import tape_pb2 as pb
from tests.integration.grpc.fenced import FENCED, LIVING, SESSION, STALE

STARTED_MS = 1_800_000_000_000
ID = re.compile(rb"01[0-9A-HJKMNP-TV-Z]{24}|(?<=[\x1a\"/])[0-9a-v]{26}")
"""A ULID, or the id of a run."""
HOUR_MS = 3_600_000
WALLET_KEY = "d2FsbGV0IGtleSBvZiB0aGlydHktdHdvIGJ5dGVzISE="
RUN: dict[str, Any] = {"user_id": "u", "session_id": "s"}
LINES = """
apiVersion: tape/v1
kind: Subscription
metadata: {name: a.line-s, path: subscriptions/a.line-s}
spec:
  source: file
  mode: pull
  activation: scheduled
  cadence: "*/5 * * * *"
  folder: /tmp
  pattern: "none.jsonl"
  runtime: {target: cloud-run, server_url: "https://tape.example", pool: inbox}
  dispatch: {playbook: read_line, execution_pool: lines}
  dedup: {window_secs: 60, key: id}
  limits: {max_dispatch_per_sec: 10}
"""
"""A document whose listener needs no server of a source."""

Call = Callable[..., Awaitable[Any]]


class Exchange(NamedTuple):
    """One call: what was sent, what came back, and the status that ended it."""

    call: str
    request: bytes
    replies: list[bytes]
    status: str


class Clock:
    """Time that stands still until it is moved."""

    def __init__(self) -> None:
        self.now_ms = STARTED_MS

    def __call__(self) -> int:
        return self.now_ms * 1_000_000


class Wire:
    """Makes calls and writes them down."""

    def __init__(self, channel: Any) -> None:
        self._channel = channel
        self._ids: dict[bytes, bytes] = {}
        self.exchanges: list[Exchange] = []

    async def call(self, name: str, request: Message | None = None, count: int = 1) -> Any:
        """The reply, or a list of so many if the call streams; None if it was refused."""
        method = SERVICE.methods_by_name[name]
        request = request or getattr(pb, method.input_type.name)()
        sent = request.SerializeToString(deterministic=True)
        replies: list[bytes] = []
        status = "OK"
        try:
            async for reply in self._replies(name, sent, method):
                replies.append(reply)
                if len(replies) == count:
                    break
        except grpc.aio.AioRpcError as failed:
            status = self._numbered(_told(failed).encode()).decode()
        written = [self._numbered(_lasting(name, reply)) for reply in replies]
        self.exchanges.append(Exchange(name, self._numbered(sent), written, status))
        kind = getattr(pb, method.output_type.name)
        found = [kind.FromString(reply) for reply in replies]
        if method.server_streaming:
            return found
        return found[0] if found else None

    async def _replies(self, name: str, sent: bytes, method: Any) -> Any:
        path = f"/{SERVICE.full_name}/{name}"
        if method.client_streaming:
            both = self._channel.stream_stream(path)(iter([sent]))
            async for reply in both:
                yield reply
        elif method.server_streaming:
            out = self._channel.unary_stream(path)(sent)
            try:
                async for reply in out:
                    yield reply
            finally:
                out.cancel()
        else:
            yield await self._channel.unary_unary(path)(sent)

    def _numbered(self, data: bytes) -> bytes:
        def number(found: re.Match[bytes]) -> bytes:
            return self._ids.setdefault(found[0], b"ID%024d" % len(self._ids))

        return ID.sub(number, data)


def _told(failed: grpc.aio.AioRpcError) -> str:
    """A status with its details. They hold a map, whose order on the wire is anyone's."""
    data = dict(failed.trailing_metadata() or ()).get("grpc-status-details-bin", b"")
    parts = [f"{failed.code().name}: {failed.details()}"]
    for detail in Status.FromString(bytes(data)).details:
        if detail.Is(ErrorInfo.DESCRIPTOR):
            info = ErrorInfo.FromString(detail.value)
            attributes = [f"{name}={text}" for name, text in sorted(info.metadata.items())]
            parts += [info.reason, info.domain, *attributes]
        else:
            parts += [detail.type_url, detail.value.hex()]
    return " | ".join(parts)


def _lasting(name: str, reply: bytes) -> bytes:
    """A reply without what says nothing, or changes with each version."""
    if name == "ListenForTasks":
        return pb.ListenForTasksResponse(heard=1).SerializeToString()
    if name == "GetJournalInfo":
        info = pb.GetJournalInfoResponse.FromString(reply)
        info.version, info.migration = "0", 1
        return info.SerializeToString()
    if name == "GetSealedCredential":
        sealed = pb.SealedCredential.FromString(reply)
        for version in sealed.versions:
            for field in ("wrapped_key", "nonce", "ciphertext"):
                setattr(version, field, bytes(len(getattr(version, field))))
        return sealed.SerializeToString()
    return reply


async def play(folder: Path, patching: pytest.MonkeyPatch) -> list[Exchange]:
    clock = Clock()
    patching.setattr(time, "time_ns", clock)
    patching.setenv("TAPE_WALLET_KEY", WALLET_KEY)
    bus = await open_bus(f"sqlite:{folder / 'wire.db'}", Settings())
    server = GrpcServer(bus, bus.limits, Tokens({}))
    address = await server.start("127.0.0.1:0")
    try:
        async with grpc.aio.insecure_channel(address) as channel:
            wire = Wire(channel)
            await journal_calls(wire.call)
            await session_calls(wire.call)
            await run_calls(wire.call, clock)
            await fenced_calls(wire.call, clock)
            await task_calls(wire.call, bus)
            await ledger_calls(wire.call)
            await wallet_calls(wire.call)
            await once_calls(wire.call)
            await subscription_calls(wire.call)
            return wire.exchanges
    finally:
        await server.stop()
        await bus.close()


async def journal_calls(call: Call) -> None:
    trace: dict[str, Any] = {"trace_id": "1" * 32, "span_id": "2" * 16, "parent_span_id": "3" * 16}
    full = pb.NewEvent(
        event_type="order.placed", entity_type="order", entity_id="é/7", payload_json='{"n": 1.50}',
        schema_version=2, idempotency_key="k1", caused_by="c", source="shop", occurred_at_ms=5,
        **trace,
    )  # fmt: skip
    bare = pb.NewEvent(event_type="bare")
    await call("RecordEvents", pb.RecordEventsRequest(events=[full, bare]))
    await call("RecordEvents", pb.RecordEventsRequest(events=[full]))
    await call("RecordEvents", pb.RecordEventsRequest(events=[bare, pb.NewEvent()]))
    await call("RecordEventStream", pb.RecordEventsRequest(events=[bare, bare]))
    value: dict[str, Any] = {"namespace": "n", "key": "k"}
    await call("WriteValue", pb.WriteValueRequest(**value, value_json="1", writer="w", **trace))
    await call("WriteValue", pb.WriteValueRequest(**value, value_json="2", if_version=7))
    await call("WriteValue", pb.WriteValueRequest(**value, value_json="{", if_version=-1))
    await call("WriteValue", pb.WriteValueRequest(**value, value_json='"é"', if_version=1,
                                                  request_id="r1"))  # fmt: skip
    await call("GetValue", pb.GetValueRequest(**value))
    await call("GetValue", pb.GetValueRequest(namespace="n", key="none"))
    await call("ListValues", pb.ListValuesRequest(namespace="n"))
    await call("ListNamespaces", pb.ListNamesRequest(limit=5))
    await call("DeleteValue", pb.DeleteValueRequest(**value, writer="w"))
    await call("DeleteValue", pb.DeleteValueRequest(namespace="n", key="none"))
    await call("GetValue", pb.GetValueRequest(**value))
    await call("WatchValue", pb.WatchValueRequest(**value), count=3)
    await call("WatchValue", pb.WatchValueRequest(**value, from_version=99))
    await call("FollowEntries", pb.FollowEntriesRequest(subject_pattern="/**", to_global_seq=3,
                                                        max_batch=2), count=2)  # fmt: skip
    where = "payload.n > 1.0"
    await call("FollowEntries", pb.FollowEntriesRequest(
        subject_pattern="/tape/event/**", predicate_cel=where, to_global_seq=3))  # fmt: skip
    await call("FollowEntries", pb.FollowEntriesRequest(subject_pattern="/a/**/b"))
    await call("SubscribeBySubject", pb.SubscribeBySubjectRequest(subject_pattern="/**"), count=3)
    await call("SubscribeEvents", pb.SubscribeEventsRequest(kind="value"), count=3)
    await call("ReadRecent", pb.ReadRecentRequest(limit=2))
    await call("ReadRecent", pb.ReadRecentRequest(event_type="order.placed", source="shop"))
    await call("GetJournalInfo")
    await call("GetOutboxStatus")
    await call("SkipOutboxRow", pb.SkipOutboxRowRequest(row_id=1, reason="r", by="me"))


async def session_calls(call: Call) -> None:
    await call("CreateSession", pb.CreateSessionRequest(**SESSION, state_json='{"a":1}'))
    await call("CreateSession", pb.CreateSessionRequest(**SESSION))
    await call("CreateSession", pb.CreateSessionRequest(app_name="app", user_id="u"))
    event = pb.EventRecord(id="e1", invocation_id="i", author="a", branch="b", content_json="{}",
                           actions_json="{}", timestamp_ms=5)  # fmt: skip
    await call("AppendEvent", pb.AppendEventRequest(**SESSION, event=event,
                                                    state_delta_json='{"b":2}'))  # fmt: skip
    await call("AppendEvent", pb.AppendEventRequest(app_name="none", user_id="u", session_id="s"))
    await call("GetSession", pb.GetSessionRequest(**SESSION))
    await call("GetSession", pb.GetSessionRequest(app_name="none", user_id="u", session_id="s"))
    await call("ListSessions", pb.ListSessionsRequest(app_name="app", user_id="u"))
    await call("ListSessionApps", pb.ListNamesRequest())
    gone = pb.DeleteSessionRequest(app_name="app", user_id="u", session_id="none")
    await call("DeleteSession", gone)


async def run_calls(call: Call, clock: Clock) -> None:
    begun = await call("BeginRun", pb.BeginRunRequest(
        app_name="app", **RUN, invocation_id="i1", lease_owner="me", lease_ttl_ms=60_000,
        pool="p", reactor_name="r", input_json="[1]", app_version="v", trace_id="1" * 32,
        span_id="2" * 16,
    ))  # fmt: skip
    await call("BeginRun", pb.BeginRunRequest(app_name="app", **RUN, invocation_id="queued"))
    await call("BeginRun", pb.BeginRunRequest(user_id="u"))
    held: dict[str, Any] = {"run_id": begun.run_id, "fencing_token": begun.fencing_token}
    writes = [
        pb.RunWrite(record_decision=pb.RecordDecisionRequest(model="m", response_json="[1.50]")),
        pb.RunWrite(begin_effect=pb.BeginEffectRequest(tool_name="pay", request_json="{}")),
        pb.RunWrite(complete_effect=pb.CompleteEffectRequest(
            idempotency_key=f"{begun.run_id}/decision-0/pay/0", response_json='{"ok":true}',
            status=pb.EFFECT_STATUS_CONFIRMED,
            compensation=pb.Compensation(kind="refund", payload_json="{}", max_attempts=2))),
        pb.RunWrite(await_signal=pb.AwaitSignalRequest(gate_name="g")),
        pb.RunWrite(set_timer=pb.SetTimerRequest(timer_id="t", after_ms=5, payload_json='"p"')),
        pb.RunWrite(cancel_timer=pb.CancelTimerRequest(timer_id="t")),
        pb.RunWrite(set_budget=pb.SetBudgetRequest(usd_cap=2.5, token_cap=100)),
        pb.RunWrite(charge_budget=pb.ChargeBudgetRequest(usd=0.5, tokens=7)),
    ]  # fmt: skip
    await call("ExtendRun", pb.ExtendRunRequest(**held, writes=writes))
    await call("ExtendRun", pb.ExtendRunRequest(**held, writes=[pb.RunWrite()]))
    await call("RecordDecision", pb.RecordDecisionRequest(**held, decision_index=1, model="m"))
    await call("RecordDecision", pb.RecordDecisionRequest(**held, decision_index=1, model="m"))
    for as_entry in (False, True):
        await call("GetDecision", pb.GetDecisionRequest(run_id=begun.run_id, as_entry=as_entry))
    await call("GetDecision", pb.GetDecisionRequest(run_id=begun.run_id, decision_index=9))
    await call("GetEffect", pb.GetEffectRequest(run_id=begun.run_id, idempotency_key="none"))
    key = f"{begun.run_id}/decision-0/pay/0"
    await call("GetEffect", pb.GetEffectRequest(run_id=begun.run_id, idempotency_key=key))
    outbox: dict[str, Any] = {"custom_key": "o", "dispatch_mode": 2, "semantics": 2}
    await call("BeginEffect", pb.BeginEffectRequest(**held, tool_name="wire", **outbox))
    await call("ListEffectsToDispatch")
    await call("ListPendingEffects", pb.ListPendingEffectsRequest(include_pending=True))
    await call("AdmitBudget", pb.AdmitBudgetRequest(run_id=begun.run_id, usd_estimate=1.0))
    await call("AdmitBudget", pb.AdmitBudgetRequest(run_id=begun.run_id, token_estimate=1_000))
    await call("SetTimer", pb.SetTimerRequest(**held, timer_id="due", after_ms=1_000))
    await call("NextTimer")
    await call("ListTimers", pb.ListTimersRequest(run_id=begun.run_id))
    clock.now_ms += 2_000
    await call("ListDueTimers", pb.ListDueTimersRequest())
    await call("ListDueTimers", pb.ListDueTimersRequest(claim=True))
    await call("NextTimer")
    await call("ListObligations", pb.ListObligationsRequest(run_id=begun.run_id))
    await call("ListUnresolvedObligations", pb.ListUnresolvedObligationsRequest(
        include_pending=True, include_stuck=True))  # fmt: skip
    await call("HeartbeatRun", pb.HeartbeatRunRequest(**held, lease_ttl_ms=60_000))
    await call("SendSignal", pb.SendSignalRequest(run_id=begun.run_id, gate_name="g",
                                                  resolution_json="true"))  # fmt: skip
    await call("SendSignal", pb.SendSignalRequest(run_id="none", gate_name="g"))
    await call("ReleaseRun", pb.ReleaseRunRequest(**held))
    await call("ResumeRun", pb.ResumeRunRequest(run_id=begun.run_id, pool="other"))
    resumed = await call("ResumeRun", pb.ResumeRunRequest(run_id=begun.run_id, lease_owner="you"))
    await call("CancelRun", pb.CancelRunRequest(run_id=begun.run_id, reason="no more"))
    await call("EndRun", pb.EndRunRequest(
        run_id=begun.run_id, fencing_token=resumed.fencing_token, detail_json='{"why":1}',
        status=pb.RUN_STATUS_CANCELLED))  # fmt: skip
    await call("GetRun", pb.GetRunRequest(run_id=begun.run_id))
    await call("GetRun", pb.GetRunRequest(run_id="none"))
    await call("ListRuns", pb.ListRunsRequest())
    await call("ListRuns", pb.ListRunsRequest(status=pb.RUN_STATUS_RUNNABLE, user_id="u", limit=1))
    await call("ListRunsToRecover", pb.ListRunsToRecoverRequest(limit=5))
    await call("ListWaitingRuns", pb.ListWaitingRunsRequest(older_than_ms=0))
    await call("ReadRunEntries", pb.ReadRunEntriesRequest(run_id=begun.run_id, after_seq=1))
    await call("SubscribeRun", pb.SubscribeRunRequest(run_id=begun.run_id), count=5)
    await call("SubscribeRun", pb.SubscribeRunRequest(run_id=begun.run_id, from_seq=999))


async def fenced_calls(call: Call, clock: Clock) -> None:
    """Each with a stale token and with the living one, on a run whose lease was taken over."""
    for number, (name, request) in enumerate(FENCED.items()):
        mine: dict[str, Any] = {"app_name": "app", **RUN, "invocation_id": f"fenced-{number}"}
        begin = pb.BeginRunRequest(**mine, lease_owner="me", lease_ttl_ms=1_000)
        begun = await call("BeginRun", begin)
        run_id = begun.run_id
        held: dict[str, Any] = {"run_id": run_id, "fencing_token": begun.fencing_token}
        outbox: dict[str, Any] = {"custom_key": "outbox", "dispatch_mode": 2, "semantics": 1}
        await call("BeginEffect", pb.BeginEffectRequest(**held, tool_name="t", custom_key="inline"))
        await call("BeginEffect", pb.BeginEffectRequest(**held, tool_name="t", **outbox))
        await call("SetTimer", pb.SetTimerRequest(**held, timer_id="old", after_ms=10 * HOUR_MS))
        owed = await call("RegisterCompensation", pb.RegisterCompensationRequest(
            **held, effect_key="k", kind="alone", alone=True))  # fmt: skip
        for _ in (STALE, LIVING):
            clock.now_ms += 2_000
            claimer: dict[str, Any] = {"run_id": run_id, "claimer": "c", "lease_ttl_ms": 1_000}
            await call("ClaimEffectDispatch", pb.ClaimEffectDispatchRequest(
                **claimer, idempotency_key="outbox"))  # fmt: skip
            await call("ClaimObligation", pb.ClaimObligationRequest(
                **claimer, obligation_seq=owed.seq))  # fmt: skip
        await call("BeginRun", begin)
        for token in (STALE, LIVING):
            await call(name, request(run_id, token))


async def task_calls(call: Call, bus: Bus) -> None:
    reaction = pb.Reaction(
        reaction_id="r1", subject_pattern="/tape/event/recorded/bare/**", num_shards=1,
        predicate_cel="kind == 'event'", handler_kind=pb.HANDLER_KIND_TASK, from_global_seq=0,
        retry_max=1, dlq_after_n=1, retry_backoff_ms=0, max_concurrency=3,
    )  # fmt: skip
    await call("RegisterReaction", reaction)
    await call("RegisterReaction", pb.Reaction(subject_pattern="no slash"))
    await call("RegisterReaction", pb.Reaction(reaction_id="r2", subject_pattern="/**",
               predicate_cel="nosuch(", handler_kind=pb.HANDLER_KIND_TASK))  # fmt: skip
    bus.start_matching()
    await until_matched(bus)
    claim = pb.ClaimTasksRequest(reaction_id="r1", shard=-1, owner="me", lease_ms=60_000, max=3)
    tasks = (await call("ClaimTasks", claim)).tasks
    mine = [task.task_id for task in tasks]
    await call("ClaimTasks", pb.ClaimTasksRequest(owner="me", lease_ms=60_000, task_ids=mine))
    await call("ListenForTasks", pb.ListenForTasksRequest(reaction_ids=["r1"]))
    await call("ListenForTasks", pb.ListenForTasksRequest(reaction_ids=["none"]))
    await call("CompleteTask", pb.CompleteTaskRequest(task_id=tasks[0].task_id, owner="me"))
    await call("CompleteTask", pb.CompleteTaskRequest(task_id=tasks[1].task_id, owner="you"))
    await call("CompleteTask", pb.CompleteTaskRequest(task_id="none", owner="me"))
    await call("NackTask", pb.NackTaskRequest(task_id=tasks[1].task_id, owner="me", error="bad",
                                              permanent=True, traceback="Traceback"))  # fmt: skip
    await call("SettleTasks", pb.SettleTasksRequest(owner="me", outcomes=[
        pb.TaskOutcome(task_id=tasks[2].task_id, verdict=pb.VERDICT_REFUSED, error="no"),
        pb.TaskOutcome(task_id="r1/0/999", verdict=pb.VERDICT_DONE)]))  # fmt: skip
    await call("SettleTasks", pb.SettleTasksRequest(owner="me", outcomes=[pb.TaskOutcome()]))
    await call("ListTasks", pb.ListTasksRequest(reaction_id="r1"))
    await call("ListTasks", pb.ListTasksRequest(task_id=tasks[1].task_id))
    await call("ReplayDeadLetters", pb.ReplayDeadLettersRequest(
        reaction_id="r1", task_ids=[tasks[1].task_id]))  # fmt: skip
    await call("DropDeadLetters", pb.DropDeadLettersRequest(reaction_id="r1"))
    await call("DropDeadLetters", pb.DropDeadLettersRequest(reaction_id="none"))
    await until_matched(bus)
    await call("ListReactions")
    await call("DeregisterReaction", pb.DeregisterReactionRequest(reaction_id="r1"))
    await call("DeregisterReaction", pb.DeregisterReactionRequest(reaction_id="none"))


async def until_matched(bus: Bus) -> None:
    """Until every entry was considered for the reaction."""
    async with asyncio.timeout(30):
        head = (await bus.info()).head_global_seq
        while (await bus.reactions.list_reactions())[0].position < head:  # noqa: ASYNC110 - nothing rings
            await asyncio.sleep(0.01)


async def ledger_calls(call: Call) -> None:
    await call("PutEventSubscription", pb.EventSubscription(
        subscription_id="s1", event_type_glob="order.*", workflow_type="ship",
        input_mapper='{"id": "$.entity_id"}', filter_expr="payload.n > 0.0",
        drainer_id="d", pool="p"))  # fmt: skip
    await call("PutEventSubscription", pb.EventSubscription(subscription_id="s2"))
    await call("ListEventSubscriptions")
    await call("DrainEvents", pb.DrainEventsRequest(drainer_id="d", await_s=0.0))
    await call("ListDrainers")
    await call("ResumeDrainer", pb.ResumeDrainerRequest(drainer_id="d", by="me"))
    placed = await call("ReadRecent", pb.ReadRecentRequest(event_type="order.placed"))
    for event_id in ("none", placed.entries[0].event_id):
        await call("SkipDrainerEvent", pb.SkipDrainerEventRequest(
            drainer_id="d", event_id=event_id, reason="r", by="me"))  # fmt: skip
    await call("DeleteEventSubscription",
               pb.DeleteEventSubscriptionRequest(subscription_id="s1"))  # fmt: skip


async def wallet_calls(call: Call) -> None:
    await call("PutCredential", pb.PutCredentialRequest(alias="nats_main", value='{"user": "u"}'))
    await call("PutCredential", pb.PutCredentialRequest(alias="hook/é", value="s3", form="text"))
    await call("PutCredential", pb.PutCredentialRequest(alias="none", value="[]", form="object"))
    await call("RotateCredential", pb.RotateCredentialRequest(alias="nats_main", value="{}"))
    await call("RotateCredential", pb.RotateCredentialRequest(alias="none", value="x"))
    await call("ListCredentials")
    await call("RewrapCredentials")
    await call("GetSealedCredential", pb.GetSealedCredentialRequest(alias="nats_main"))
    await call("GetSealedCredential", pb.GetSealedCredentialRequest(alias="none"))
    await call("RetireCredential", pb.RetireCredentialRequest(alias="nats_main"))
    await call("RetireCredential", pb.RetireCredentialRequest(alias="none"))
    await call("DeleteCredential", pb.DeleteCredentialRequest(alias="hook/é"))
    await call("DeleteCredential", pb.DeleteCredentialRequest(alias="hook/é"))
    await call("ListCredentials", pb.ListCredentialsRequest(after_alias="nats_main"))


async def once_calls(call: Call) -> None:
    new: dict[str, Any] = {"app_name": "once", "input_json": '{"n": 1}', "pool": "p"}
    trace: dict[str, Any] = {
        "traceparent": f"00-{'1' * 32}-{'2' * 16}-01", "tracestate": "v=1", "baggage": "t=é",
    }  # fmt: skip
    key: dict[str, Any] = {"key": "k", "window_ms": 60_000}
    first = pb.BeginRunOnceRequest(**new, **RUN, **key, **trace, invocation_id="i1")
    await call("BeginRunOnce", first)
    await call("BeginRunOnce", first)
    await call("BeginRunOnce", pb.BeginRunOnceRequest(**new, **key, invocation_id="i2"))
    await call("BeginRunOnce", pb.BeginRunOnceRequest(**new, key="k", invocation_id="i3"))
    await call("BeginRun", pb.BeginRunRequest(app_name="traced", invocation_id="i1", **trace))
    await call("BeginRun", pb.BeginRunRequest(app_name="traced", tracestate="v=1"))
    await call("SubscribeBySubject", pb.SubscribeBySubjectRequest(
        subject_pattern="/tape/subscription/run_deduplicated/**"))  # fmt: skip


async def subscription_calls(call: Call) -> None:
    name: dict[str, Any] = {"name": "a.line-s"}
    register = pb.RegisterSubscriptionRequest
    await call("RegisterSubscription", register(document=LINES))
    await call("RegisterSubscription", register(document=LINES))
    await call("RegisterSubscription", register(document=LINES.replace("pull", "push")))
    await call("GetSubscription", pb.GetSubscriptionRequest(**name))
    await call("GetSubscription", pb.GetSubscriptionRequest(name="none"))
    hold: dict[str, Any] = {**name, "lease_owner": "me", "lease_ttl_ms": 60_000}
    await call("HoldSubscription", pb.HoldSubscriptionRequest(**hold))
    for verb in ("pause", "open", "activate", "activate"):
        await call("MoveSubscription", pb.MoveSubscriptionRequest(**name, verb=verb))
    held = await call("HoldSubscription", pb.HoldSubscriptionRequest(**hold))
    await call("HoldSubscription", pb.HoldSubscriptionRequest(**hold))
    token: dict[str, Any] = {**name, "fencing_token": held.fencing_token}
    await call("HoldSubscription", pb.HoldSubscriptionRequest(
        **hold, fencing_token=held.fencing_token, fetched=3, in_flight=2, backlog=7,
        last_error="slow", passed=[pb.PassedOrigin(origin="file/tmp/a", position=2)]))  # fmt: skip
    for most in (4, 4):
        await call("ReserveDispatches", pb.ReserveDispatchesRequest(**token, most=most))
    await call("ReserveDispatches", pb.ReserveDispatchesRequest(**name, most=4))
    await call("TickSubscription", pb.TickSubscriptionRequest(**token, due_at_ms=held.due_at_ms))
    await call("TickSubscription", pb.TickSubscriptionRequest(**name))
    lines = [pb.SourceMessage(
        source="file", origin="file/tmp/a", position=str(at), body=body, timestamp_ms=5,
        headers=[pb.MessageHeader(name="X-A", value=b"1"), pb.MessageHeader(name="x-a",
                 value=b"\xff")], message_id=f"m{at}", key="é", subject="s", deliveries=2)
        for at, body in enumerate((b'{"id": "1"}', b'{"id": "1"}', b"\xffno"), 1)]  # fmt: skip
    accept = pb.AcceptMessagesRequest(**token, revision=held.revision, messages=lines)
    await call("AcceptMessages", accept)
    await call("AcceptMessages", accept)
    await call("AcceptMessages", pb.AcceptMessagesRequest(**name, revision=1, messages=lines))
    await call("AcceptMessages", pb.AcceptMessagesRequest(**token, revision=9, messages=lines))
    await call("AcceptMessages", pb.AcceptMessagesRequest(**token, messages=[pb.SourceMessage()]))
    listed = pb.ListSubscriptionDeadLettersRequest
    letters = (await call("ListSubscriptionDeadLetters", listed(**name))).dead_letters
    last = letters[-1].letter_id
    await call("ListSubscriptionDeadLetters", listed(**name, after=last, limit=1))
    await call("ListSubscriptionDeadLetters", listed(name="none"))
    settle = pb.SettleSubscriptionDeadLettersRequest
    for verb, ids in (("replay", [last]), ("forget", []), ("drop", ["none"]), ("drop", [])):
        await call("SettleSubscriptionDeadLetters", settle(**name, verb=verb, ids=ids))
    await call("DeleteSubscription", pb.DeleteSubscriptionRequest(**name))
    await call("HoldSubscription", pb.HoldSubscriptionRequest(
        **hold, fencing_token=held.fencing_token, letting_go=True, refused=True, backlog=-1,
        last_error="no such folder"))  # fmt: skip
    for verb in ("drain", "resume", "deactivate"):
        await call("MoveSubscription", pb.MoveSubscriptionRequest(**name, verb=verb))
    await call("ListSubscriptions")
    await call("ListSubscriptions", pb.ListSubscriptionsRequest(after_name="a.line-s"))
    for _ in range(2):
        await call("DeleteSubscription", pb.DeleteSubscriptionRequest(**name))
    await call("FollowEntries", pb.FollowEntriesRequest(
        subject_pattern="/tape/subscription/*/a.line-s", max_batch=100))  # fmt: skip
