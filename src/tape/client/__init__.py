"""The operations of the bus over gRPC, and the client's face, asynchronous and blocking."""

from tape.client.blocking import BlockingStream, TapeClient
from tape.client.build import event
from tape.client.connecting import Connecting
from tape.client.face import AsyncTapeClient
from tape.client.stream import Stream

__all__ = ["AsyncTapeClient", "BlockingStream", "Connecting", "Stream", "TapeClient", "event"]
