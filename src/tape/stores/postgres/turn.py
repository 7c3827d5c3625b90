"""The writer's side of Postgres: one turn at a time, over one session of its own.

A small batch that needs no rows is one statement in one round trip (tape_append takes the lock,
draws, writes, notifies and commits). A large one is copied into a temporary table before its turn,
and appended from there. Writes for runs that this process remembers are one statement, too
(`extend`), and so is what is accepted for subscriptions that it remembers (`remembered`). Any other
is BEGIN, take the turn, load, decide, write, COMMIT, with a statement per table, or with one for
several (`together`).

If the connection breaks after a commit may have been sent, nobody knows yet whether it happened.
Then a new session first ends the old one, so that nothing of it can happen later; takes the turn,
so that nothing of anyone is under way; and looks for the batch's first entry by its id.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import Any

import asyncpg

from tape.errors import OutcomeUnknown, StoreUnavailable, TapeError
from tape.model.entry import EntryDraft
from tape.model.move import EntryPlace, Need, State, Table
from tape.ports.store import Decide
from tape.settings import PostgresSettings
from tape.stores.guesses import Guess, Guesses
from tape.stores.postgres.connection import Backend, connect_writer, end_backend, translated
from tape.stores.postgres.extend import StoreTime, WrongGuess, decide_on, send
from tape.stores.postgres.remembered import (
    RememberedRows,
    RememberedSubscriptions,
    decide_remembered,
)
from tape.stores.postgres.together import TOGETHER, appending, loading
from tape.stores.rows import changed_rows, group_needs
from tape.stores.statements import load_statements

SQL = load_statements("tape.stores.postgres")
COPY_FROM = 200
INCOMING = "tape_incoming"
Keys = dict[Table[Any, Any], list[tuple[Any, ...]]]


class PostgresTurns:
    def __init__(self, url: str, settings: PostgresSettings) -> None:
        self._url = url
        self._settings = settings
        self._connection: asyncpg.Connection | None = None
        self._backend = Backend(0, "")
        self._copying = False
        self._one_at_a_time = asyncio.Lock()
        self._guesses = Guesses()
        self._remembered = RememberedSubscriptions()
        self._time = StoreTime()

    @property
    def pid(self) -> int:
        """The server process of the writer's session."""
        return self._backend.pid

    async def commit(
        self, needs: Sequence[Need], decide: Decide, head: int
    ) -> tuple[EntryPlace, list[EntryDraft]]:
        """Write one batch; its place and entries. `head` is the highest known before."""
        keys = group_needs(needs)
        async with self._one_at_a_time:
            guess: Guess | RememberedRows | None = None
            if keys and self._time.now_ms() is not None:
                guess = self._guesses.guess(keys, needs) or self._remembered.guess(keys, needs)
            if guess is not None:
                try:
                    return await self._commit(keys, decide, head, guess)
                except WrongGuess:
                    if isinstance(guess, Guess):
                        self._guesses.forget(run.run_id for run in guess.runs)
            return await self._commit(keys, decide, head, None)

    async def _commit(
        self, keys: Keys, decide: Decide, head: int, guess: Guess | RememberedRows | None
    ) -> tuple[EntryPlace, list[EntryDraft]]:
        connection = await self._connected()
        state = State()
        sent = False

        def sending() -> None:
            nonlocal sent
            sent = True

        try:
            with translated(self._url):
                if guess is not None:
                    place = await self._guessed(connection, guess, decide, state, sending)
                elif keys:
                    place = await self._considered(connection, keys, decide, state, sending)
                else:
                    place = await self._blind(connection, decide, state, sending)
        except WrongGuess:
            raise
        except StoreUnavailable as error:
            self._drop()
            if not sent:
                raise
            place = await self._find(state.entries, head, error)
        except TapeError:
            await self._roll_back()
            raise
        except BaseException:
            self._drop()
            raise
        self._guesses.note(state)
        self._remembered.note(keys, state)
        return place, state.entries

    async def _guessed(
        self,
        connection: asyncpg.Connection,
        guess: Guess | RememberedRows,
        decide: Decide,
        state: State,
        sending: Callable[[], None],
    ) -> EntryPlace:
        now_ms = self._time.now_ms() or 0
        if isinstance(guess, Guess):
            name, arguments = "extend_runs", decide_on(guess, now_ms, decide, state)
        else:
            name = "accept_remembered"
            arguments = decide_remembered(guess, now_ms, decide, state)
        sending()
        first, turn_ms = await send(connection, SQL[name], arguments)
        self._time.told(turn_ms)
        return EntryPlace(first, now_ms)

    async def _considered(
        self,
        connection: asyncpg.Connection,
        keys: Keys,
        decide: Decide,
        state: State,
        sending: Callable[[], None],
    ) -> EntryPlace:
        await connection.execute("BEGIN")
        ((head, state.now_ms),) = await connection.fetch(SQL["take_turn"])
        self._time.told(state.now_ms)
        state.next_global_seq = head + 1
        for table, found in zip(keys, await _loaded(connection, keys), strict=True):
            state.put_loaded(table, [table.row(*row) for row in found])
        self._guesses.compare(keys, state)
        decide(state)
        await _write(connection, state)
        if state.entries or state.saves or state.deletions:
            sending()
        await connection.execute("COMMIT")
        return EntryPlace(head + 1, state.now_ms)

    async def _blind(
        self,
        connection: asyncpg.Connection,
        decide: Decide,
        state: State,
        sending: Callable[[], None],
    ) -> EntryPlace:
        decide(state)
        if not state.entries:
            return EntryPlace(1, 0)
        if self._copying and len(state.entries) >= COPY_FROM:
            return await _copied(connection, state.entries, sending)
        sending()
        columns = zip(*state.entries, strict=True)
        (row,) = await connection.fetch(SQL["append_entries"], None, *columns)
        return EntryPlace(*row)

    async def close(self) -> None:
        if self._connection is not None:
            await self._connection.close(timeout=self._settings.connect_s)

    async def _connected(self) -> asyncpg.Connection:
        if self._connection is None or self._connection.is_closed():
            self._guesses.forget()  # it may be another server by now
            self._remembered.forget()
            with translated(self._url):
                self._connection, self._backend = await connect_writer(self._url, self._settings)
                self._copying = await _make_incoming(self._connection)
        return self._connection

    def _drop(self) -> None:
        self._guesses.forget()
        self._remembered.forget()
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None

    async def _roll_back(self) -> None:
        connection = self._connection
        if connection is None or not connection.is_in_transaction():
            return
        try:
            with translated(self._url):
                await connection.execute("ROLLBACK")
        except StoreUnavailable:
            self._drop()

    async def _find(
        self, entries: list[EntryDraft], head: int, cause: StoreUnavailable
    ) -> EntryPlace:
        """Where a batch is whose commit was cut off; StoreUnavailable if it was not written."""
        if not entries:
            raise OutcomeUnknown(
                f"{cause}; whether it was written cannot be checked, because it makes no entry"
            )
        lost = self._backend
        loop = asyncio.get_running_loop()
        give_up = loop.time() + self._settings.resolve_s
        while loop.time() < give_up:
            try:
                connection = await self._connected()
                with translated(self._url):
                    found = await _look(connection, lost, entries, head)
            except TapeError:  # whatever keeps us from looking, the outcome stays open
                self._drop()
                await asyncio.sleep(0.2)
                continue
            if found is None:
                raise cause
            return found
        raise OutcomeUnknown(
            f"{cause}; it did not come back within {self._settings.resolve_s:g} s, so whether the "
            "batch was written is unknown: retry with the same idempotency key, or look first"
        )


