"""Any sequence of moves leaves a store as a plain Python model says it should be."""

import json
from dataclasses import dataclass, field
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tape.model.event import NewEvent
from tape.model.session import AppendEvent, CreateSession, DeleteSession, SessionEvent, SessionKey
from tape.model.value import Author, DeleteValue, WriteValue
from tape.ports.store import Store
from tests.conformance.playing import (
    IDS,
    LIMITS,
    MANY,
    OpenStore,
    a_run,
    attempt,
    read_all,
    recording,
    save_run,
)

Step = tuple[str, Any, Any, Any]

KEYS = st.sampled_from(["a", "b"])
JSON = st.sampled_from(["1", '"ä"', "null", '{"x": [1]}'])
OBJECTS = st.sampled_from(["{}", '{"x": 1}', '{"x": 2, "y": "€"}'])
STEPS = st.one_of(
    st.tuples(st.just("record"), st.sampled_from(["", "k1", "k2"]), JSON, st.integers(0, 2)),
    st.tuples(st.just("write"), KEYS, JSON, st.integers(-1, 4)),
    st.tuples(st.just("delete"), KEYS, st.none(), st.none()),
    st.tuples(st.just("create"), KEYS, OBJECTS, st.none()),
    st.tuples(st.just("append"), KEYS, OBJECTS, st.sampled_from(["e1", "e2", "e3"])),
    st.tuples(st.just("drop"), KEYS, st.none(), st.none()),
)


@dataclass
class Model:
    """What should be there: entries by subject, live rows, and the keys that were used."""

    subjects: list[str] = field(default_factory=list)
    keys: set[str] = field(default_factory=set)
    run_seq: int = 0
    values: dict[str, tuple[str | None, int]] = field(default_factory=dict)
    sessions: dict[str, tuple[dict[str, Any], list[str]]] = field(default_factory=dict)

    def play(self, step: Step) -> bool:
        """Whether it is accepted."""
        verb, name, text, number = step
        return bool(getattr(self, f"_{verb}")(name, text, number))

    def _record(self, key: str, _text: str, token: int) -> bool:
        if token == 2:
            return False
        if not key or key not in self.keys:
            self.subjects.append("event/recorded")
            self.keys.add(key)
            self.run_seq += token
        return True

    def _write(self, key: str, text: str, if_version: int) -> bool:
        before, version = self.values.get(key, (None, 0))
        if if_version >= 0 and if_version != (version if before is not None else 0):
            return False
        self.values[key] = (text, version + 1)
        self.subjects.append("value/changed")
        return True

    def _delete(self, key: str, _text: None, _number: None) -> bool:
        before, version = self.values.get(key, (None, 0))
        if before is not None:
            self.values[key] = (None, version + 1)
            self.subjects.append("value/deleted")
        return True

    def _create(self, name: str, state: str, _number: None) -> bool:
        if name not in self.sessions:
            self.sessions[name] = (json.loads(state), [])
            self.subjects.append("session/created")
        return True

    def _append(self, name: str, delta: str, event_id: str) -> bool:
        if name not in self.sessions:
            return False
        state, events = self.sessions[name]
        if event_id not in events:
            events.append(event_id)
            state.update(json.loads(delta))
            self.subjects.append("event/appended")
        return True

    def _drop(self, name: str, _text: None, _number: None) -> bool:
        if self.sessions.pop(name, None) is not None:
            self.subjects.append("session/deleted")
        return True


def move_of(step: Step, world: str) -> Any:
    """The move of a step, its names prefixed so that each example has a world of its own."""
    verb, name, text, number = step
    session = SessionKey(world, "u", name)
    match verb:
        case "record":
            run_id = world if number else ""
            event = NewEvent("e", text, run_id=run_id, fencing_token=number)
            return recording(event._replace(idempotency_key=name and world + name))
        case "write":
            return WriteValue(
                world, name, text, number, author=Author(), event_id=next(IDS), limits=LIMITS
            )
        case "delete":
            return DeleteValue(world, name, Author(), next(IDS), LIMITS)
        case "create":
            return CreateSession(session, text, next(IDS), LIMITS)
        case "append":
            event_id = next(IDS)
            return AppendEvent(
                session, SessionEvent(number), text, event_id=event_id, limits=LIMITS
            )
        case "drop":
            return DeleteSession(session, next(IDS), LIMITS)
    raise AssertionError(verb)


async def expect_equal(store: Store, model: Model, world: str, after: int) -> None:
    entries = await read_all(store, after)
    assert ["/".join(e.subject.split("/")[2:4]) for e in entries] == model.subjects
    assert [e.seq for e in await store.read_run(world, 0, MANY)] == list(
        range(1, model.run_seq + 1)
    )
    living = {k: v for k, v in model.values.items() if v[0] is not None}
    listed = await store.values.list_values(world, "", MANY)
    assert {v.key: (v.value_json, v.version) for v in listed} == living
    for key, (text, version) in model.values.items():
        value = await store.values.get_value(world, key)
        assert value is not None
        assert (value.version, value.deleted) == (version, text is None)
    for name in ("a", "b"):
        found = await store.sessions.get_session(SessionKey(world, "u", name), MANY)
        assert (found is not None) == (name in model.sessions)
        if found is not None:
            state, events = model.sessions[name]
            assert json.loads(found.session.state_json) == state
            assert [event.id for event in found.events] == events


class SequencesContract:
    @settings(
        max_examples=30,
        deadline=None,
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    )
    @given(batches=st.lists(st.lists(STEPS, min_size=1, max_size=8), max_size=6))
    async def test_any_sequence_ends_as_the_model_says(
        self, open_store: OpenStore, batches: list[list[Step]]
    ) -> None:
        store = await open_store()
        world, after = next(IDS), (await store.info()).head_global_seq
        await save_run(store, a_run(world))
        model = Model()
        for batch in batches:
            expected = [model.play(step) for step in batch]
            outcomes = await attempt(store, *[move_of(step, world) for step in batch])
            accepted = [not isinstance(outcome, Exception) for outcome in outcomes]
            assert accepted == expected, [o for o in outcomes if isinstance(o, Exception)]
        await expect_equal(store, model, world, after)
