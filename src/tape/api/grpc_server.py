"""The gRPC door: `tape.v1.Tape` over any operations, with health and reflection.

Closing refuses new calls, sends stream readers away with UNAVAILABLE so that they come back to
whoever serves next, lets every write that was taken be answered, and only then cuts what is left.
"""

import grpc
from google.protobuf.descriptor import ServiceDescriptor
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from tape.api.auth import Role, Tokens, check_exposure
from tape.api.calls import Calls
from tape.api.claim_calls import ClaimCalls
from tape.api.handlers import Handlers, OpenCalls, RoleCheck, StreamOut, Unary
from tape.api.ledger_calls import LedgerCalls
from tape.api.listening import Tls, split_address
from tape.api.outbox_calls import OutboxCalls
from tape.api.reaction_calls import ReactionCalls
from tape.api.record_stream import RecordStream
from tape.api.run_calls import RunCalls
from tape.api.run_look_calls import RunLookCalls
from tape.api.run_write_calls import RunWriteCalls
from tape.api.streams import Streams
from tape.api.timer_calls import TimerCalls
from tape.bus import Operations
from tape.config import Limits
from tape.errors import InvalidArgument
from tape.wire.channel import SERVER_OPTIONS, message_bytes
from tape.wire.v1 import tape_pb2 as pb

SERVICE: ServiceDescriptor = pb.DESCRIPTOR.services_by_name["Tape"]
DRAIN_S = 30.0
LINGER_S = 0.5

# Whoever may not write may still look; a method that is not named here is a look.
WRITING = frozenset(
    {
        "RecordEvents",
        "RecordEventStream",
        "WriteValue",
        "DeleteValue",
        "CreateSession",
        "DeleteSession",
        "AppendEvent",
        "RegisterReaction",
        "DeregisterReaction",
        "ClaimTasks",
        "CompleteTask",
        "NackTask",
        "SettleTasks",
        "ReplayDeadLetters",
        "BeginRun",
        "ResumeRun",
        "HeartbeatRun",
        "ReleaseRun",
        "EndRun",
        "CancelRun",
        "ExtendRun",
        "RecordDecision",
        "BeginEffect",
        "CompleteEffect",
        "ClaimEffectDispatch",
        "RenewEffectClaim",
        "RecordDispatchAttempt",
        "RecordExternalObservation",
        "ReconcileEffect",
        "RegisterCompensation",
        "ClaimObligation",
        "RenewObligationClaim",
        "RecordObligationAttempt",
        "ResolveObligation",
        "SetBudget",
        "ChargeBudget",
        "AwaitSignal",
        "SendSignal",
        "SetTimer",
        "CancelTimer",
        "ListDueTimers",  # fires them, if it is asked to
        "PutEventSubscription",
        "DeleteEventSubscription",
        "DrainEvents",
        "ResumeDrainer",
    }
)
# What cannot be taken back.
ADMINISTERING = frozenset({"DropDeadLetters", "SkipDrainerEvent", "SkipOutboxRow"})


def _role(name: str) -> Role:
    if name in ADMINISTERING:
        return Role.ADMIN
    return Role.WRITE if name in WRITING else Role.READ


def _on_runs(operations: Operations, limits: Limits) -> dict[str, Unary]:
    """The calls on runs, on the ledger that makes some, and on the outbox."""
    methods: dict[str, Unary] = {}
    on_runs = (RunCalls, RunWriteCalls, ClaimCalls, RunLookCalls, TimerCalls)
    for calls in (*on_runs, LedgerCalls, OutboxCalls):
        methods |= calls(operations, limits).methods()
    return methods


ROLES = {f"/{SERVICE.full_name}/{method.name}": _role(method.name) for method in SERVICE.methods}


class GrpcServer:
    """Make it on the event loop it will serve on."""

    def __init__(self, operations: Operations, limits: Limits, tokens: Tokens) -> None:
        self._tokens = tokens
        self._open = OpenCalls()
        self._streams = Streams(operations)
        self._recording = RecordStream(operations, limits.request_bytes)
        self._reactions = ReactionCalls(operations, limits.request_bytes)
        self._health = health.aio.HealthServicer()
        open_to_all = frozenset({f"/{health.SERVICE_NAME}"})
        self._server = grpc.aio.server(
            interceptors=[RoleCheck(tokens, ROLES, open_to_all)],
            options=[*SERVER_OPTIONS, *message_bytes(limits)],
        )
        self._add_tape(Calls(operations, limits.request_bytes), _on_runs(operations, limits))
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        reflection.enable_server_reflection(
            (SERVICE.full_name, health.SERVICE_NAME, reflection.SERVICE_NAME), self._server
        )

    async def start(self, address: str, *, tls: Tls | None = None, insecure: bool = False) -> str:
        """Listen, and the address with the real port."""
        host, port = split_address(address, field="grpc")
        check_exposure(host, tokens=bool(self._tokens), tls=tls is not None, insecure=insecure)
        try:
            if tls is None:
                bound = self._server.add_insecure_port(f"{host}:{port}")
            else:
                bound = self._server.add_secure_port(f"{host}:{port}", _credentials(tls))
        except RuntimeError:
            raise InvalidArgument(f"cannot listen on {address}", field="grpc") from None
        await self._server.start()
        for name in ("", SERVICE.full_name):
            await self._health.set(name, health_pb2.HealthCheckResponse.SERVING)
        return f"{host}:{bound}"

    async def stop(self) -> None:
        await self._health.enter_graceful_shutdown()
        self._streams.end()
        self._recording.end()
        self._reactions.end()
        await self._open.drain(DRAIN_S)
        await self._server.stop(LINGER_S)  # only watchers of health and reflection can be left

    def _add_tape(self, calls: Calls, on_runs: dict[str, Unary]) -> None:
        streams, reactions = self._streams, self._reactions
        methods = SERVICE.methods_by_name
        make = Handlers(self._open)
        unary: dict[str, Unary] = {
            "RecordEvents": calls.record_events,
            "WriteValue": calls.write_value,
            "GetValue": calls.get_value,
            "DeleteValue": calls.delete_value,
            "ListValues": calls.list_values,
            "CreateSession": calls.create_session,
            "GetSession": calls.get_session,
            "ListSessions": calls.list_sessions,
            "DeleteSession": calls.delete_session,
            "AppendEvent": calls.append_event,
            "GetJournalInfo": calls.get_journal_info,
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
            **on_runs,
        }
        outgoing: dict[str, StreamOut] = {
            "FollowEntries": streams.follow_entries,
            "SubscribeBySubject": streams.subscribe_by_subject,
            "SubscribeEvents": streams.subscribe_events,
            "SubscribeRun": streams.subscribe_run,
            "WatchValue": streams.watch_value,
        }
        handlers = {name: make.unary(methods[name], answer) for name, answer in unary.items()}
        handlers |= {name: make.stream_out(methods[name], f) for name, f in outgoing.items()}
        both = self._recording.record_event_stream
        handlers["RecordEventStream"] = make.stream_both(methods["RecordEventStream"], both)
        self._server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(SERVICE.full_name, handlers),)
        )


def _credentials(tls: Tls) -> grpc.ServerCredentials:
    try:
        pair = (tls.key.read_bytes(), tls.certificate.read_bytes())
    except OSError as error:
        raise InvalidArgument(f"cannot be read: {error}", field="tls") from None
    return grpc.ssl_server_credentials([pair])
