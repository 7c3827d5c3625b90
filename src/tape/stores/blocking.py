"""Stores for code without an event loop: Spark's drivers and executors."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import TypeVar

from tape.ports.bulk import BulkReader, Staging, UseStore
from tape.ports.store import Store
from tape.settings import Settings
from tape.stores.bulk import located, open_reader, open_staging
from tape.stores.by_url import open_store

T = TypeVar("T")


class Stores:
    """See `ports.bulk.OpenStores`."""

    def __init__(self, settings: Settings | None = None) -> None:
        self._settings = settings or Settings()

    @property
    def settings(self) -> Settings:
        return self._settings

    def located(self, url: str) -> str:
        return located(url)

    def reader(self, url: str) -> BulkReader:
        return open_reader(url)

    def staging(self, url: str) -> Staging:
        return open_staging(url, self._settings)

    def store(self, url: str, *, creating: bool = False) -> UseStore:
        return _Using(url, self._settings, creating)


class _Using:
    def __init__(self, url: str, settings: Settings, creating: bool) -> None:
        self._url = url
        self._settings = settings
        self._creating = creating

    def reader(self) -> BulkReader:
        return open_reader(self._url, is_alone=False)

    def __call__(self, use: Callable[[Store], Awaitable[T]]) -> T:
        async def opened() -> T:
            store = await open_store(self._url, self._settings, creating=self._creating)
            try:
                return await use(store)
            finally:
                await store.close()

        return _run(opened)


def _run(work: Callable[[], Awaitable[T]]) -> T:
    """On a loop of its own, in a thread of its own where this one has a loop: a notebook's."""

    async def awaited() -> T:
        return await work()

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(awaited())
    results: list[T] = []
    faults: list[BaseException] = []

    def in_thread() -> None:
        try:
            results.append(asyncio.run(awaited()))
        except BaseException as fault:  # noqa: BLE001 - raised again where it was asked for
            faults.append(fault)

    thread = threading.Thread(target=in_thread, name="tape-store")
    thread.start()
    thread.join()
    if faults:
        raise faults[0]
    return results[0]
