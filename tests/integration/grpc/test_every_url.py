"""One program, four kinds of URL: it cannot tell them apart."""

import asyncio
from typing import Any

import pytest

import tape


async def test_events(url: str) -> None:
    async with tape.connect_async(url) as client:
        first = await client.record(
            "order.paid",
            {"amount": 12.5, "note": "ünï"},
            entity_type="order",
            entity_id="o/1",
            idempotency_key="k1",
            caused_by="c",
            source="shop",
            occurred_at_ms=5,
            schema_version=3,
        )
        again = await client.record("order.paid", idempotency_key="k1")
        assert again == first._replace(duplicate=True)
        both = await client.record_many([tape.event("a", [1]), tape.event("b")])
        assert [r.global_seq for r in both] == [first.global_seq + 1, first.global_seq + 2]
        assert await client.record_many([]) == []

        seen = [entry async for entry in client.follow(live=False)]
        assert [e.global_seq for e in seen] == [1, 2, 3]
        entry = seen[0]
        assert entry.payload == {"amount": 12.5, "note": "ünï"}
        assert entry.subject == "/tape/event/recorded/order.paid/order/o%2F1"
        assert (entry.run_id, entry.seq, entry.kind) == ("", 0, "event")
        assert (entry.entity_id, entry.idempotency_key, entry.source) == ("o/1", "k1", "shop")
        assert (entry.occurred_at_ms, entry.schema_version, entry.caused_by) == (5, 3, "c")
        assert entry.event_id == first.event_id


async def test_following(url: str) -> None:
    async with tape.connect_async(url) as client:
        await client.record_many([tape.event("t", i, entity_id=f"{i % 3}") for i in range(10)])
        pattern = "/tape/event/recorded/t/_/1"
        chosen = client.follow(pattern, where="payload > 1", after=3, live=False, max_batch=2)
        assert [entry.payload async for entry in chosen] == [4, 7]
        assert [e async for e in client.follow(after=10, live=False)] == []
        assert [e async for e in client.follow(after=None, live=False)] == []

        async with client.follow(pattern, after=None) as live, client.follow() as everything:
            await client.record_many([tape.event("t", i, entity_id="1") for i in (20, 21)])
            assert [(await anext(live)).payload for _ in range(2)] == [20, 21]
            assert [(await anext(everything)).global_seq for _ in range(12)] == list(range(1, 13))

        pages = [page async for page in client.pages("/tape/value/**", live=False)]
        assert [page.entries for page in pages if page.entries] == []
        assert pages[-1].cursor == 12
        undecided = client.pages(where="payload.x > 1", live=False)
        assert sum([page.skipped async for page in undecided]) == 12


async def test_values(url: str) -> None:
    async with tape.connect_async(url) as client:
        assert await client.get_value("n", "k") is None
        made = await client.set_value("n", "k", {"a": [1]}, if_version=0, writer="me")
        assert (made.version, made.value, made.writer) == (1, {"a": [1]}, "me")
        with pytest.raises(tape.VersionMismatch, match="n/k: expected version 0"):
            await client.set_value("n", "k", 2, if_version=0)
        second = await client.set_value("n", "k", 2)
        assert await client.get_value("n", "k") == second
        gone = await client.delete_value("n", "k", writer="you")
        assert gone == tape.Deleted(True, 3)
        assert await client.delete_value("n", "k") == tape.Deleted(False, 3)
        assert await client.get_value("n", "k") is None

        async with client.watch_value("n", "k", from_version=1) as changes:
            two, three = await anext(changes), await anext(changes)
            assert (two.value, two.prev_version, two.prev_value_json) == (second, 1, '{"a":[1]}')
            assert (three.value.deleted, three.value.writer, three.value.value) == (
                True,
                "you",
                None,
            )
            await client.set_value("n", "k", "again")
            assert (await anext(changes)).value.value == "again"

        await asyncio.gather(*(client.set_value("list", f"{i:04}", i) for i in range(1_500)))
        listed = await client.list_values("list")
        assert [value.value for value in listed] == list(range(1_500))
        assert await client.list_namespaces() == ["list", "n"]


