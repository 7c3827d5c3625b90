"""Gates and the words for them."""

from tape.model.gate import AwaitSignal, Gate, SendSignal, Signalled
from tape.wire.mapping_runs import run_from_wire, run_to_wire
from tape.wire.v1 import tape_pb2 as pb


def await_to_wire(write: AwaitSignal) -> pb.AwaitSignalRequest:
    return pb.AwaitSignalRequest(**write._asdict())


def await_from_wire(request: pb.AwaitSignalRequest) -> AwaitSignal:
    return AwaitSignal(request.gate_name, request.payload_json)


def awaited_to_wire(gate: Gate) -> pb.AwaitSignalResponse:
    return pb.AwaitSignalResponse(
        delivered=gate.released,
        resolution_json=gate.resolution_json,
        payload_json=gate.payload_json,
    )


def awaited_from_wire(message: pb.AwaitSignalResponse, run_id: str, write: AwaitSignal) -> Gate:
    return Gate(
        run_id,
        write.gate_name,
        True,
        message.delivered,
        message.payload_json,
        message.resolution_json,
    )


def signal_to_wire(run_id: str, write: SendSignal) -> pb.SendSignalRequest:
    return pb.SendSignalRequest(run_id=run_id, **write._asdict())


def signal_from_wire(request: pb.SendSignalRequest) -> SendSignal:
    return SendSignal(request.gate_name, request.resolution_json)


def signalled_to_wire(signalled: Signalled) -> pb.SendSignalResponse:
    run = run_to_wire(signalled.run)
    return pb.SendSignalResponse(
        accepted=signalled.accepted, run_id=run.run_id, run_status=run.status, run=run
    )


def signalled_from_wire(message: pb.SendSignalResponse) -> Signalled:
    return Signalled(message.accepted, run_from_wire(message.run))
