"""More calls at once than the server's event loop has taken: they wait, and none is cancelled."""

import asyncio
import time
from collections import Counter

import grpc

from tape.wire.v1 import tape_pb2 as pb
from tape.wire.v1.tape_pb2_grpc import TapeStub
from tests.integration.grpc.conftest import Serving

CLIENTS = 5
CALLS = 600
HELD_UP_S = 0.5
OWN = [("grpc.use_local_subchannel_pool", 1)]


async def test_calls_wait_while_the_loop_is_held_up(serving: Serving, sqlite_url: str) -> None:
    """gRPC's own default is to cancel calls at random from the thousandth on."""
    server = await serving(sqlite_url)
    channels = [grpc.insecure_channel(server.address, options=OWN) for _ in range(CLIENTS)]
    stubs = [TapeStub(channel) for channel in channels]
    ask = pb.GetJournalInfoRequest()
    for stub in stubs:
        await asyncio.to_thread(stub.GetJournalInfo, ask)
    calls = [stub.GetJournalInfo.future(ask) for _ in range(CALLS) for stub in stubs]
    time.sleep(HELD_UP_S)  # noqa: ASYNC251 - the loop that is held up is the server's, too
    codes = await asyncio.to_thread(lambda: Counter(call.code().name for call in calls))
    for channel in channels:
        channel.close()
    assert codes == {"OK": CLIENTS * CALLS}
