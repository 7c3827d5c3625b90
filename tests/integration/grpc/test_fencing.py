"""Every call that writes for a run is fenced: by the run's lease, or by a claim.

Each is sent with the token of a lease or claim that another has taken over, and with none: it is
refused and nothing is written. Then it is sent with the living token, so that it was refused for
nothing else. Those of a listener, who holds a subscription, are in `test_listening.py`.
"""

from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor import Descriptor

from tape.calls.call import SERVICE, Fence
from tape.calls.role import Role
from tape.calls.table import ROWS
from tape.wire.errors import from_rpc_error
from tape.wire.v1 import tape_pb2 as pb
from tests.integration.grpc.fenced import FENCED, LIVING, SESSION, STALE, run_in_second_hands
from tests.integration.grpc.listening import LISTENING


def test_every_row_that_is_fenced_is_tried_here() -> None:
    fenced = {name for name, (_noun, row) in ROWS.items() if row.fence is Fence.TOKEN}
    assert fenced == FENCED.keys() | LISTENING.keys()


def test_whoever_only_looks_is_not_fenced() -> None:
    for name, (_noun, row) in ROWS.items():
        assert row.role > Role.READ or row.fence is Fence.NO_RUN, name


def test_what_is_not_fenced_writes_for_no_run_or_says_why_it_may() -> None:
    """Whoever names a run and carries no token takes a lease or a claim, or is from outside."""
    for name, (_noun, row) in ROWS.items():
        if row.role > Role.READ and row.fence is not Fence.TOKEN:
            names_run = "run_id" in SERVICE.methods_by_name[name].input_type.fields_by_name
            fires = name == "ListDueTimers"  # it writes for the runs of the timers that are due
            assert (row.fence is not Fence.NO_RUN) == (names_run or fires), name


def test_every_request_with_room_for_a_token_is_here() -> None:
    carrying = {method.name for method in SERVICE.methods if any(tokens_in(method.input_type))}
    assert carrying == FENCED.keys() | LISTENING.keys()


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
