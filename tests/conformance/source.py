"""The contract of `ports.source`, as tests. A suite for a source subclasses it and provides one
fixture, `far_side`: the system that is fetched from, seen from its other end."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import NamedTuple, Protocol

import pytest

from tape.errors import SourceRefused, SourceUnavailable
from tape.model.message import Header
from tape.ports.source import ReceivedMessage, Source

BOUND_S = 60.0  # of anything that is waited for
NOTHING_S = 0.5  # how long nothing is waited for
MIB = 1 << 20


class Sent(NamedTuple):
    body: bytes
    key: str = ""
    headers: tuple[Header, ...] = ()


class Leaving(Protocol):
    """A far side that goes away, by kill -9, and comes back."""

    async def go_away(self) -> None: ...

    async def come_back(self) -> None: ...


class Lossy(Protocol):
    """A source, on a line where acknowledgements can be lost."""

    source: Source

    def lose(self, loses: bool) -> None: ...

    @property
    def lost(self) -> int: ...


class SourceFarSide(Protocol):
    """Messages of one key are in order, and of those the next may come only when the one before is
    acknowledged.

    `silent_s`: how long a reader that says nothing keeps what it has, 0 for as long as it is there.
    `prefix_acks`: an acknowledgement counts once all before it, of its partition, are there.
    `whole_headers`: several values of a name, and any bytes. `one_reader`: the others wait for its
    end.
    """

    silent_s: float
    prefix_acks: bool
    whole_headers: bool
    tells_backlog: bool
    counts_deliveries: bool
    one_reader: bool

    async def send(self, messages: Sequence[Sent]) -> None:
        """As a program that knows nothing of Tape would, in this order."""

    async def open(self) -> Source:
        """A source object of its own on this far side, which can fetch at once."""

    def lossy(self) -> AbstractAsyncContextManager[Lossy] | None:
        """None where acknowledgements cannot be lost on their way."""

    async def open_refused(self) -> list[tuple[str, Callable[[], Awaitable[object]]]]:
        """What is refused, with a part of what is said: names that are not there, wrong logins."""

    async def open_away(self) -> None:
        """Open one where nobody is."""


class LeavingFarSide(SourceFarSide, Leaving, Protocol):
    """Both."""


def numbered(count: int, keys: int = 1, start: int = 0) -> list[Sent]:
    return [Sent(b"%d" % n, f"key-{n % keys}") for n in range(start, start + count)]


async def fetch_some(source: Source, most: int = 100) -> list[ReceivedMessage]:
    """What comes next, however long it takes; outages are waited for."""
    async with asyncio.timeout(BOUND_S):
        while True:
            with contextlib.suppress(SourceUnavailable):
                if found := await source.fetch(most, 1.0):
                    assert len(found) <= most
                    return found


async def fetch_until_away(source: Source) -> list[ReceivedMessage]:
    """What still comes before nobody is there."""
    found: list[ReceivedMessage] = []
    async with asyncio.timeout(BOUND_S):
        while True:
            try:
                found += await source.fetch(1, 0.2)
            except SourceUnavailable:
                return found


async def fetch_count(source: Source, count: int, most: int = 100) -> list[ReceivedMessage]:
    """So many messages, none of which is at a place of another."""
    found: list[ReceivedMessage] = []
    async with asyncio.timeout(BOUND_S):
        while len(found) < count:
            found += await fetch_some(source, min(most, count - len(found)))
    places = [received.message.place for received in found]
    assert len(set(places)) == len(places)
    return found


async def ack(source: Source, received: Sequence[ReceivedMessage]) -> None:
    async with asyncio.timeout(BOUND_S):
        await source.ack([each.receipt for each in received])


def bodies(received: Sequence[ReceivedMessage]) -> list[bytes]:
    return [each.message.body for each in received]


def by_place(received: Sequence[ReceivedMessage]) -> dict[str, bytes]:
    return {each.message.place: each.message.body for each in received}


@contextlib.asynccontextmanager
async def opened(far_side: SourceFarSide) -> AsyncIterator[Source]:
    source = await far_side.open()
    try:
        yield source
    finally:
        await source.close()


class SourceContract:
    async def test_what_is_sent_is_fetched_as_it_was(self, far_side: SourceFarSide) -> None:
        await far_side.send(
            [Sent(b'{"n":  1, "\xc3\xa4": "x"}', "k", (("Kind", b"a b"),)), Sent(b"2", "k")]
        )
        async with opened(far_side) as source:
            first, second = await fetch_count(source, 2)
            message = first.message
            assert message.body == b'{"n":  1, "\xc3\xa4": "x"}'
            assert dict(message.headers)["Kind"] == b"a b"
            assert message.place == f"{message.origin}/{message.position}"
            assert message.place.startswith(f"{message.source}/")
            assert message.place.isascii()
            assert message.deliveries == 1
            assert message.timestamp_ms > 1_700_000_000_000
            assert second.message.place != message.place
            assert source.warnings() == []
            await ack(source, [first, second])

    async def test_nothing_comes_of_an_emptied_source(self, far_side: SourceFarSide) -> None:
        await far_side.send(numbered(5))
        async with opened(far_side) as source:
            found = await fetch_count(source, 5)
            assert bodies(found) == [b"0", b"1", b"2", b"3", b"4"]
            await ack(source, found)
            assert await source.fetch(10, NOTHING_S) == []
        async with opened(far_side) as source:
            assert await source.fetch(10, NOTHING_S) == []

    async def test_messages_come_as_soon_as_there_are_any(self, far_side: SourceFarSide) -> None:
        async with opened(far_side) as source, asyncio.timeout(BOUND_S):
            fetching = asyncio.create_task(source.fetch(100, 10 * BOUND_S))
            await asyncio.sleep(0)
            await far_side.send([Sent(b"1")])
            found = await fetching
            assert bodies(found) == [b"1"]
            await ack(source, found)

    async def test_no_more_than_asked_for(self, far_side: SourceFarSide) -> None:
        await far_side.send(numbered(10, keys=10))
        async with opened(far_side) as source:
            found = [*await fetch_some(source, 3), *await fetch_some(source, 1)]
            assert len(found) <= 4
            found += await fetch_count(source, 10 - len(found), most=4)
            assert sorted(bodies(found)) == sorted(b"%d" % n for n in range(10))

    async def test_a_fetch_that_is_cancelled_loses_nothing(self, far_side: SourceFarSide) -> None:
        async with opened(far_side) as source:
            for _ in range(3):
                fetching = asyncio.create_task(source.fetch(5, BOUND_S))
                await asyncio.sleep(0.01)
                fetching.cancel()
                await asyncio.gather(fetching, return_exceptions=True)
            await far_side.send(numbered(8, keys=8))
            found: list[ReceivedMessage] = []
            async with asyncio.timeout(BOUND_S):
                while len(found) < 8:
                    fetching = asyncio.create_task(source.fetch(5, BOUND_S))
                    await asyncio.wait((fetching,), timeout=0.001)
                    fetching.cancel()
                    (ended,) = await asyncio.gather(fetching, return_exceptions=True)
                    found += ended if isinstance(ended, list) else []
                    found += await source.fetch(2, 0.1)
            assert sorted(bodies(found)) == [b"%d" % n for n in range(8)]

    async def test_who_closes_gives_back(self, far_side: SourceFarSide) -> None:
        await far_side.send(numbered(6, keys=2))
        async with opened(far_side) as source:
            first = await fetch_count(source, 6)
        async with opened(far_side) as source:
            again = await fetch_count(source, 6)
            assert by_place(again) == by_place(first)
            if far_side.counts_deliveries:
                assert {each.message.deliveries for each in again} == {2}
            await ack(source, again)
        async with opened(far_side) as source:
            assert await source.fetch(10, NOTHING_S) == []

    async def test_what_is_acknowledged_does_not_come_again(self, far_side: SourceFarSide) -> None:
        await far_side.send(numbered(6, keys=6))
        async with opened(far_side) as source:
            first = await fetch_count(source, 6)
            await ack(source, first[::2])
        wanted = first[1:] if far_side.prefix_acks else first[1::2]
        async with opened(far_side) as source:
            again = await fetch_count(source, len(wanted))
            assert by_place(again) == by_place(wanted)
            assert await source.fetch(10, NOTHING_S) == []
            await ack(source, again)

    async def test_what_is_given_back_comes_again(self, far_side: SourceFarSide) -> None:
        await far_side.send(numbered(6, keys=6))
        async with opened(far_side) as source:
            first = await fetch_count(source, 6)
            await source.nak([first[1].receipt, first[4].receipt])
            again = await fetch_count(source, 2)
            assert by_place(again) == by_place([first[1], first[4]])
            await source.nak([again[1].receipt])
            (once_more,) = await fetch_count(source, 1)
            assert once_more.message.place == again[1].message.place
            await ack(source, [*first, again[0], once_more])
            assert await source.fetch(10, NOTHING_S) == []
        async with opened(far_side) as source:
            assert await source.fetch(10, NOTHING_S) == []

    async def test_receipts_of_others_are_passed_over(self, far_side: SourceFarSide) -> None:
        await far_side.send(numbered(2))
        async with opened(far_side) as source:
            found = await fetch_count(source, 2)
        async with opened(far_side) as source:
            for receipts in ([found[0].receipt], ["", "nonsense", "0/0/0", "1.2.3"], []):
                await source.ack(receipts)
                await source.nak(receipts)
            again = await fetch_count(source, 2)
            await ack(source, again)
            await ack(source, again)
            await source.nak([each.receipt for each in again])
            assert await source.fetch(10, NOTHING_S) == []

    async def test_what_is_in_hand_is_kept(self, far_side: SourceFarSide) -> None:
        """Another reader would get whatever is thought to be abandoned."""
        if not far_side.silent_s:
            pytest.skip("a reader keeps what it has for as long as it is there")
        await far_side.send(numbered(4, keys=4))
        async with opened(far_side) as slow:
            found = await fetch_count(slow, 4)
            async with opened(far_side) as idle:
                assert await idle.fetch(10, 2.5 * far_side.silent_s) == []
                await ack(slow, found)
                assert await idle.fetch(10, NOTHING_S) == []
                assert await slow.fetch(10, NOTHING_S) == []

    async def test_two_readers_share_nothing(self, far_side: SourceFarSide) -> None:
        async with opened(far_side) as one, opened(far_side) as other:
            await far_side.send(numbered(60, keys=20))
            got: dict[str, list[bytes]] = {}

            async def read(source: Source) -> None:
                while len(got) < 60:
                    found = await source.fetch(3, 0.2)
                    for received in found:
                        got.setdefault(received.message.place, []).append(received.message.body)
                    await ack(source, found)

            async with asyncio.timeout(BOUND_S):
                await asyncio.gather(read(one), read(other))
            assert sorted(got.values()) == sorted([b"%d" % n] for n in range(60))
            if far_side.one_reader:
                assert any("another reader" in said for said in other.warnings())

    async def test_headers_come_whole(self, far_side: SourceFarSide) -> None:
        if not far_side.whole_headers:
            pytest.skip("its headers are one text each")
        sent = (("X-Route", b"a"), ("X-Route", b"b"), ("x-route", b"c"), ("Odd", b"\xfe\xff"))
        await far_side.send([Sent(b"1", headers=sent), Sent(b"2")])
        async with opened(far_side) as source:
            found = await fetch_count(source, 2)
            headers = [h for h in found[0].message.headers if h[0] in ("X-Route", "x-route", "Odd")]
            assert tuple(headers) == sent
            await ack(source, found)

    @pytest.mark.parametrize(
        "body", [b"", b"x" * MIB, b"\x00\xff\r\n\x80"], ids=["0", "1MiB", "raw"]
    )
    async def test_bodies_come_whole(self, far_side: SourceFarSide, body: bytes) -> None:
        # Attributes, as Pub/Sub takes no message that has neither.
        await far_side.send([Sent(body, "k", (("Kind", b"odd"),)), Sent(b"end", "k")])
        async with opened(far_side) as source:
            found = await fetch_count(source, 2)
            assert bodies(found) == [body, b"end"]
            await ack(source, found)

    async def test_the_order_of_each_key_is_kept(self, far_side: SourceFarSide) -> None:
        sent = numbered(200, keys=7)
        await far_side.send(sent)
        async with opened(far_side) as source:
            found: list[ReceivedMessage] = []
            while len(found) < 200:
                some = await fetch_count(source, min(30, 200 - len(found)))
                await ack(source, some)
                found += some
            got = bodies(found)
            for key in range(7):
                wanted = [message.body for message in sent[key::7]]
                assert [body for body in got if body in wanted] == wanted

    async def test_what_waits_is_counted(self, far_side: SourceFarSide) -> None:
        async with opened(far_side) as source:
            if not far_side.tells_backlog:
                assert await source.backlog() is None
                assert await source.passed() == {}
                return
            await far_side.send(numbered(5))
            found = await fetch_count(source, 5)
            await self.until(source, lambda waiting: waiting == 5)
            (origin,) = {each.message.origin for each in found}
            assert (await source.passed())[origin] < int(found[0].message.position)
            await ack(source, found[:2])
            await self.until(source, lambda waiting: waiting == 3)
            assert (await source.passed())[origin] == int(found[1].message.position)
            await ack(source, found[2:])
            await self.until(source, lambda waiting: waiting == 0)
            assert (await source.passed())[origin] == int(found[-1].message.position)

    async def until(self, source: Source, enough: Callable[[int | None], bool]) -> None:
        async with asyncio.timeout(BOUND_S):
            while not enough(await source.backlog()):  # noqa: ASYNC110 - only asking tells
                await asyncio.sleep(0.05)

    async def test_acknowledgements_that_are_lost(self, far_side: SourceFarSide) -> None:
        line = far_side.lossy()
        if line is None:
            pytest.skip("they cannot be lost on their way")
        await far_side.send(numbered(5))
        async with line as lossy:
            first = await fetch_count(lossy.source, 5)
            lossy.lose(True)
            await ack(lossy.source, first)
            await lossy.source.close()
            assert lossy.lost > 0
        async with opened(far_side) as source:
            again = await fetch_count(source, 5)
            assert by_place(again) == by_place(first)
            await ack(source, again)

    async def test_what_is_wrong_for_good_is_refused(self, far_side: SourceFarSide) -> None:
        for said, open_it in await far_side.open_refused():
            with pytest.raises(SourceRefused) as refusal:
                async with asyncio.timeout(BOUND_S):
                    await open_it()
            assert said in str(refusal.value)
            assert "hunter2" not in str(refusal.value)
            assert "wrong-one" not in str(refusal.value)

    async def test_who_is_not_there_can_be_tried_again(self, far_side: SourceFarSide) -> None:
        with pytest.raises(SourceUnavailable) as away:
            async with asyncio.timeout(BOUND_S):
                await far_side.open_away()
        assert away.value.at  # so that all who wait for it share what is logged


class SourceOutageContract:
    """Of a far side that goes away and comes back, with all that it had."""

    async def test_while_away_and_once_back(self, far_side: LeavingFarSide) -> None:
        await far_side.send(numbered(10, keys=10))
        async with opened(far_side) as source:
            first = await fetch_count(source, 4, most=4)
            await far_side.go_away()
            await ack(source, first[:2])  # does not fail: it is said later, or they come again
            last = await fetch_until_away(source)
            await far_side.come_back()
            await ack(source, [*first[2:], *last])
            got = by_place([*first, *last])
            async with asyncio.timeout(BOUND_S):
                while len(got) < 10:
                    found = await fetch_some(source)
                    got |= by_place(found)
                    await ack(source, found)
            assert sorted(got.values()) == [b"%d" % n for n in range(10)]
