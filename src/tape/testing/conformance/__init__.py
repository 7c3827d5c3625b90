"""The contract of `ports.store`, as tests: a store that passes them can carry a journal.

A suite for a store subclasses each contract and provides one fixture, `open_store`, that opens
another store object on the test's own, initially empty database each time it is called (that of the
outbox has fixtures of its own, named in its module):

    class TestJournal(JournalContract): ...

Two stores opened on one database stand for two processes.
"""

from tape.testing.conformance.budgets import BudgetsContract
from tape.testing.conformance.commit import CommitContract
from tape.testing.conformance.dead_letters import DeadLettersContract
from tape.testing.conformance.effects import EffectsContract
from tape.testing.conformance.gates import GatesContract
from tape.testing.conformance.journal import JournalContract
from tape.testing.conformance.keys import KeysContract
from tape.testing.conformance.leases import LeasesContract
from tape.testing.conformance.ledger import LedgerContract
from tape.testing.conformance.matching import MatchingContract
from tape.testing.conformance.obligations import ObligationsContract
from tape.testing.conformance.order import OrderContract
from tape.testing.conformance.outbox import OutboxContract
from tape.testing.conformance.playing import OpenStore
from tape.testing.conformance.queued_tasks import QueuedTasksContract
from tape.testing.conformance.reactions import ReactionsContract
from tape.testing.conformance.recent import RecentContract
from tape.testing.conformance.retention import RetentionContract
from tape.testing.conformance.run_sequences import RunSequencesContract
from tape.testing.conformance.runs import RunsContract
from tape.testing.conformance.sequences import SequencesContract
from tape.testing.conformance.sessions import SessionsContract
from tape.testing.conformance.shards import ShardsContract
from tape.testing.conformance.task_sequences import TaskSequencesContract
from tape.testing.conformance.tasks import TasksContract
from tape.testing.conformance.timers import TimersContract
from tape.testing.conformance.values import ValuesContract

__all__ = [
    "BudgetsContract",
    "CommitContract",
    "DeadLettersContract",
    "EffectsContract",
    "GatesContract",
    "JournalContract",
    "KeysContract",
    "LeasesContract",
    "LedgerContract",
    "MatchingContract",
    "ObligationsContract",
    "OpenStore",
    "OrderContract",
    "OutboxContract",
    "QueuedTasksContract",
    "ReactionsContract",
    "RecentContract",
    "RetentionContract",
    "RunSequencesContract",
    "RunsContract",
    "SequencesContract",
    "SessionsContract",
    "ShardsContract",
    "TaskSequencesContract",
    "TasksContract",
    "TimersContract",
    "ValuesContract",
]
