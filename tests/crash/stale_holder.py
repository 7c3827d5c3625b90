"""Holds a run until it is continued, then tries all it once could: `python -m … URL FOLDER`.

The URL is a server's, or a store's: then it has a server of its own, in this very process, with
what that remembers of the run. What it is told goes into the book, a line for each call by name.
"""

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc

from tape.calls.call import SERVICE
from tape.programs.serve import Addresses, ServeOptions, serve
from tape.wire.errors import from_rpc_error
from tape.wire.v1 import tape_pb2 as pb
from tape.wire.v1.tape_pb2_grpc import TapeStub
from tests.crash.book import Book
from tests.integration.grpc.fenced import FENCED, LIVING, run_in_second_hands

TTL_MS = 500
ME = "holder"


async def hold_run(rpc: Any) -> str:
    """A run, an effect and an obligation, all with the token `LIVING`, for a moment."""
    run_id = await run_in_second_hands(rpc)
    mine: dict[str, Any] = {"run_id": run_id, "fencing_token": LIVING, "lease_ttl_ms": TTL_MS}
    await rpc.HeartbeatRun(pb.HeartbeatRunRequest(**mine))
    await rpc.RenewEffectClaim(pb.RenewEffectClaimRequest(**mine, idempotency_key="outbox"))
    await rpc.RenewObligationClaim(
        pb.RenewObligationClaimRequest(**mine, effect_key="k", kind="alone")
    )
    return run_id


async def tried(rpc: Any, name: str, run_id: str) -> str:
    """What the call of that name is told now."""
    request = FENCED[name](run_id, LIVING)
    try:
        if SERVICE.methods_by_name[name].client_streaming:
            async for _answer in getattr(rpc, name)(iter([request])):
                pass
        else:
            await getattr(rpc, name)(request)
    except grpc.aio.AioRpcError as failed:
        return f"{failed.code().name} {from_rpc_error(failed).reason}"
    return "done"


@asynccontextmanager
async def reached(url: str) -> AsyncIterator[Any]:
    """The calls of the server at that URL, or of one of this process on that store."""
    async with asyncio.TaskGroup() as group:
        stop = asyncio.Event()
        address = url.removeprefix("tape://")
        if address == url:
            ready: asyncio.Future[Addresses] = asyncio.get_running_loop().create_future()
            options = ServeOptions(url, grpc_address="127.0.0.1:0")
            group.create_task(serve(options, on_ready=ready.set_result, stop=stop))
            address = (await ready).grpc
        async with grpc.aio.insecure_channel(address) as channel:
            yield TapeStub(channel)
        stop.set()


async def main(url: str, book: Book) -> None:
    continued = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGCONT, continued.set)
    async with reached(url) as rpc:
        run_id = await hold_run(rpc)
        book.note("held", run_id, ME)
        await continued.wait()
        for name in FENCED:
            book.note(await tried(rpc, name, run_id), name, ME)
    book.note("tried", "all", ME)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Book(Path(sys.argv[2]) / "book")))
