"""The store contract over SQLite and Postgres."""

from tape.testing.conformance import (
    CommitContract,
    JournalContract,
    KeysContract,
    OrderContract,
    RunsContract,
    SequencesContract,
    SessionsContract,
    ValuesContract,
)


class TestCommit(CommitContract):
    pass


class TestJournal(JournalContract):
    pass


class TestKeys(KeysContract):
    pass


class TestOrder(OrderContract):
    pass


class TestRuns(RunsContract):
    pass


class TestSequences(SequencesContract):
    pass


class TestSessions(SessionsContract):
    pass


class TestValues(ValuesContract):
    pass
