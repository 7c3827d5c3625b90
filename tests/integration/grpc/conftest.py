"""Servers for tests: in this event loop, stopped at the end, and stopped and started at will."""

import asyncio
import io
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import grpc
import pytest
import pytest_asyncio

from tape.programs.serve import Addresses, ServeOptions, serve
from tape.settings import Settings, SqliteSettings
from tape.wire.v1.tape_pb2_grpc import TapeStub

CERTS = Path(__file__).parent / "certs"
QUICK = Settings(sqlite=SqliteSettings(poll_s=0.02))


@dataclass
class Running:
    """A server; its address stays the same when it is started again."""

    options: ServeOptions
    _stop: asyncio.Event = field(default_factory=asyncio.Event)
    _task: asyncio.Task[None] | None = None

    @property
    def address(self) -> str:
        return self.options.grpc_address

    @property
    def url(self) -> str:
        if self.options.tls_cert is None:
            return f"tape://{self.address}"
        return f"tapes://{self.address}?ca={self.options.tls_cert}"

    async def start(self) -> None:
        ready: asyncio.Future[Addresses] = asyncio.get_running_loop().create_future()
        self._stop = asyncio.Event()
        self._task = asyncio.create_task(
            serve(self.options, on_ready=ready.set_result, stop=self._stop)
        )
        self._task.add_done_callback(lambda _: ready.done() or ready.cancel())
        try:
            addresses = await ready
        except asyncio.CancelledError:
            await self._task
            raise
        self.options = replace(self.options, grpc_address=addresses.grpc)

    async def stop(self) -> None:
        if self._task is not None:
            self._stop.set()
            task, self._task = self._task, None
            await task


Serving = Callable[..., Any]


@pytest.fixture
def logged() -> Iterator[io.StringIO]:
    """All that we and the event loop log from DEBUG up, as text.

    Not what gRPC's own debugging logs, from inside of its compiled parts: the interpreter has
    crashed when pytest freed the records of that.
    """
    text = io.StringIO()
    handler = logging.StreamHandler(text)
    loggers = [logging.getLogger(name) for name in ("tape", "asyncio")]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.DEBUG)
        logger.addHandler(handler)
    yield text
    for logger, level in zip(loggers, before, strict=True):
        logger.removeHandler(handler)
        logger.setLevel(level)


@pytest.fixture
async def serving() -> AsyncIterator[Serving]:
    """`server = await serving(store_url, **options)`."""
    async with AsyncExitStack() as stack:

        async def start(store_url: str, **options: Any) -> Running:
            chosen = {"grpc_address": "127.0.0.1:0", "settings": QUICK, **options}
            server = Running(ServeOptions(store_url, **chosen))
            await server.start()
            stack.push_async_callback(server.stop)
            return server

        yield start


@asynccontextmanager
async def dialled(address: str, **options: Any) -> AsyncIterator[Any]:
    async with grpc.aio.insecure_channel(address, **options) as channel:
        yield TapeStub(channel)


@pytest.fixture
async def dial() -> AsyncIterator[Callable[[str], Any]]:
    """`stub = await dial(address)`: the RPCs themselves, with no client of ours between."""
    async with AsyncExitStack() as stack:

        async def open_stub(address: str, **options: Any) -> Any:
            return await stack.enter_async_context(dialled(address, **options))

        yield open_stub


@pytest.fixture
def postgres_url(migrated_postgres_url: str) -> str:
    return migrated_postgres_url


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["sqlite", "postgres"])
async def shared_server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Running]:
    """One on each kind of store for a whole module, whose tests do not mind what others leave.

    They share its event loop: `pytestmark = pytest.mark.asyncio(loop_scope="module")`.
    """
    name = request.node.path.stem
    if request.param == "sqlite":
        store = f"sqlite:{tmp_path_factory.mktemp(name) / 'tape.db'}"
    else:
        store = request.getfixturevalue("postgres_server").create_database(name)
    server = Running(ServeOptions(store, grpc_address="127.0.0.1:0", settings=QUICK))
    await server.start()
    yield server
    await server.stop()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared_rpc(shared_server: Running) -> AsyncIterator[Any]:
    async with dialled(shared_server.address) as stub:
        yield stub


@pytest.fixture
async def rpc(store_url: str, serving: Serving, dial: Any) -> Any:
    """A stub of a server on each kind of store."""
    server = await serving(store_url)
    return await dial(server.address)


@pytest.fixture(params=["sqlite", "postgres", "tape", "tapes"])
async def url(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[str]:
    """Each kind of URL a client can have."""
    if request.param in ("sqlite", "postgres"):
        store: str = request.getfixturevalue(f"{request.param}_url")
        yield store
        return
    options = ServeOptions(
        f"sqlite:{tmp_path / 'served.db'}", grpc_address="localhost:0", settings=QUICK
    )
    if request.param == "tapes":
        options = replace(options, tls_cert=CERTS / "cert.pem", tls_key=CERTS / "key.pem")
    server = Running(options)
    await server.start()
    yield server.url
    await server.stop()
