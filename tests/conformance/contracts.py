"""The contract of `ports.store`, as tests: a store that passes them can carry a journal.

A suite for a store subclasses each contract and provides one fixture, `open_store`, that opens
another store object on the test's own, initially empty database each time it is called (that of the
outbox has fixtures of its own, named in its module):

    class TestJournal(JournalContract): ...

Two stores opened on one database stand for two processes.
"""

from tests.conformance.accepting import AcceptingContract
from tests.conformance.budgets import BudgetsContract
from tests.conformance.commit import CommitContract
from tests.conformance.dead_letters import DeadLettersContract
from tests.conformance.effects import EffectsContract
from tests.conformance.gates import GatesContract
from tests.conformance.journal import JournalContract
from tests.conformance.keys import KeysContract
from tests.conformance.leases import LeasesContract
from tests.conformance.ledger import LedgerContract
from tests.conformance.matching import MatchingContract
from tests.conformance.obligations import ObligationsContract
from tests.conformance.once import OnceContract
from tests.conformance.order import OrderContract
from tests.conformance.outbox import OutboxContract
from tests.conformance.playing import OpenStore
from tests.conformance.queued_tasks import QueuedTasksContract
from tests.conformance.reactions import ReactionsContract
from tests.conformance.recent import RecentContract
from tests.conformance.retention import RetentionContract
from tests.conformance.run_sequences import RunSequencesContract
from tests.conformance.runs import RunsContract
from tests.conformance.sequences import SequencesContract
from tests.conformance.sessions import SessionsContract
from tests.conformance.shards import ShardsContract
from tests.conformance.subscriptions import SubscriptionsContract
from tests.conformance.task_sequences import TaskSequencesContract
from tests.conformance.tasks import TasksContract
from tests.conformance.timers import TimersContract
from tests.conformance.values import ValuesContract
from tests.conformance.wallet import WalletContract

__all__ = [
    "AcceptingContract",
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
    "OnceContract",
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
    "SubscriptionsContract",
    "TaskSequencesContract",
    "TasksContract",
    "TimersContract",
    "ValuesContract",
    "WalletContract",
]
