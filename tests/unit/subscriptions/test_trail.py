"""What a program is told of its subscription: all of it and its runs, none of others."""

import asyncio
import random
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from tape.bus import Bus, FollowQuery
from tape.errors import BrokerUnavailable, StoreUnavailable
from tape.journal.follow import Page
from tape.model.entry import Entry
from tape.model.event import NewEvent
from tape.model.lease import NewRun, Taker
from tape.model.run import Run, RunName, RunStatus
from tape.model.run_end import EndRun
from tape.programs.subscription_tally import RunCounts, RunTally, open_runs
from tape.programs.subscription_trail import SubscriptionTrail, position_after, told_of
from tests.unit.subscriptions.subscribed import Subscribed, document, message

pytestmark = pytest.mark.timeout(60)


class Heard:
    """A sink that remembers; it fails at the entry of `refused`."""

    def __init__(self, refused: int = 0) -> None:
        self.entries: list[Entry] = []
        self._refused = refused

    async def send(self, entries: Sequence[Entry]) -> None:
        await asyncio.sleep(0)
        if any(entry.global_seq == self._refused for entry in entries):
            raise BrokerUnavailable("the disk is full")
        self.entries += entries

    async def close(self) -> None: ...


async def everything(bus: Bus) -> list[Entry]:
    head = (await bus.info()).head_global_seq
    return [e async for page in bus.follow(FollowQuery(until=head)) for e in page.entries]


@asynccontextmanager
async def following(*trails: SubscriptionTrail) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(trail.follow()) for trail in trails]
    try:
        yield
        for trail in trails:
            trail.end()
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()


async def drive(desk: Subscribed, run_id: str, status: RunStatus = RunStatus.TERMINAL) -> None:
    """Take a run, have something of it in another noun, and end it."""
    run = await desk.bus.runs.resume_run(run_id, Taker("worker", "recovery", 60_000))
    await desk.bus.record_events([seen_in(run)])
    await desk.bus.runs.extend_run(run_id, run.fencing_token, [EndRun(int(status))])


def seen_in(run: Run) -> NewEvent:
    return NewEvent("seen", '{"n":1}', run_id=run.run_id, fencing_token=run.fencing_token)


async def a_foreign_run(desk: Subscribed, number: int, user: str = "somebody") -> str:
    new = NewRun(RunName("desk", user, "orders", str(number)), pool="subscription")
    return (await desk.bus.runs.begin_run(new)).run.run_id


async def test_each_entry_of_it_and_its_runs_is_told_once_in_order(desk: Subscribed) -> None:
    """However often it is asked to catch up while entries come."""
    heard, noticed = Heard(), list[Entry]()
    await desk.subscriptions.register_subscription(document("order"))  # its name is the beginning
    trail = SubscriptionTrail(desk.bus, "orders", 1, noticed.append, sink=heard)
    ours: set[str] = set()
    async with following(trail):
        await desk.listen()
        for number in range(30):
            accepted = await desk.accept(message(2 * number), message(2 * number + 1))
            ours.update(one.run_id for one in accepted)
            foreign = await a_foreign_run(desk, number)
            if random.random() < 0.5:
                await trail.catch_up()
                assert heard.entries[-1].global_seq == (await desk.bus.info()).head_global_seq - 1
            await drive(desk, foreign)
            await drive(desk, accepted[0].run_id)
    expected = [
        entry for entry in await everything(desk.bus)
        if entry.run_id in ours or entry.subject.endswith("/orders")
    ]  # fmt: skip
    assert heard.entries == noticed == expected
    assert any(entry.kind == "event" for entry in expected)


async def test_runs_that_were_begun_before_are_known_by_asking(desk: Subscribed) -> None:
    await desk.listen()
    (accepted,) = await desk.accept(message(1))
    foreign = await a_foreign_run(desk, 1)
    taker = Taker("worker", "recovery", 60_000)
    runs = [await desk.bus.runs.resume_run(each, taker) for each in (foreign, accepted.run_id)]
    head = (await desk.bus.info()).head_global_seq
    noticed: list[Entry] = []
    async with following(SubscriptionTrail(desk.bus, "orders", head, noticed.append)):
        await desk.bus.record_events([seen_in(run) for run in runs])
    assert [entry.run_id for entry in noticed] == [accepted.run_id]


