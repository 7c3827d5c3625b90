"""Sessions: state and events written together, read newest first, deleted together."""

import orjson

from tape.errors import NotFound
from tape.model.session import (
    Appended,
    AppendEvent,
    CreateSession,
    DeleteSession,
    Session,
    SessionEvent,
    SessionKey,
)
from tape.ports.store import Store
from tests.conformance.playing import (
    IDS,
    LIMITS,
    MANY,
    OpenStore,
    a_run,
    attempt,
    play,
    read_all,
    save_run,
)

KEY = SessionKey("app", "user", "s")


def creating(state: str = "{}", key: SessionKey = KEY) -> CreateSession:
    return CreateSession(key, state, next(IDS), LIMITS)


def appending(
    event_id: str, delta: str = "{}", key: SessionKey = KEY, run: tuple[str, int] = ("", 0)
) -> AppendEvent:
    event = SessionEvent(event_id, "inv", "author", "branch", '{"text": "ä"}', "[1]", 5)
    return AppendEvent(key, event, delta, event_id=next(IDS), limits=LIMITS, run=run)


def deleting(key: SessionKey = KEY) -> DeleteSession:
    return DeleteSession(key, next(IDS), LIMITS)


async def state_of(store: Store, key: SessionKey = KEY) -> object:
    found = await store.sessions.get_session(key, MANY)
    assert found is not None
    return orjson.loads(found.session.state_json)


async def events_of(store: Store, max_events: int = MANY) -> list[str]:
    found = await store.sessions.get_session(KEY, max_events)
    assert found is not None
    return [event.id for event in found.events]