async def test_sessions(url: str) -> None:
    async with tape.connect_async(url) as client:
        made = await client.create_session("app", "user", state={"a": 1})
        assert made.session_id
        key = ("app", "user", made.session_id)
        assert await client.create_session(*key, state={"b": 2}) == made
        one = await client.append_event(
            *key, {"id": "e1", "author": "me", "content": {"t": "hi"}}, state_delta={"b": 2}
        )
        two = await client.append_event(*key, one.event._replace(id="e2", timestamp_ms=7))
        assert (await client.append_event(*key, two.event)).event == two.event
        found = await client.get_session(*key)
        assert found is not None
        assert found.events == [one.event, two.event]
        assert (found.session.event_count, found.session.created_at_ms) == (2, made.created_at_ms)
        newest = await client.get_session(*key, max_events=1)
        assert newest is not None
        assert newest.events == [two.event]
        assert await client.list_sessions("app", "user") == [found._replace(events=[])]
        assert await client.list_session_apps() == ["app"]
        assert await client.delete_session(*key)
        assert not await client.delete_session(*key)
        assert await client.get_session(*key) is None
        with pytest.raises(tape.NotFound, match="no session app/user"):
            await client.append_event(*key, {})


REFUSED: list[tuple[str, tuple[Any, ...], dict[str, Any], str, int | None]] = [
    ("record", ("",), {}, "event_type", None),
    ("record", ("a\0b",), {}, "event_type", 1),
    ("record", ("a",), {"schema_version": 40_000}, "schema_version", None),
    ("record", ("a",), {"occurred_at_ms": -1}, "occurred_at_ms", None),
    ("set_value", ("n", "", 1), {}, "key", None),
    ("get_value", ("", "k"), {}, "namespace", None),
    ("list_values", ("",), {}, "namespace", None),
    ("create_session", ("", "u"), {}, "app_name", None),
    ("create_session", ("a", "u\0"), {}, "user_id", 1),
]


@pytest.mark.parametrize(("call", "args", "named", "field", "position"), REFUSED)
async def test_refusals(
    sqlite_url: str,
    serving: Any,
    call: str,
    args: tuple[Any, ...],
    named: dict[str, Any],
    field: str,
    position: int | None,
) -> None:
    server = await serving(sqlite_url)
    errors = []
    for url in (sqlite_url, server.url):
        async with tape.connect_async(url) as client:
            with pytest.raises(tape.InvalidArgument) as refused:
                await getattr(client, call)(*args, **named)
            errors.append(refused.value)
    assert errors[0].args == errors[1].args
    for error in errors:
        assert (error.field, error.position) == (field, position)


@pytest.mark.parametrize(
    ("query", "field", "position"),
    [
        ({"pattern": "/tape/a/b/*x"}, "subject_pattern", 10),
        ({"pattern": ""}, "subject_pattern", 0),
        ({"where": "payload.x >"}, "predicate_cel", 11),
        ({"where": "1 + 1"}, "predicate_cel", None),
        ({"after": -1}, "from_global_seq", None),
    ],
)
async def test_refused_queries(
    url: str, query: dict[str, Any], field: str, position: int | None
) -> None:
    async with tape.connect_async(url) as client:
        with pytest.raises(tape.InvalidArgument) as refused:
            await anext(client.follow(**query))
        assert refused.value.field == field
        assert position is None or refused.value.position == position


async def test_what_cannot_be_sent_is_a_bad_argument(url: str) -> None:
    async with tape.connect_async(url) as client:
        for bad in ({"source": "\ud800"}, {"occurred_at_ms": 2**70}):
            with pytest.raises(tape.InvalidArgument):
                await client.record("a", **bad)
        with pytest.raises(tape.InvalidArgument, match="payload"):
            await client.record("a", float("nan"))
        with pytest.raises(tape.TooLarge):
            await client.record("a", "x" * 2_000_000)
        with pytest.raises(tape.TooLarge):
            await client.record_many([tape.event("a", "x" * 1_000_000)] * 40)


async def test_a_large_request_passes(url: str) -> None:
    async with tape.connect_async(url) as client:
        await client.record_many([tape.event("a", "x" * 1_000_000)] * 15)
        sizes = [len(entry.payload) async for entry in client.follow(live=False)]
        assert sizes == [1_000_000] * 15


async def test_closing_ends_streams_and_later_calls(url: str) -> None:
    client = await tape.connect_async(url)
    stream = client.follow()
    waiting = asyncio.create_task(anext(stream, None))
    changes = client.watch_value("n", "k")
    watching = asyncio.create_task(anext(changes, None))
    await client.info()
    await client.close()
    assert await waiting is None
    assert await watching is None
    assert [entry async for entry in stream] == []
    with pytest.raises(tape.Closed):
        await client.record("a")
    await client.close()


@pytest.mark.parametrize("url", ["http://x", "nats://x", "tape.db", ""])
async def test_unknown_urls(url: str) -> None:
    with pytest.raises(tape.InvalidArgument, match=r"sqlite:.*postgres:.*tape:.*tapes:"):
        await tape.connect_async(url)
    with pytest.raises(tape.InvalidArgument):
        await asyncio.to_thread(tape.connect, url)
