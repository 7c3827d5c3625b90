"""The table: every RPC of `tape.v1.Tape`, by name."""

from typing import Any, Final

from tape.calls.call import Call, Noun, Rpc
from tape.calls.journal import JOURNAL
from tape.calls.ledger import LEDGER
from tape.calls.outbox import OUTBOX
from tape.calls.reactions import REACTIONS
from tape.calls.role import Role
from tape.calls.runs import RUNS
from tape.calls.sessions import SESSIONS
from tape.calls.subscriptions import SUBSCRIPTIONS
from tape.calls.tasks import TASKS
from tape.calls.values import VALUES
from tape.calls.wallet import WALLET

NOUNS: Final[tuple[Noun[Any], ...]] = (
    JOURNAL, VALUES, SESSIONS, REACTIONS, TASKS, RUNS, LEDGER, OUTBOX, WALLET, SUBSCRIPTIONS,
)  # fmt: skip


ROWS: Final[dict[str, tuple[Noun[Any], Rpc[Any]]]] = {
    row.name: (noun, row) for noun in NOUNS for row in reversed(noun.rows)
}
"""By RPC: its noun, and the row that answers it, the first where two share it."""
ROLES: Final[dict[str, Role]] = {name: row.role for name, (_noun, row) in ROWS.items()}
SECRET_CALLS: Final = frozenset(
    name for name, (_noun, row) in ROWS.items() if isinstance(row, Call) and row.has_secret
)
"""Those whose requests hold a secret in the clear."""
