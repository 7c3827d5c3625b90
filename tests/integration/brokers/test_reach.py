"""Targets of reactions at a server, and at a worker that has a login."""

import asyncio
from pathlib import Path

import pytest

import tape
from tape.brokers.reach import HostPort, Reach
from tape.errors import BrokerRefused, BrokerUnavailable, InvalidArgument
from tape.model.reaction import HandlerKind, NewReaction
from tape.programs.serve import Addresses, ServeOptions, serve
from tape.programs.worker import WorkerOptions, work
from tape.reactions.declare import Declaration, Registry
from tape.runs.declare import Apps
from tape.settings import BrokersSettings, Settings

OURS, THEIRS = "nats://ours.example:4222/a", "nats://theirs.example:4222/a"


def publishing(target: str) -> NewReaction:
    return NewReaction("out", "/tape/**", HandlerKind.PUBLISH, publish_target=target)


@pytest.mark.parametrize(
    ("address", "hosts", "taken"),
    [
        ("127.0.0.1:0", (), True),
        ("0.0.0.0:0", (), False),
        ("0.0.0.0:0", ("127.0.0.1:4222",), True),
    ],
)
async def test_a_server_that_others_can_reach_leads_nobody_into_its_network(
    tmp_path: Path, address: str, hosts: tuple[str, ...], taken: bool
) -> None:
    options = ServeOptions(
        f"sqlite:{tmp_path / 'tape.db'}",
        address,
        settings=Settings(brokers=BrokersSettings(hosts)),
        tokens="write:w0rd",
        insecure=True,
    )
    stop = asyncio.Event()
    ready: asyncio.Future[Addresses] = asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(serve(options, on_ready=ready.set_result, stop=stop))
    try:
        port = (await ready).grpc.rpartition(":")[2]
        async with tape.connect_async(f"tape://127.0.0.1:{port}", token="w0rd") as client:
            if taken:
                await client.register_reaction(publishing("nats://127.0.0.1:4222/a"))
            else:
                with pytest.raises(InvalidArgument, match="others can register reactions here"):
                    await client.register_reaction(publishing("nats://127.0.0.1:4222/a"))
            with pytest.raises(InvalidArgument, match="link-local"):
                await client.register_reaction(publishing("https://169.254.169.254/x"))
    finally:
        stop.set()
        await serving


async def test_a_worker_does_not_take_its_login_where_a_client_sends_it(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program declares one host; whoever may write has given the reaction another."""
    registry = Registry()
    registry.add(Declaration(publishing(OURS), None))
    async with tape.connect_async(sqlite_url) as client:
        await client.register_reaction(publishing(THEIRS))
    monkeypatch.setenv("TAPE_NATS_USER", "ada")
    monkeypatch.setenv("TAPE_NATS_PASSWORD", "hunter2")
    stop = asyncio.Event()
    stop.set()
    await work(WorkerOptions(url=sqlite_url, registry=registry, apps=Apps()), stop=stop)
    async with tape.connect_async(sqlite_url) as client:
        (state,) = await client.list_reactions()
        assert state.reaction.publish_target == OURS
        with pytest.raises(
            InvalidArgument, match="the NATS login of this process may not be sent to"
        ):
            await client.register_reaction(publishing(THEIRS))
    monkeypatch.delenv("TAPE_NATS_USER")
    async with tape.connect_async(sqlite_url) as client:
        await client.register_reaction(publishing(THEIRS))
    monkeypatch.setenv("TAPE_NATS_USER", "ada")
    by_name = WorkerOptions(url=sqlite_url, registry=Registry(), apps=Apps(), reaction_ids=("out",))
    with pytest.raises(InvalidArgument, match=r"sent to theirs\.example:4222; to allow it"):
        await work(by_name, stop=stop)


@pytest.mark.parametrize(
    ("settings", "refused"),
    [
        (BrokersSettings(), False),
        (BrokersSettings(allow_private=False), True),
        (BrokersSettings(("near.example",), allow_private=False), False),
    ],
)
async def test_a_worker_on_the_store_goes_where_its_settings_allow(
    sqlite_url: str,
    monkeypatch: pytest.MonkeyPatch,
    settings: BrokersSettings,
    refused: bool,
) -> None:
    """A name is taken where it is registered, and leads into the network of the worker."""
    resolved: list[BaseException | list[str]] = []
    resolve, asked = Reach.resolve, asyncio.Event()

    async def watched(reach: Reach, place: HostPort) -> list[str]:
        try:
            resolved.append(await resolve(reach, place))
        except BrokerRefused as error:
            resolved.append(error)
            raise
        finally:
            asked.set()
        raise BrokerUnavailable("nobody is there")

    async def near(*_asked: object, **_options: object) -> list[tuple[object, ...]]:
        return [(0, 0, 0, "", ("10.0.0.5", 4222))]

    async with tape.connect_async(sqlite_url) as client:
        await client.register_reaction(publishing("nats://near.example:4222/a"))
        await client.record("a.b")
    monkeypatch.setattr(Reach, "resolve", watched)
    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", near)
    options = WorkerOptions(
        url=sqlite_url,
        registry=Registry(),
        apps=Apps(),
        reaction_ids=("out",),
        settings=Settings(brokers=settings),
    )
    stop = asyncio.Event()
    working = asyncio.create_task(work(options, stop=stop))
    try:
        async with asyncio.timeout(30):
            await asked.wait()
    finally:
        stop.set()
        await working
    if refused:
        assert "10.0.0.5, a private address" in str(resolved[0])
    else:
        assert resolved[0] == ["10.0.0.5"]
