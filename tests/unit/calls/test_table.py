"""The table of calls is complete, and what its rows say fits together."""

from collections import defaultdict
from typing import Any, Protocol, cast

import pytest

from tape.api.grpc.rpcs import Rpcs
from tape.api.stream_slots import StreamSlots
from tape.bus.operations import Operations
from tape.bus.outbox import OutboxOperations
from tape.bus.reactions import ReactionOperations
from tape.bus.sessions import SessionOperations
from tape.bus.values import ValueOperations
from tape.calls.call import SERVICE, Call, Fence, Repeat, Rpc
from tape.calls.parameters import Parameters
from tape.calls.replies import Field, Listed
from tape.calls.role import Role
from tape.calls.run_changes import Change
from tape.calls.run_writes import DRIVER_WRITES
from tape.calls.table import NOUNS, ROWS
from tape.client.grpc_bus import GrpcBus
from tape.ledger.operations import LedgerOperations
from tape.reactions.tasks import TaskOperations
from tape.runs.operations import RunOperations
from tape.settings import Limits, Settings
from tape.subscriptions.operations import SubscriptionOperations
from tape.wallet.operations import WalletOperations
from tape.wire.codec import Empty
from tape.wire.records import VALUE
from tape.wire.v1 import tape_pb2 as pb

METHODS = {method.name: method for method in SERVICE.methods}
PROTOCOLS: dict[str, type] = {
    "values": ValueOperations,
    "sessions": SessionOperations,
    "reactions": ReactionOperations,
    "tasks": TaskOperations,
    "runs": RunOperations,
    "ledger": LedgerOperations,
    "outbox": OutboxOperations,
    "wallet": WalletOperations,
    "subscriptions": SubscriptionOperations,
}
LOOKING = {"list_due_timers", "list_credentials", "get_sealed_credential"}
"""Those that change nothing, and need more than the role read."""


def test_every_rpc_has_a_row_and_every_row_an_rpc() -> None:
    assert ROWS.keys() == METHODS.keys()


class _Made:
    """Stands for what makes gRPC handlers."""

    def unary(self, method: Any, _answer: object, _role: Role) -> str:
        return f"unary {method.name}"

    def stream_out(self, method: Any, _answer: object) -> str:
        return f"out {method.name}"

    def stream_both(self, method: Any, _answer: object) -> str:
        return f"both {method.name}"


async def test_the_server_answers_every_rpc_in_its_shape() -> None:
    rpcs = Rpcs(cast("Operations", None), Limits(), StreamSlots())
    handlers = rpcs.handlers(cast("Any", _Made()))
    assert handlers.keys() == METHODS.keys()
    for name, method in METHODS.items():
        shape = "out" if method.server_streaming else "unary"
        assert handlers[name] == f"{'both' if method.client_streaming else shape} {name}"


def test_rows_that_share_an_rpc_agree() -> None:
    sharing: dict[str, list[Rpc[Any]]] = defaultdict(list)
    for noun in NOUNS:
        for row in noun.rows:
            sharing[row.name].append(row)
    for name, rows in sharing.items():
        assert len({(row.role, row.fence) for row in rows}) == 1, name
        assert ROWS[name][1] is rows[0]
    assert {name for name, rows in sharing.items() if len(rows) > 1} == {
        "ClaimTasks", "ListTasks", "ListDueTimers",
    }  # fmt: skip


def test_what_only_looks_may_be_repeated_and_what_writes_says_when() -> None:
    for noun in NOUNS:
        for row in noun.rows:
            if isinstance(row, Call):
                looks = row.role is Role.READ or row.method in LOOKING
                assert (row.repeat is Repeat.FREELY) == looks, row.name
                assert row.repeat_if is None or row.repeat is Repeat.NEVER, row.name
            elif isinstance(row, Change):
                assert row.repeat is Repeat.ALWAYS


def test_a_write_of_a_driver_is_part_of_an_extension_under_its_name() -> None:
    assert [row.field for row in DRIVER_WRITES] == [
        field.name for field in pb.RunWrite.DESCRIPTOR.fields
    ]
    for row in DRIVER_WRITES:
        assert row.fence is Fence.TOKEN
        assert row.kind.__name__ == row.name


def members(protocol: type) -> set[str]:
    return {name for name in vars(protocol) if not name.startswith("_")}


class _Server:
    rpc = None


@pytest.mark.parametrize("noun", PROTOCOLS)
def test_every_operation_can_be_done_at_a_server(noun: str) -> None:
    bus = GrpcBus(cast("Any", _Server()), Settings(), pb.GetJournalInfoResponse())
    assert vars(getattr(bus, noun)).keys() == members(PROTOCOLS[noun])


def test_every_noun_of_the_bus_is_looked_at_here() -> None:
    bus = GrpcBus(cast("Any", _Server()), Settings(), pb.GetJournalInfoResponse())
    assert members(Operations) <= set(dir(bus))
    assert {name for name in vars(bus) if not name.startswith("_")} == PROTOCOLS.keys()


class Counted(Protocol):
    async def count(self, namespace: str, key: str = "k", *, limit: int = 3) -> int: ...


def test_parameters_are_fields_by_name_with_their_defaults() -> None:
    parameters = Parameters(
        Counted.count,
        pb.ListValuesRequest,
        renamed={"key": "after_key"},
        held={"limit": Empty(7)},
        sent={},
    )
    request = parameters.to_wire("n")
    assert request == pb.ListValuesRequest(namespace="n", after_key="k", limit=3)
    assert parameters.to_wire("n", "k", limit=3) == request
    assert parameters.to_wire(key="k", namespace="n") == request
    assert parameters.from_wire(pb.ListValuesRequest()) == (["", ""], {"limit": 7})
    for args in ((), ("n", "k", 3)):
        with pytest.raises(TypeError):
            parameters.to_wire(*args)


def test_a_row_that_does_not_fit_its_messages_is_refused_when_it_is_declared() -> None:
    with pytest.raises(TypeError, match="GetValueRequest has no field limit"):
        Call("GetValue", Role.READ, Counted.count, Field("found", int))
    with pytest.raises(TypeError, match="count has no parameter size"):
        Call(
            "ListValues",
            Role.READ,
            Counted.count,
            Field("values", int),
            renamed={"size": "limit"},
        )
    with pytest.raises(TypeError, match="GetValue is answered with GetValueResponse, not ValueR"):
        Call("GetValue", Role.READ, ValueOperations.write_value, VALUE)
    with pytest.raises(TypeError, match="ListRunsResponse has no field values"):
        Call("ListRuns", Role.READ, ValueOperations.list_values, Listed("values", VALUE))
    with pytest.raises(KeyError):
        Rpc("Unheard", Role.READ)
