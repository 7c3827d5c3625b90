"""Registering a subscription, moving it from state to state, and deleting it."""

import pytest

from tape.errors import InvalidArgument, NotFound, TooLarge, WrongState
from tape.model.subscription import (
    GATEWAY_PATHS,
    LISTENERS,
    SUBSCRIPTION_REVISIONS,
    SUBSCRIPTIONS,
    SubscriptionRevision,
    SubscriptionState,
    SubscriptionVerb,
)
from tape.model.subscription_moves import DeleteSubscription
from tests.conformance.playing import IDS, LIMITS
from tests.conformance.subscribing import PULL, PUSH
from tests.unit.model.subscription_world import START_MS, World

STATES = [state.value for state in SubscriptionState]
VERBS = [verb.value for verb in SubscriptionVerb]
LEADS_TO = {
    ("registered", "activate"): ("active", ["activated"]),
    ("deactivated", "activate"): ("active", ["activated"]),
    ("active", "pause"): ("paused", ["paused"]),
    ("paused", "resume"): ("active", ["resumed"]),
    ("active", "drain"): ("deactivated", ["draining", "deactivated"]),
    ("paused", "drain"): ("deactivated", ["draining", "deactivated"]),
    ("active", "deactivate"): ("deactivated", ["deactivated"]),
    ("paused", "deactivate"): ("deactivated", ["deactivated"]),
    ("draining", "deactivate"): ("deactivated", ["deactivated"]),
}
HOLDS_ALREADY = {
    ("active", "activate"), ("paused", "pause"), ("active", "resume"), ("draining", "drain"),
    ("deactivated", "drain"), ("deactivated", "deactivate"),
}  # fmt: skip


def world_in(state: str) -> World:
    world = World()
    world.register()
    registered = world.subscription()
    world.state.put_loaded(SUBSCRIPTIONS, [registered._replace(state=state)])
    return world


def delete(world: World, name: str = "s") -> bool:
    return bool(world.play(DeleteSubscription(name, next(IDS), LIMITS)))


def test_a_new_one_has_its_first_revision_and_a_listener_that_nobody_is() -> None:
    world = World()
    registration = world.register()
    assert (registration.is_new, registration.is_changed) == (True, True)
    row = world.subscription()
    assert row == registration.subscription
    assert (row.path, row.state, row.revision) == ("subscriptions/s", "registered", 1)
    assert row.created_at_ms == row.changed_at_ms == START_MS
    revision = world.state.get(SUBSCRIPTION_REVISIONS, ("s", 1))
    assert revision == SubscriptionRevision("s", 1, '{"v":1}', START_MS)
    assert (world.listener().lease_owner, world.listener().revision) == ("", 0)
    (payload,) = world.payloads("registered")
    assert payload == {"name": "s", "revision": 1, "state": "registered", "document": {"v": 1}}


def test_the_same_document_again_changes_nothing() -> None:
    world = World().active()
    before, words = world.subscription(), world.words
    registration = world.register()
    assert registration == (before, False, False)
    assert (world.subscription(), world.words) == (before, words)


def test_another_document_is_another_revision_and_leaves_the_state() -> None:
    world = World().active()
    world.later(5)
    registration = world.register(PULL._replace(document_json='{"v":2}', listener_pool="iot"))
    assert (registration.is_new, registration.is_changed) == (False, True)
    row = world.subscription()
    assert (row.state, row.revision, row.listener_pool) == ("active", 2, "iot")
    assert (row.created_at_ms, row.changed_at_ms) == (START_MS, START_MS + 5)
    assert [world.state.get(SUBSCRIPTION_REVISIONS, ("s", n)) is not None for n in (1, 2, 3)] == [
        True, True, False,
    ]  # fmt: skip
    world.register()  # as it was at first, and yet a revision: the order of documents is kept
    assert world.subscription().revision == 3


