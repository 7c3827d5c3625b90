"""The store contract over SQLite and Postgres."""

from tape.testing.conformance import (
    CommitContract,
    DeadLettersContract,
    JournalContract,
    KeysContract,
    MatchingContract,
    OrderContract,
    ReactionsContract,
    RunsContract,
    SequencesContract,
    SessionsContract,
    TasksContract,
    TaskSequencesContract,
    ValuesContract,
)


class TestCommit(CommitContract):
    pass


class TestDeadLetters(DeadLettersContract):
    pass


class TestJournal(JournalContract):
    pass


class TestKeys(KeysContract):
    pass


class TestMatching(MatchingContract):
    pass


class TestOrder(OrderContract):
    pass


class TestReactions(ReactionsContract):
    pass


class TestRuns(RunsContract):
    pass


class TestSequences(SequencesContract):
    pass


class TestSessions(SessionsContract):
    pass


class TestTaskSequences(TaskSequencesContract):
    pass


class TestTasks(TasksContract):
    pass


class TestValues(ValuesContract):
    pass