async def _loaded(connection: asyncpg.Connection, keys: Keys) -> Iterable[Any]:
    """The rows of each table."""
    wanted = [list(zip(*rows, strict=True)) for rows in keys.values()]
    if len(keys) > 1 and keys.keys() <= TOGETHER:
        statement = loading(*(table.name for table in keys))
        (found,) = await connection.fetch(statement, *chain.from_iterable(wanted))
        return list(found)
    return [
        await connection.fetch(SQL[f"load_{table.name}"], *columns)
        for table, columns in zip(keys, wanted, strict=True)
    ]


async def _write(connection: asyncpg.Connection, state: State) -> None:
    changed = list(changed_rows(state))
    entries = [state.now_ms, *zip(*state.entries, strict=True)] if state.entries else []
    if changed and entries and not state.deletions and state.saves.keys() <= TOGETHER:
        columns = [column for _verb, _table, rows in changed for column in zip(*rows, strict=True)]
        statement = appending(*(table.name for _verb, table, _rows in changed))
        await connection.fetch(statement, *columns, *entries)
        return
    for verb, table, rows in changed:
        await connection.execute(SQL[f"{verb}_{table.name}"], *zip(*rows, strict=True))
    if entries:
        await connection.fetch(SQL["append_entries"], *entries)


async def _make_incoming(connection: asyncpg.Connection) -> bool:
    """Without the right to make temporary tables a large batch goes the way of a small one."""
    try:
        await connection.execute(SQL["make_incoming"])
    except asyncpg.InsufficientPrivilegeError:
        return False
    return True


async def _copied(
    connection: asyncpg.Connection, entries: list[EntryDraft], sending: Callable[[], None]
) -> EntryPlace:
    await connection.execute("BEGIN")
    rows = [(number, *draft) for number, draft in enumerate(entries, 1)]
    await connection.copy_records_to_table(
        INCOMING, records=rows, columns=("n", *EntryDraft._fields)
    )
    (row,) = await connection.fetch(SQL["append_incoming"])
    sending()
    await connection.execute("COMMIT")
    return EntryPlace(*row)


async def _look(
    connection: asyncpg.Connection, lost: Backend, entries: list[EntryDraft], head: int
) -> EntryPlace | None:
    if not await end_backend(connection, lost, 1.0):
        raise StoreUnavailable("the session that was cut off is still working")
    async with connection.transaction():
        await connection.fetchrow(SQL["take_turn"])
        row = await connection.fetchrow(SQL["find_committed"], head, entries[0].event_id)
    return EntryPlace(*row) if row else None
