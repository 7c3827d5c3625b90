"""Nothing a client sends is our fault: no input is answered with UNKNOWN or INTERNAL."""

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor import FieldDescriptor, MethodDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from tape.wire.v1 import tape_pb2 as pb
from tests.integration.grpc.conftest import Running
from tests.integration.grpc.fenced import FENCED, LIVING, run_in_second_hands
from tests.integration.grpc.listening import LISTENING, activated, hold

pytestmark = pytest.mark.asyncio(loop_scope="module")
ON_SQLITE = pytest.mark.parametrize("shared_server", ["sqlite"], indirect=True)

METHODS = list(pb.DESCRIPTOR.services_by_name["Tape"].methods)
METHODS_BY_NAME = {method.name: method for method in METHODS}
OUR_FAULT = {grpc.StatusCode.UNKNOWN, grpc.StatusCode.INTERNAL}
TEXTS = [
    "", "\0", "a\0b", "x" * 600, "x" * 5_000, "é" * 300, "\U0010ffff", "_", "%", "/", "..",
    "/tape/**/x", "/tape/event/*", "'; DROP TABLE journal; --", "{", "[" * 300 + "]" * 300,
    '{"a": 1e999}', '"\\ud800"', '"\\u0000"', "NaN", "1 +", "payload.a.b.c > 1", "null", "[1]",
    "9" * 400,
]  # fmt: skip
BYTES = [b"", b"\0", b"\xff" * 600, b"{", b'"\\ud800"', b"[" * 300, b"9" * 400]
NUMBERS = [-(2**63), -(2**31), -1, 0, 1, 2**31 - 1, 2**31, 2**63 - 1]
GOOD: dict[str, Any] = {
    "subject_pattern": "/**", "payload_json": "{}", "event_type": "a", "namespace": "n", "key": "k",
    "value_json": "1", "app_name": "a", "user_id": "u", "session_id": "s", "run_id": "",
    "if_version": -1, "schema_version": 1, "reaction_id": "r", "handler_kind": 2, "owner": "o",
    "max_concurrency": 1, "num_shards": 1, "verdict": 1, "task_id": "r/0/1",
}  # fmt: skip


def sensible(kind: Any) -> Any:
    """A request with nothing wrong in it."""
    message = kind()
    for field in kind.DESCRIPTOR.fields:
        if field.message_type is not None:
            inner = sensible(field.message_type._concrete_class)
            if field.is_repeated:
                getattr(message, field.name).append(inner)
            else:
                getattr(message, field.name).CopyFrom(inner)
        elif field.name in GOOD:
            setattr(message, field.name, GOOD[field.name])
    return message


def spoiled(message: Message) -> Iterator[Message]:
    """The request with each field in turn, at any depth, set to each kind of nonsense."""
    for field in message.DESCRIPTOR.fields:
        if field.message_type is not None:
            inner = getattr(message, field.name)
            target = inner[0] if field.is_repeated else inner
            before = type(target).FromString(target.SerializeToString())
            for bad in spoiled(before):
                target.CopyFrom(bad)
                yield type(message).FromString(message.SerializeToString())
            target.CopyFrom(before)
            continue
        for value in nonsense(field):
            copy = type(message).FromString(message.SerializeToString())
            if field.is_repeated:
                getattr(copy, field.name).append(value)
            else:
                setattr(copy, field.name, value)
            yield copy


def nonsense(field: Any) -> Sequence[Any]:
    if field.type == FieldDescriptor.TYPE_STRING:
        return TEXTS
    if field.type == FieldDescriptor.TYPE_BYTES:
        return BYTES
    if field.type == FieldDescriptor.TYPE_BOOL:
        return [False, True]
    bits = 63 if field.type == FieldDescriptor.TYPE_INT64 else 31  # an enumeration has 31 too
    return [number for number in NUMBERS if number >> bits in (0, -1)]


async def status(rpc: Any, method: MethodDescriptor, request: Any) -> Any:
    """How a call ends; one that goes on or waits, with nothing wrong, is cut off after a moment."""
    call = getattr(rpc, method.name)
    if method.client_streaming:

        async def requests() -> Any:
            yield request

        made = call(requests())
    elif method.server_streaming:
        made = call(request, timeout=0.3)
    else:
        made = call(request, timeout=0.3 if getattr(request, "wait_ms", 0) > 0 else None)
        return await made.code()
    try:
        async for _ in made:
            pass
    except grpc.aio.AioRpcError as failed:
        return failed.code()
    return await made.code()


async def faults_of(rpc: Any, method: MethodDescriptor, requests: list[Message]) -> list[Message]:
    """Those that are answered as if they were our fault."""
    at_once = asyncio.Semaphore(64)

    async def judged(request: Message) -> Any:
        async with at_once:
            return await status(rpc, method, request)

    codes = await asyncio.gather(*map(judged, requests))
    return [r for r, code in zip(requests, codes, strict=True) if code in OUR_FAULT]


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
async def test_nonsense(shared_rpc: Any, method: MethodDescriptor, caplog: Any) -> None:
    requests = [GetMessageClass(method.input_type)()]
    requests += spoiled(sensible(GetMessageClass(method.input_type)))
    assert await faults_of(shared_rpc, method, requests) == []
    assert [record for record in caplog.records if record.name == "tape.grpc"] == []


