"""Every call that writes for a run is fenced: by the run's lease, or by a claim.

Each is sent with the token of a lease or claim that another has taken over, and with none: it is
refused and nothing is written. Then it is sent with the living token, so that it was refused for
nothing else.
"""

from collections.abc import Iterator
from typing import Any, cast

import grpc
import pytest
from google.protobuf.descriptor import Descriptor

from tape.api.auth import Role
from tape.api.rpcs import SERVICE, Rpcs
from tape.api.stream_slots import StreamSlots
from tape.bus import Operations
from tape.config import Limits
from tape.wire.errors import from_rpc_error
from tape.wire.v1 import tape_pb2 as pb
from tests.integration.grpc.fenced import FENCED, LIVING, SESSION, STALE, run_in_second_hands

# Who makes one of these has no lease yet, comes from outside, or writes for no run.
TAKING = {"ResumeRun", "ClaimEffectDispatch", "ClaimObligation"}
OUTSIDE = {"SendSignal", "CancelRun", "ListDueTimers"}
NO_RUN = {
    "CreateSession", "DeleteSession", "RegisterReaction", "DeregisterReaction", "ClaimTasks",
    "CompleteTask", "NackTask", "SettleTasks", "ReplayDeadLetters", "DropDeadLetters",
    "PutEventSubscription", "DeleteEventSubscription", "DrainEvents", "ResumeDrainer",
    "SkipDrainerEvent", "SkipOutboxRow",
}  # fmt: skip


def test_every_call_that_writes_is_fenced_or_said_not_to_be() -> None:
    groups = [TAKING, OUTSIDE, NO_RUN, set(FENCED)]
    assert sum(map(len, groups)) == len(set.union(*groups))
    roles = Rpcs(cast("Operations", None), Limits(), StreamSlots()).roles()
    changing = {path.rpartition("/")[2] for path, role in roles.items() if role > Role.READ}
    assert set.union(*groups) == changing


def test_every_request_with_room_for_a_token_is_here() -> None:
    carrying = {method.name for method in SERVICE.methods if any(tokens_in(method.input_type))}
    assert carrying == set(FENCED)


def tokens_in(message: Descriptor, seen: tuple[str, ...] = ()) -> Iterator[str]:
    for field in message.fields:
        if field.name.endswith("fencing_token"):
            yield field.full_name
        elif field.message_type is not None and field.message_type.full_name not in seen:
            yield from tokens_in(field.message_type, (*seen, message.full_name))


async def all_there_is(rpc: Any, run_id: str) -> list[Any]:
    return [
        (await rpc.GetJournalInfo(pb.GetJournalInfoRequest())).head_global_seq,
        await rpc.ListRuns(pb.ListRunsRequest()),
        await rpc.GetEffect(pb.GetEffectRequest(run_id=run_id, idempotency_key="inline")),
        await rpc.GetEffect(pb.GetEffectRequest(run_id=run_id, idempotency_key="outbox")),
        await rpc.ListObligations(pb.ListObligationsRequest(run_id=run_id)),
        await rpc.ListTimers(pb.ListTimersRequest(run_id=run_id)),
        await rpc.AdmitBudget(pb.AdmitBudgetRequest(run_id=run_id)),
        await rpc.GetValue(pb.GetValueRequest(namespace="n", key="k")),
        await rpc.GetSession(pb.GetSessionRequest(**SESSION)),
    ]


async def answered(rpc: Any, name: str, request: Any) -> Any:
    if SERVICE.methods_by_name[name].client_streaming:
        call = getattr(rpc, name)(iter([request]))
        return [answer async for answer in call]
    return await getattr(rpc, name)(request)


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("name", FENCED)
async def test_a_token_that_is_not_the_newest(shared_rpc: Any, name: str) -> None:
    rpc, run_id = shared_rpc, await run_in_second_hands(shared_rpc)
    before = await all_there_is(rpc, run_id)
    for token in (STALE, 0, LIVING + 1, -1):
        with pytest.raises(grpc.aio.AioRpcError) as failed:
            await answered(rpc, name, FENCED[name](run_id, token))
        assert failed.value.code() == grpc.StatusCode.FAILED_PRECONDITION
        assert from_rpc_error(failed.value).reason == "STALE_LEASE"
    assert await all_there_is(rpc, run_id) == before
    await answered(rpc, name, FENCED[name](run_id, LIVING))
    assert await all_there_is(rpc, run_id) != before
