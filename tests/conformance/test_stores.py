"""The store contract over SQLite and Postgres."""

from tests.conformance.contracts import (
    AcceptingContract,
    BudgetsContract,
    CommitContract,
    DeadLettersContract,
    EffectsContract,
    GatesContract,
    JournalContract,
    KeysContract,
    LeasesContract,
    LedgerContract,
    MatchingContract,
    ObligationsContract,
    OnceContract,
    OrderContract,
    OutboxContract,
    QueuedTasksContract,
    ReactionsContract,
    RecentContract,
    RetentionContract,
    RunsContract,
    RunSequencesContract,
    SequencesContract,
    SessionsContract,
    ShardsContract,
    SubscriptionsContract,
    TasksContract,
    TaskSequencesContract,
    TimersContract,
    ValuesContract,
    WalletContract,
)


class TestAccepting(AcceptingContract):
    pass


class TestBudgets(BudgetsContract):
    pass


class TestCommit(CommitContract):
    pass


class TestDeadLetters(DeadLettersContract):
    pass


class TestEffects(EffectsContract):
    pass


class TestGates(GatesContract):
    pass


class TestJournal(JournalContract):
    pass


class TestKeys(KeysContract):
    pass


class TestLeases(LeasesContract):
    pass


class TestLedger(LedgerContract):
    pass


class TestMatching(MatchingContract):
    pass


class TestObligations(ObligationsContract):
    pass


class TestOnce(OnceContract):
    pass


class TestOrder(OrderContract):
    pass


class TestOutbox(OutboxContract):
    pass


class TestQueuedTasks(QueuedTasksContract):
    pass


class TestReactions(ReactionsContract):
    pass


class TestRecent(RecentContract):
    pass


class TestRetention(RetentionContract):
    pass


class TestRunSequences(RunSequencesContract):
    pass


class TestRuns(RunsContract):
    pass


class TestSequences(SequencesContract):
    pass


class TestSessions(SessionsContract):
    pass


class TestSubscriptions(SubscriptionsContract):
    pass


class TestTaskSequences(TaskSequencesContract):
    pass


class TestShards(ShardsContract):
    pass


class TestTasks(TasksContract):
    pass


class TestTimers(TimersContract):
    pass


class TestValues(ValuesContract):
    pass


class TestWallet(WalletContract):
    pass
