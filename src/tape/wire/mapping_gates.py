"""Gates, where more than names is mapped."""

from tape.model.gate import AwaitSignal, Gate, Signalled
from tape.wire.records import SIGNALLED
from tape.wire.v1 import tape_pb2 as pb


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


def signalled_to_wire(signalled: Signalled) -> pb.SendSignalResponse:
    run = signalled.run
    return SIGNALLED.to_wire(signalled, run_id=run.run_id, run_status=run.status)
