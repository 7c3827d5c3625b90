"""Every RPC of `tape.v1.Tape` with what answers it: its row of the table of calls, or a function
here where an answer needs the server's own state.
"""

from collections.abc import Awaitable, Mapping
from typing import Any

from google.protobuf.message import Message

from tape.api.grpc.handlers import Handlers, StreamBoth, StreamOut, Unary
from tape.api.grpc.record_stream import RecordStream
from tape.api.grpc.streams import Streams
from tape.api.grpc.waiting_calls import WaitingCalls
from tape.api.stream_slots import StreamSlots
from tape.bus import Operations
from tape.calls.call import SERVICE, Noun, Rpc
from tape.calls.role import Role
from tape.calls.table import ROLES, ROWS
from tape.settings import VERSION, Limits
from tape.wire import mapping_entries
from tape.wire.v1 import tape_pb2 as pb


class Rpcs:
    def __init__(
        self,
        operations: Operations,
        limits: Limits,
        slots: StreamSlots,
        *,
        exposed: bool = False,
    ) -> None:
        self._operations = operations
        self._limits = limits
        self._exposed = exposed
        self.streams = Streams(operations, slots.settings.stream_bytes, slots.turnstile)
        self.recording = RecordStream(operations, limits.request_bytes)
        self.waiting = WaitingCalls(operations)
        self._unary: dict[str, Unary] = {
            name: self._answering(noun, row)
            for name, (noun, row) in ROWS.items()
            if row.is_answered
        }
        self._unary |= {"GetJournalInfo": self._get_journal_info, **self.waiting.methods()}
        self._out: Mapping[str, StreamOut] = self.streams.methods()
        self._both: Mapping[str, StreamBoth] = {
            "RecordEventStream": self.recording.record_event_stream
        }

    def roles(self) -> dict[str, Role]:
        """By path. A method without a row is not among them, and is refused."""
        return {f"/{SERVICE.full_name}/{name}": role for name, role in ROLES.items()}

    def handlers(self, make: Handlers) -> dict[str, Any]:
        methods = SERVICE.methods_by_name
        return {
            **{
                name: make.unary(methods[name], answer, ROLES[name])
                for name, answer in self._unary.items()
            },
            **{name: make.stream_out(methods[name], answer) for name, answer in self._out.items()},
            **{name: make.stream_both(methods[name], f) for name, f in self._both.items()},
        }

    def _answering(self, noun: Noun[Any], row: Rpc[Any]) -> Unary:
        def answer(request: Message) -> Awaitable[Message]:
            return row.answer(noun.of(self._operations), request, self._limits)

        return answer

    async def _get_journal_info(self, _request: pb.GetJournalInfoRequest) -> Message:
        info = await self._operations.info()
        return mapping_entries.info_to_wire(info, VERSION, self._limits, exposed=self._exposed)
