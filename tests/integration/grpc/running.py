"""Runs for tests of the calls: begun, with something written down, and taken over."""

from typing import Any

import grpc
import pytest

from tape.wire.errors import from_rpc_error
from tape.wire.v1 import tape_pb2 as pb


async def begun(rpc: Any, owner: str = "me", **fields: Any) -> Any:
    request = {"app_name": "app", "user_id": "u", "session_id": "s", "invocation_id": "i"} | fields
    return await rpc.BeginRun(pb.BeginRunRequest(lease_owner=owner, **request))


async def refused(call: Any) -> tuple[str, str]:
    """The code and the reason of a call that must fail."""
    with pytest.raises(grpc.aio.AioRpcError) as failed:
        await call
    return failed.value.code().name, from_rpc_error(failed.value).reason


async def fault(call: Any) -> str:
    """The field of a call that must be refused for its form."""
    with pytest.raises(grpc.aio.AioRpcError) as failed:
        await call
    assert failed.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    field: str = getattr(from_rpc_error(failed.value), "field", "")
    return field


async def entries(rpc: Any, run_id: str) -> list[Any]:
    return list((await rpc.ReadRunEntries(pb.ReadRunEntriesRequest(run_id=run_id))).entries)


async def subjects(rpc: Any, run_id: str) -> list[str]:
    """Kind and verb of each entry of a run."""
    return ["/".join(e.subject.split("/")[2:4]) for e in await entries(rpc, run_id)]


async def taken_over(rpc: Any, run_id: str, owner: str = "other") -> Any:
    """The run in another's hands, once the lease on it has run out."""
    while True:
        try:
            return await rpc.ResumeRun(pb.ResumeRunRequest(run_id=run_id, lease_owner=owner))
        except grpc.aio.AioRpcError as failed:
            if from_rpc_error(failed).reason != "LEASE_HELD":
                raise


async def claimed_effect(rpc: Any, run_id: str, key: str, **fields: Any) -> Any:
    """A claim on an effect, once nobody else's lives."""
    request = pb.ClaimEffectDispatchRequest(
        run_id=run_id, idempotency_key=key, **({"claimer": "c"} | fields)
    )
    while not (answer := await rpc.ClaimEffectDispatch(request)).acquired:
        pass
    return answer


async def claimed_obligation(rpc: Any, run_id: str, seq: int, **fields: Any) -> Any:
    request = pb.ClaimObligationRequest(
        run_id=run_id, obligation_seq=seq, **({"claimer": "c"} | fields)
    )
    while not (answer := await rpc.ClaimObligation(request)).acquired:
        pass
    return answer
