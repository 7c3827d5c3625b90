"""The event ledger through every kind of URL, and what is refused there."""

from collections.abc import Callable
from typing import Any

import pytest

import tape
from tape.model.drainer import DrainerState
from tape.model.event_subscription import EventSubscription
from tape.ports.ledger import RecentQuery
from tests.conformance.reacting import until


async def test_subscriptions(url: str) -> None:
    async with tape.connect_async(url) as client:
        recipes = {"price": "$.payload.price", "currency": "literal:€"}
        made = await client.subscribe_events(
            "price.*", "repricing", drainer="desk", where="payload.price > 1", input=recipes,
            enabled=False, awaits_end=False, pool="gpu",
        )  # fmt: skip
        assert made == EventSubscription(
            "repricing:price.*", "desk", "price.*", "repricing",
            '{"price":"$.payload.price","currency":"literal:€"}', "payload.price > 1", False, False,
            made.created_at_ms, "gpu",
        )  # fmt: skip
        plain = await client.subscribe_events("*", "log", subscription_id="a", enabled=False)
        assert (plain.awaits_end, plain.drainer_id, plain.pool) == (True, "workflow_runner", "")
        assert await client.event_subscriptions() == [plain, made]
        assert await client.event_subscriptions("desk") == [made]
        again = await client.subscribe_events(
            "price.#", "repricing", subscription_id="repricing:price.*", enabled=False
        )
        assert again.created_at_ms == made.created_at_ms
        assert await client.unsubscribe_events("a") is True
        assert await client.unsubscribe_events("a") is False


async def seen(client: tape.AsyncTapeClient, holds: Callable[[DrainerState], bool]) -> DrainerState:
    async def look() -> DrainerState | None:
        return next((state for state in await client.drainers() if holds(state)), None)

    return await until(look)


async def test_a_drainer_is_drained_halts_and_is_helped(url: str) -> None:
    """A server drains by itself, a store in process does when it is told: the end is the same."""
    async with tape.connect_async(url) as client:
        await client.subscribe_events(
            "order.*", "nobody", awaits_end=False, input={"n": "$.payload.n"}
        )
        first, bad, last = [
            await client.record("order.placed", payload) for payload in ({"n": 1}, {}, {"n": 3})
        ]
        await client.drain()
        state = await seen(client, lambda s: s.drainer.halted_on_event_id == bad.event_id)
        assert (state.drainer.events_processed_total, state.subscriptions) == (1, 1)
        assert "has nothing at $.payload.n" in state.drainer.last_error
        with pytest.raises(tape.NotHalted):
            await client.skip_event("workflow_runner", first.event_id, reason="wrong one")
        await client.resume_drainer(by="me")
        await client.drain()
        state = await seen(client, lambda s: s.drainer.failed_total >= 2)
        assert state.drainer.halted_on_event_id == bad.event_id
        state = await client.skip_event(
            "workflow_runner", bad.event_id, reason="no number", by="me"
        )
        assert state.drainer.skipped_total == 1
        report = await client.drain()
        assert report.drainer_id == "workflow_runner"
        state = await seen(client, lambda s: s.drainer.dispatched_total == 2)
        assert state.drainer.last_global_seq >= last.global_seq
        runs = await client.list_runs(app_name="nobody")
        assert sorted(run.invocation_id for run in runs) == [
            f"event:order.placed:{event.event_id}" for event in (first, last)
        ]


@pytest.mark.parametrize(
    ("glob", "options", "message"),
    [
        ("a?", {}, "event_type_glob at position 1: '?' is not allowed in a glob"),
        ("a", {"where": "payload.x >"}, "filter_expr at position "),
        ("a", {"where": "1 + 1"}, "filter_expr at position 0: a predicate must be bool"),
        ("a", {"input": {"x": "$.nowhere"}}, "input_mapper.x at position 2: an event has no"),
        ("a", {"drainer": "d" * 600}, "drainer_id: 600 bytes, the limit is 512"),
        ("a", {"subscription_id": "\0"}, "subscription_id at position 0: NUL is not allowed"),
    ],
)
async def test_a_bad_subscription_is_refused(
    url: str, glob: str, options: dict[str, Any], message: str
) -> None:
    async with tape.connect_async(url) as client:
        with pytest.raises(tape.InvalidArgument) as fault:
            await client.subscribe_events(glob, "app", **options)
        assert str(fault.value).startswith(message)
        assert (await client.info()).head_global_seq == 0
        assert await client.event_subscriptions() == []


async def test_what_is_not_there(url: str) -> None:
    async with tape.connect_async(url) as client:
        with pytest.raises(tape.NotFound, match="no event subscription names the drainer 'typo'"):
            await client.drain("typo")
        for refused in (
            client.resume_drainer("typo"),
            client.skip_event("typo", "e", reason="why"),
        ):
            with pytest.raises(tape.NotFound, match="'typo'"):
                await refused
        with pytest.raises(tape.InvalidArgument, match="await_s"):
            await client.drain("typo", await_s=-1)


async def test_the_newest_entries(url: str) -> None:
    async with tape.connect_async(url) as client:
        large = "x" * 900_000
        await client.record_many([tape.event("t", large, entity_id=f"{n % 2}") for n in range(8)])
        ledger, found, pages = client._operations.ledger, [], 0
        query = RecentQuery(entity_id="1", limit=3)
        while True:
            page = await ledger.recent(query)
            found += [(entry.global_seq, len(entry.payload)) for entry in page.entries]
            pages += 1
            if not page.before:
                break
            query = query._replace(before=page.before)
        assert found == [(n, 900_000) for n in (8, 6, 4, 2)]
        assert pages >= 2
        with pytest.raises(tape.InvalidArgument, match="limit: -1"):
            await ledger.recent(RecentQuery(limit=-1))
        with pytest.raises(tape.InvalidArgument, match="prefix at position 6: subjects are ASCII"):
            await ledger.recent(RecentQuery(prefix="/tape/\U0010ffff"))


def test_a_program_without_a_loop(sqlite_url: str) -> None:
    with tape.connect(sqlite_url) as client:
        client.subscribe_events("a", "nobody", awaits_end=False)
        client.record("a")
        assert client.drain().dispatched == 1
        (state,) = client.drainers()
        assert (state.drainer.drainer_id, state.drainer.dispatched_total) == ("workflow_runner", 1)
        assert client.unsubscribe_events("nobody:a")
        assert client.event_subscriptions() == []
