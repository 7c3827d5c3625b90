"""Files of a folder: each line is a message, in the order of the files' names.

A line that is a landed message (`model/landed.py`) is that message; any other line is itself the
body of one. Files may grow, and only complete lines count. They are never changed or deleted. A
file that is replaced by another under its name is another source of messages, with places of its
own: see `files_reading.py` for how that is noticed, `files_state.py` for what is remembered, and by
what one reader at a time has a folder.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, TypeVar

from tape.errors import SourceUnavailable
from tape.model.subscription_spec import SourceSpec
from tape.ports.source import ReceivedMessage
from tape.sources.files_folder import FolderReader
from tape.sources.next_try import NextTry

PATTERN: Final = "*.jsonl"
LOOK_S: Final = 0.25
REST: Final = 10
"""Between two looks that find nothing, so many times as long as one takes: of many files a look is
work."""
Answer = TypeVar("Answer")


class FileSource:
    def __init__(self, spec: SourceSpec) -> None:
        self._reader = FolderReader(Path(spec.folder).absolute(), spec.pattern or PATTERN)
        self._thread = ThreadPoolExecutor(1, "tape-files")
        self._next_try = NextTry()
        self._failure = SourceUnavailable()

    def __repr__(self) -> str:
        return f"FileSource({self._reader.folder})"

    async def open(self) -> None:
        await self._do(self._reader.open)

    async def fetch(self, most: int, wait_s: float) -> list[ReceivedMessage]:
        loop = asyncio.get_running_loop()
        ends = loop.time() + wait_s
        if not await self._next_try.wait(wait_s):
            raise self._failure
        while True:
            began = loop.time()
            try:
                found = await self._take(most)
            except SourceUnavailable as failure:
                self._failure = failure
                self._next_try.failed()
                raise
            self._next_try.succeeded()
            now = loop.time()
            if found or now >= ends:
                return found
            await asyncio.sleep(min(max(LOOK_S, REST * (now - began)), ends - now))

    async def ack(self, receipts: Sequence[str]) -> None:
        await self._do(lambda: self._reader.ack(receipts))

    async def nak(self, receipts: Sequence[str]) -> None:
        await self._do(lambda: self._reader.nak(receipts))

    async def backlog(self) -> int | None:
        """The complete lines that are not acknowledged, blank ones among them. None while another
        reader has the folder, and until they are counted: that takes many calls if files are long,
        for each may keep messages waiting for a moment only."""
        return await self._do(self._reader.backlog)

    async def passed(self) -> Mapping[str, int]:
        return await self._do(self._reader.passed)

    def warnings(self) -> list[str]:
        found = [*self._reader.unreadable.values()]
        if not self._reader.is_mine:
            found.append(
                f"another reader has the folder {self._reader.folder}; this one waits for its end"
            )
        return found

    async def close(self) -> None:
        """Also if nobody waits for the end of it: else nobody could read the folder for as long as
        this process lives."""
        closing = self._thread.submit(self._reader.close)
        self._thread.shutdown(wait=False)
        try:
            await asyncio.shield(asyncio.wrap_future(closing))
        except OSError as error:
            raise self._away(error) from None

    async def _take(self, most: int) -> list[ReceivedMessage]:
        taking = self._thread.submit(self._reader.take, most)
        try:
            return await asyncio.wrap_future(taking)
        except OSError as error:
            raise self._away(error) from None
        except asyncio.CancelledError:

            def put_back() -> None:
                if not taking.cancelled() and taking.exception() is None:
                    self._reader.put_back(taking.result())

            self._thread.submit(put_back)  # after it, in the one thread
            raise

    async def _do(self, work: Callable[[], Answer]) -> Answer:
        try:
            return await asyncio.wrap_future(self._thread.submit(work))
        except OSError as error:
            raise self._away(error) from None

    def _away(self, error: OSError) -> SourceUnavailable:
        folder = str(self._reader.folder)
        return SourceUnavailable(f"{folder}: {error.strerror or error}", at=folder)


async def open_files(spec: SourceSpec, *, name: str) -> FileSource:  # noqa: ARG001 - see OpenSource
    source = FileSource(spec)
    try:
        await source.open()
    except BaseException:
        await source.close()
        raise
    return source
