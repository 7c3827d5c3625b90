"""Every RPC of `tape.v1.Tape` with the function that answers it; the function has its role."""

from collections.abc import Callable, Mapping
from typing import Any

from google.protobuf.descriptor import ServiceDescriptor

from tape.api.auth import Role, role_of
from tape.api.calls import Calls
from tape.api.claim_calls import ClaimCalls
from tape.api.handlers import Handlers, StreamBoth, StreamOut, Unary
from tape.api.ledger_calls import LedgerCalls
from tape.api.outbox_calls import OutboxCalls
from tape.api.reaction_calls import ReactionCalls
from tape.api.record_stream import RecordStream
from tape.api.run_calls import RunCalls
from tape.api.run_look_calls import RunLookCalls
from tape.api.run_write_calls import RunWriteCalls
from tape.api.stream_slots import StreamSlots
from tape.api.streams import Streams
from tape.api.timer_calls import TimerCalls
from tape.bus import Operations
from tape.config import Limits
from tape.wire.v1 import tape_pb2 as pb

SERVICE: ServiceDescriptor = pb.DESCRIPTOR.services_by_name["Tape"]


class Rpcs:
    def __init__(
        self,
        operations: Operations,
        limits: Limits,
        slots: StreamSlots,
        *,
        exposed: bool = False,
    ) -> None:
        self.streams = Streams(operations, slots.settings.stream_bytes, slots.turnstile)
        self.recording = RecordStream(operations, limits.request_bytes)
        self.reactions = ReactionCalls(operations, limits.request_bytes)
        self._unary = _on_values_and_sessions(Calls(operations, limits, exposed=exposed))
        self._unary |= _on_reactions(self.reactions)
        on_runs = (RunCalls, RunWriteCalls, ClaimCalls, RunLookCalls, TimerCalls)
        for calls in (*on_runs, OutboxCalls):
            self._unary |= calls(operations, limits).methods()
        self.ledger = LedgerCalls(operations, limits)
        self._unary |= self.ledger.methods()
        self._out: dict[str, StreamOut] = {
            "FollowEntries": self.streams.follow_entries,
            "SubscribeBySubject": self.streams.subscribe_by_subject,
            "SubscribeEvents": self.streams.subscribe_events,
            "SubscribeRun": self.streams.subscribe_run,
            "WatchValue": self.streams.watch_value,
        }
        self._both: dict[str, StreamBoth] = {
            "RecordEventStream": self.recording.record_event_stream
        }

    def roles(self) -> dict[str, Role]:
        """By path. A method whose function has none is not among them, and is refused."""
        answers: Mapping[str, Callable[..., Any]] = {**self._unary, **self._out, **self._both}
        found = {name: role_of(answer) for name, answer in answers.items()}
        return {
            f"/{SERVICE.full_name}/{name}": role for name, role in found.items() if role is not None
        }

    def handlers(self, make: Handlers) -> dict[str, Any]:
        methods = SERVICE.methods_by_name
        return {
            **{name: make.unary(methods[name], answer) for name, answer in self._unary.items()},
            **{name: make.stream_out(methods[name], answer) for name, answer in self._out.items()},
            **{name: make.stream_both(methods[name], f) for name, f in self._both.items()},
        }


def _on_values_and_sessions(calls: Calls) -> dict[str, Unary]:
    return {
        "RecordEvents": calls.record_events,
        "WriteValue": calls.write_value,
        "GetValue": calls.get_value,
        "DeleteValue": calls.delete_value,
        "ListValues": calls.list_values,
        "ListNamespaces": calls.list_namespaces,
        "CreateSession": calls.create_session,
        "GetSession": calls.get_session,
        "ListSessions": calls.list_sessions,
        "ListSessionApps": calls.list_session_apps,
        "DeleteSession": calls.delete_session,
        "AppendEvent": calls.append_event,
        "GetJournalInfo": calls.get_journal_info,
    }


def _on_reactions(reactions: ReactionCalls) -> dict[str, Unary]:
    return {
        "RegisterReaction": reactions.register_reaction,
        "DeregisterReaction": reactions.deregister_reaction,
        "ListReactions": reactions.list_reactions,
        "ClaimTasks": reactions.claim_tasks,
        "ListenForTasks": reactions.listen_for_tasks,
        "CompleteTask": reactions.complete_task,
        "NackTask": reactions.nack_task,
        "SettleTasks": reactions.settle_tasks,
        "ListTasks": reactions.list_tasks,
        "ReplayDeadLetters": reactions.replay_dead_letters,
        "DropDeadLetters": reactions.drop_dead_letters,
    }
