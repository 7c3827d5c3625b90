"""The operations every door calls, by noun.

`Operations` is the one API of Tape: `Bus` does it in this process on a store, `tape.client` does it
over gRPC. A refused operation raises the same error either way. Values, sessions, reactions and the
outbox are here; runs, tasks and the ledger have rooms of their own.
"""

from tape.bus.bus import Bus
from tape.bus.operations import FollowQuery, Operations

__all__ = ["Bus", "FollowQuery", "Operations"]
