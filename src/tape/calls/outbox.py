"""The calls on the outbox."""

from typing import Final

from tape.bus.outbox import OutboxOperations
from tape.calls.call import Call, Noun
from tape.calls.role import Role
from tape.wire.records import OUTBOX_PLACE, OUTBOX_STATUS

OUTBOX: Final[Noun[OutboxOperations]] = Noun(
    lambda operations: operations.outbox,
    Call("GetOutboxStatus", Role.READ, OutboxOperations.outbox_status, OUTBOX_STATUS),
    Call("SkipOutboxRow", Role.ADMIN, OutboxOperations.skip_outbox_row, OUTBOX_PLACE),
)