async def test_patterns_are_its_entries_and_the_states_of_its_runs(desk: Subscribed) -> None:
    noticed: list[Entry] = []
    trails = [
        SubscriptionTrail(desk.bus, "orders", 0, noticed.append, pattern=pattern)
        for pattern in told_of("orders")
    ]
    async with following(*trails):
        await desk.listen()
        (accepted,) = await desk.accept(message(1))
        await drive(desk, await a_foreign_run(desk, 1))
        await drive(desk, accepted.run_id)
    noticed.sort()
    words = [entry.subject.split("/")[3] for entry in noticed]
    assert words == ["registered", "activated", "runnable", "running", "terminal"]


async def test_whoever_waits_is_told_that_it_has_failed(desk: Subscribed) -> None:
    await desk.listen()
    trail = SubscriptionTrail(desk.bus, "orders", 0, lambda _entry: None, sink=Heard(refused=1))
    failing = asyncio.create_task(trail.follow())
    with pytest.raises(StoreUnavailable):
        await trail.catch_up()
    with pytest.raises(BrokerUnavailable, match="the disk is full"):
        await failing
    with pytest.raises(StoreUnavailable):
        await trail.catch_up()


async def test_a_server_that_tells_nothing_of_what_does_not_match_is_caught_up_with(
    desk: Subscribed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its pages come late where nothing matches."""
    follow = desk.bus.follow

    def quiet(query: FollowQuery) -> AsyncGenerator[Page, None]:
        async def pages() -> AsyncGenerator[Page, None]:
            async for page in follow(query):
                if page.entries or query.until:
                    yield page

        return pages()

    monkeypatch.setattr(desk.bus, "follow", quiet)
    noticed: list[Entry] = []
    pattern = told_of("orders")[1]
    trail = SubscriptionTrail(desk.bus, "orders", 0, noticed.append, pattern=pattern)
    async with following(trail):
        await desk.listen()
        await trail.catch_up()
        await desk.accept(message(1))
        await trail.catch_up()
        assert len(noticed) == 1


async def test_a_position_is_one_that_the_journal_has(desk: Subscribed) -> None:
    await desk.listen()
    first, second = await everything(desk.bus)
    assert await position_after(desk.bus, second._asdict()) == 2
    for wrong in (
        None, {}, {"global_seq": 1, "event_id": "other"}, {"global_seq": "1"},
        first._replace(global_seq=99)._asdict(), first._replace(global_seq=0)._asdict(),
    ):  # fmt: skip
        assert await position_after(desk.bus, wrong) is None


async def test_runs_are_counted_and_awaited(desk: Subscribed) -> None:
    tally = RunTally({"desk"})
    await desk.listen(document(headers={"directives": [
        {"header": "x-app", "controls": "dispatch.playbook", "allowed": ["elsewhere"]},
    ]}))  # fmt: skip
    head = (await desk.bus.info()).head_global_seq
    trail = SubscriptionTrail(desk.bus, "orders", head, tally.note)
    async with following(trail):
        sent = (message(1), message(2), message(3), message(4, b"no"))
        first, second, third, _letter = await desk.accept(*sent)
        await desk.accept(message(5, headers=(("X-App", b"elsewhere"),)))
        await trail.catch_up()
        assert (tally.open, tally.dead_letters) == (3, 1)
        settled = asyncio.create_task(tally.until_settled())
        await drive(desk, first.run_id)
        await drive(desk, second.run_id, RunStatus.FAILED)
        await trail.catch_up()
        assert not settled.done()
        await drive(desk, third.run_id, RunStatus.STUCK)
        await settled
    assert tally.counts == RunCounts(begun=4, ended=3, failed=2)
    assert tally.failed == [second.run_id, third.run_id]
    assert await open_runs(desk.bus.runs, "orders", {"desk"}) == []
    assert len(await open_runs(desk.bus.runs, "orders", {"desk", "elsewhere"})) == 1