FOR_A_RUN = (
    *FENCED, "ResumeRun", "CancelRun", "SendSignal", "ClaimEffectDispatch", "ClaimObligation",
    "GetRun", "ReadRunEntries", "GetDecision", "GetEffect", "ListObligations", "AdmitBudget",
    "ListTimers",
)  # fmt: skip


@pytest.mark.parametrize("name", FOR_A_RUN)
async def test_nonsense_from_who_holds_the_lease(shared_rpc: Any, name: str, caplog: Any) -> None:
    method, run_id = METHODS_BY_NAME[name], await run_in_second_hands(shared_rpc)
    request = sensible(GetMessageClass(method.input_type))
    if name in FENCED:
        request.MergeFrom(FENCED[name](run_id, LIVING))
    else:
        request.run_id = run_id
    assert await faults_of(shared_rpc, method, list(spoiled(request))) == []
    assert [record for record in caplog.records if record.name == "tape.grpc"] == []


FOR_A_SUBSCRIPTION = (
    *LISTENING, "GetSubscription", "ListSubscriptionDeadLetters", "SettleSubscriptionDeadLetters",
    "MoveSubscription", "DeleteSubscription",
)  # fmt: skip


@pytest.mark.parametrize("name", FOR_A_SUBSCRIPTION)
async def test_nonsense_from_who_holds_a_subscription(
    shared_rpc: Any, name: str, caplog: Any
) -> None:
    method = METHODS_BY_NAME[name]
    await activated(shared_rpc, dedup="{window_secs: 60, key: n}", limits="{max_in_flight: 9}")
    held = await hold(shared_rpc)
    request = sensible(GetMessageClass(method.input_type))
    if name in LISTENING:
        request.MergeFrom(LISTENING[name](held.fencing_token))
    else:
        request.name = "inbox"
    assert await faults_of(shared_rpc, method, list(spoiled(request))) == []
    assert [record for record in caplog.records if record.name == "tape.grpc"] == []
    await shared_rpc.MoveSubscription(pb.MoveSubscriptionRequest(name="inbox", verb="deactivate"))
    await shared_rpc.DeleteSubscription(pb.DeleteSubscriptionRequest(name="inbox"))


def parses(method: MethodDescriptor, data: bytes) -> bool:
    """Where the first field is no text, this is a field nobody knows."""
    try:
        GetMessageClass(method.input_type).FromString(data)
    except DecodeError:
        return False
    return True


@ON_SQLITE
@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
async def test_no_message_at_all(shared_server: Running, method: MethodDescriptor) -> None:
    async with grpc.aio.insecure_channel(shared_server.address) as channel:
        shapes: dict[tuple[bool, bool], Any] = {
            (False, False): channel.unary_unary,
            (False, True): channel.unary_stream,
            (True, True): channel.stream_stream,
        }
        path = f"/tape.v1.Tape/{method.name}"
        call = shapes[method.client_streaming, method.server_streaming](path)
        for garbage in (b"\xff" * 40, b"\x0a\x03\xff\xfe\xfd", b"\x0a\x7f"):
            if parses(method, garbage):
                continue

            async def one(data: bytes = garbage) -> Any:
                yield data

            made = call(one() if method.client_streaming else garbage)
            if method.server_streaming:
                with pytest.raises(grpc.aio.AioRpcError, match="not a message"):
                    await made.read()
            assert await made.code() == grpc.StatusCode.INVALID_ARGUMENT


@ON_SQLITE
async def test_a_fault_of_ours_is_logged_and_says_nothing(
    shared_rpc: Any, monkeypatch: Any, caplog: Any
) -> None:
    async def broken(*_: object) -> None:
        raise ZeroDivisionError("the password is hunter2")

    monkeypatch.setattr("tape.bus.Bus.info", broken)
    with pytest.raises(grpc.aio.AioRpcError) as failed:
        await shared_rpc.GetJournalInfo(pb.GetJournalInfoRequest())
    assert failed.value.code() == grpc.StatusCode.INTERNAL
    assert "hunter2" not in str(failed.value)
    (record,) = [record for record in caplog.records if record.name == "tape.grpc"]
    assert record.exc_info is not None
    assert "hunter2" in str(record.exc_info[1])


@ON_SQLITE
async def test_a_message_over_the_limit(shared_rpc: Any) -> None:
    huge = pb.NewEvent(event_type="a", payload_json='"' + "x" * 40 * 1024 * 1024 + '"')
    with pytest.raises(grpc.aio.AioRpcError) as failed:
        await shared_rpc.RecordEvents(pb.RecordEventsRequest(events=[huge]))
    assert failed.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
