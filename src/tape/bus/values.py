"""The operations on values: versioned JSON by namespace and key."""

from collections.abc import AsyncGenerator
from typing import Protocol

from tape.bus.pages import DEFAULT_PAGE, page_bytes, page_entries
from tape.journal.follow import watch_value
from tape.journal.ids import UlidFactory
from tape.journal.writer import Writer
from tape.model.event import check_trace
from tape.model.names import check_name
from tape.model.value import Author, Deleted, DeleteValue, Value, ValueChange, WriteValue
from tape.ports.store import Store
from tape.runs.operations import Runs
from tape.settings import Limits


class ValueOperations(Protocol):
    async def write_value(
        self, namespace: str, key: str, value_json: str, if_version: int, author: Author
    ) -> Value: ...

    async def get_value(self, namespace: str, key: str) -> Value | None:
        """The value, a tombstone if it was deleted, None if it never was."""

    def watch_value(
        self, namespace: str, key: str, from_version: int, max_bytes: int = 0
    ) -> AsyncGenerator[ValueChange, None]:
        """Its changes in order, until closed. About `max_bytes` are held, as in `FollowQuery`."""

    async def delete_value(self, namespace: str, key: str, author: Author) -> Deleted: ...

    async def list_values(self, namespace: str, after_key: str, limit: int) -> list[Value]: ...

    async def list_namespaces(self, after: str, limit: int) -> list[str]:
        """The namespaces that hold a value, by name after `after`."""


class Values:
    def __init__(
        self, store: Store, writer: Writer, ids: UlidFactory, limits: Limits, runs: Runs
    ) -> None:
        self._store = store
        self._writer = writer
        self._ids = ids
        self._limits = limits
        self._runs = runs

    async def write_value(
        self, namespace: str, key: str, value_json: str, if_version: int, author: Author
    ) -> Value:
        move = WriteValue(
            namespace,
            key,
            value_json,
            if_version,
            author=await self._traced(author),
            event_id=next(self._ids),
            limits=self._limits,
        )
        return await self._writer.submit(move)

    async def get_value(self, namespace: str, key: str) -> Value | None:
        self._check_names(namespace, key)
        return await self._store.values.get_value(namespace, key)

    def watch_value(
        self, namespace: str, key: str, from_version: int, max_bytes: int = 0
    ) -> AsyncGenerator[ValueChange, None]:
        self._check_names(namespace, key)
        most = page_bytes(max_bytes, self._limits)
        return watch_value(
            self._store, namespace, key, from_version, max_entries=DEFAULT_PAGE, max_bytes=most
        )

    async def delete_value(self, namespace: str, key: str, author: Author) -> Deleted:
        traced = await self._traced(author)
        move = DeleteValue(namespace, key, traced, next(self._ids), self._limits)
        return await self._writer.submit(move)

    async def list_values(self, namespace: str, after_key: str, limit: int) -> list[Value]:
        check_name(namespace, self._limits, field="namespace", required=True)
        check_name(after_key, self._limits, field="after_key")
        most = page_entries(limit, self._limits)
        return await self._store.values.list_values(namespace, after_key, most)

    async def list_namespaces(self, after: str, limit: int) -> list[str]:
        check_name(after, self._limits, field="after")
        return await self._store.values.list_namespaces(after, page_entries(limit, self._limits))

    def _check_names(self, namespace: str, key: str) -> None:
        check_name(namespace, self._limits, field="namespace", required=True)
        check_name(key, self._limits, field="key", required=True)

    async def _traced(self, author: Author) -> Author:
        check_trace(*author.trace)
        return author._replace(trace=await self._runs.joined(author.run_id, author.trace))