class SessionsContract:
    async def test_a_session_comes_back_as_it_was_made(self, open_store: OpenStore) -> None:
        store = await open_store()
        made: Session = await play(store, creating('{"ä": 1}'))
        found = await (await open_store()).sessions.get_session(KEY, MANY)
        assert found == (made, [])
        assert made.created_at_ms == made.last_update_time_ms > 1_600_000_000_000

    async def test_one_that_exists_is_answered_as_it_is(self, open_store: OpenStore) -> None:
        store = await open_store()
        first = await play(store, creating('{"a": 1}'))
        assert await play(store, creating('{"b": 2}')) == first
        assert len(await read_all(store)) == 1

    async def test_what_never_was_is_none(self, open_store: OpenStore) -> None:
        assert await (await open_store()).sessions.get_session(KEY, MANY) is None

    async def test_an_event_and_its_delta_come_together(self, open_store: OpenStore) -> None:
        store = await open_store()
        await play(store, creating('{"a": 1, "b": {"x": 1}}'))
        appended: Appended = await play(store, appending("e1", '{"b": {"y": 2}, "c": 3}'))
        assert appended.event == SessionEvent(
            "e1", "inv", "author", "branch", '{"text": "ä"}', "[1]", 5
        )
        found = await store.sessions.get_session(KEY, MANY)
        assert found is not None
        assert orjson.loads(found.session.state_json) == {"a": 1, "b": {"y": 2}, "c": 3}
        assert found.events == [appended.event]
        assert found.session.event_count == 1
        assert found.session.last_update_time_ms == appended.last_update_time_ms

    async def test_a_repeat_of_an_event_changes_nothing(self, open_store: OpenStore) -> None:
        store = await open_store()
        await play(store, creating())
        first = await play(store, appending("e1", '{"n": 1}'))
        again = await play(store, appending("e1", '{"n": 2}'))
        assert again == first
        assert await state_of(store) == {"n": 1}
        assert await events_of(store) == ["e1"]

    async def test_the_newest_events_come_oldest_first(self, open_store: OpenStore) -> None:
        store = await open_store()
        await play(store, creating())
        await attempt(store, *[appending(f"e{n}") for n in (3, 1, 2)])
        await play(store, appending("e0"))
        assert await events_of(store) == ["e3", "e1", "e2", "e0"]
        assert await events_of(store, 2) == ["e2", "e0"]

    async def test_deleting_takes_the_events_along(self, open_store: OpenStore) -> None:
        store = await open_store()
        await play(store, creating('{"a": 1}'))
        await play(store, appending("e1"))
        other = KEY._replace(session_id="t")
        await play(store, creating(key=other))
        await play(store, appending("e1", key=other))
        assert await play(store, deleting()) is True
        assert await store.sessions.get_session(KEY, MANY) is None
        assert await play(store, deleting()) is False
        await play(store, creating())
        assert await events_of(store) == []
        kept = await store.sessions.get_session(other, MANY)
        assert kept is not None
        assert len(kept.events) == 1

    async def test_an_event_needs_its_session(self, open_store: OpenStore) -> None:
        store = await open_store()
        (outcome,) = await attempt(store, appending("e1"))
        assert isinstance(outcome, NotFound)
        assert await read_all(store) == []

    async def test_deleted_and_made_again_in_one_batch(self, open_store: OpenStore) -> None:
        store = await open_store()
        await attempt(store, creating('{"old": 1}'), appending("e1"), appending("e2"))
        outcomes = await attempt(
            store, appending("e3"), deleting(), creating('{"new": 1}'), appending("e2", '{"n": 2}')
        )
        assert not [one for one in outcomes if isinstance(one, Exception)]
        assert await state_of(store) == {"new": 1, "n": 2}
        assert await events_of(store) == ["e2"]
        subjects = [entry.subject.split("/")[2:4] for entry in await read_all(store)]
        assert subjects[-4:] == [
            ["event", "appended"], ["session", "deleted"], ["session", "created"],
            ["event", "appended"],
        ]  # fmt: skip

    async def test_made_and_deleted_in_one_batch(self, open_store: OpenStore) -> None:
        store = await open_store()
        await attempt(store, creating(), appending("e1"), deleting())
        assert await store.sessions.get_session(KEY, MANY) is None
        await play(store, creating())
        assert await events_of(store) == []

    async def test_a_users_sessions_are_listed_newest_change_first(
        self, open_store: OpenStore
    ) -> None:
        store = await open_store()
        for name in ("a", "b"):
            await play(store, creating(key=KEY._replace(session_id=name)))
        await play(store, creating(key=KEY._replace(user_id="else")))
        listed = await store.sessions.list_sessions("app", "user")
        times = [one.session.last_update_time_ms for one in listed]
        assert {one.session.session_id for one in listed} == {"a", "b"}
        assert times == sorted(times, reverse=True)
        assert all(one.events == [] for one in listed)
        assert await store.sessions.list_sessions("app", "nobody") == []

    async def test_apps_with_sessions_are_listed(self, open_store: OpenStore) -> None:
        store = await open_store()
        assert await store.sessions.list_session_apps("", MANY) == []
        for app in ("shop", "desk"):
            for user in ("ada", "bob"):
                await play(store, creating(key=KEY._replace(app_name=app, user_id=user)))
        assert await store.sessions.list_session_apps("", MANY) == ["desk", "shop"]
        assert await store.sessions.list_session_apps("desk", MANY) == ["shop"]
        assert await store.sessions.list_session_apps("", 1) == ["desk"]

    async def test_integers_of_any_size_survive_a_merge(self, open_store: OpenStore) -> None:
        store = await open_store()
        large = str(10**40)
        await play(store, creating(f'{{"large": {large}}}'))
        await play(store, appending("e1", '{"small": 1}'))
        found = await store.sessions.get_session(KEY, MANY)
        assert found is not None
        assert large in found.session.state_json

    async def test_a_run_appends_with_its_token_and_number(self, open_store: OpenStore) -> None:
        store = await open_store()
        await save_run(store, a_run("r"))
        await play(store, creating())
        outcomes = await attempt(
            store, appending("e1", run=("r", 1)), appending("e2", run=("r", 2)),
            appending("e3", run=("r", 1)),
        )  # fmt: skip
        assert [isinstance(one, Exception) for one in outcomes] == [False, True, False]
        assert [entry.seq for entry in await store.read_run("r", 0, MANY)] == [1, 2]