def test_a_gateway_path_belongs_to_one_subscription() -> None:
    world = World().active(PUSH)
    other = PUSH._replace(name="q", document_json='{"q":1}')
    with pytest.raises(InvalidArgument, match="belongs to the subscription 'p'") as refused:
        world.register(other)
    assert refused.value.field == "spec.ingress.gateway_path"
    assert world.state.get(SUBSCRIPTIONS, "q") is None
    world.register(PUSH._replace(document_json='{"v":2}'))  # its own it may keep
    world.register(PUSH._replace(document_json='{"v":3}', gateway_path="/ingress/new"))
    world.register(other)
    assert world.state.get(GATEWAY_PATHS, "/ingress/p") == ("/ingress/p", "q")
    assert world.state.get(GATEWAY_PATHS, "/ingress/new") == ("/ingress/new", "p")


def test_its_mode_changes_only_while_nobody_listens() -> None:
    world = World().active()
    push = PUSH._replace(name="s", document_json='{"v":2}')
    with pytest.raises(WrongState, match="deactivate it before") as refused:
        world.register(push)
    assert refused.value.state == "active"
    world.move("deactivate")
    assert world.register(push).is_changed


def test_names_are_bounded() -> None:
    with pytest.raises(TooLarge) as refused:
        World().register(PULL._replace(name="n" * 600))
    assert refused.value.field == "metadata.name"


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("state", STATES)
def test_the_table_of_moves(state: str, verb: str) -> None:
    world = world_in(state)
    before, words = world.subscription(), world.words
    if (state, verb) in LEADS_TO:
        to, told = LEADS_TO[state, verb]
        assert world.move(verb).state == world.subscription().state == to
        assert world.words == [*words, *told]
        payload = world.payloads(told[0])[-1]
        assert (payload["name"], payload["before"], payload["revision"]) == ("s", state, 1)
    elif (state, verb) in HOLDS_ALREADY:
        assert world.move(verb) == before
        assert (world.subscription(), world.words) == (before, words)
    else:
        with pytest.raises(WrongState, match=f"is {state}") as refused:
            world.move(verb)
        assert refused.value.state == state
        assert (world.subscription(), world.words) == (before, words)


def test_nothing_is_moved_that_is_not_there() -> None:
    with pytest.raises(NotFound, match="no subscription 's'"):
        World().move("activate")
    assert delete(World()) is False


def test_activating_it_again_forgets_what_was_due_and_what_was_wrong() -> None:
    world = World().active()
    row = world.listener()._replace(due_at_ms=5, last_error="refused", accepted=3)
    world.state.put_loaded(LISTENERS, [row])
    world.move("deactivate")
    assert world.listener() == row
    world.move("activate")
    assert world.listener() == row._replace(due_at_ms=0, last_error="")


@pytest.mark.parametrize("state", STATES)
def test_only_one_that_is_not_in_use_is_deleted(state: str) -> None:
    world = world_in(state)
    if state in ("registered", "deactivated"):
        assert delete(world) is True
        assert world.payloads("deleted")[0]["before"] == state
        return
    with pytest.raises(WrongState, match="deactivate it first") as refused:
        delete(world)
    assert refused.value.state == state
    assert world.subscription().state == state


def test_what_is_left_of_a_deleted_one_must_go_before_its_name_comes_back() -> None:
    world = World().active(PUSH)
    world.move("deactivate", "p")
    assert delete(world, "p") is True
    assert world.state.get(SUBSCRIPTIONS, "p") is None
    assert world.state.get(GATEWAY_PATHS, PUSH.gateway_path) is None
    assert world.words[-1] == "deleted"
    assert delete(world, "p") is False
    assert world.register(PUSH) == (None, False, False)
    assert world.state.get(SUBSCRIPTIONS, "p") is None
    world.state._delete(LISTENERS, "p")
    assert world.register(PUSH).is_new


def test_no_token_of_a_namesake_is_good() -> None:
    world = World().active()
    token = world.take()
    world.move("deactivate")
    delete(world)
    world.state._delete(LISTENERS, "s")
    world.later(1_000)
    world.active()
    assert world.take() > token
