"""Declared subscriptions through every kind of URL: registered, moved, looked at, and helped."""

from base64 import b64decode
from pathlib import Path
from typing import Any

import orjson
import pytest

import tape
from tests.integration.grpc.listening import ORIGIN, document, hand_over

TEXT = document("one.two-3")
NAME = "one.two-3"


async def test_a_document_is_registered_once_in_whatever_form(url: str, tmp_path: Path) -> None:
    file = tmp_path / "inbox.yaml"
    file.write_text(TEXT)
    async with tape.connect_async(url) as client:
        made = await client.register_subscription(TEXT)
        assert (made.is_new, made.is_changed) == (True, True)
        subscription = made.view.subscription
        assert (subscription.name, subscription.state, subscription.revision) == (
            NAME, "registered", 1,
        )  # fmt: skip
        assert (made.view.listener.backlog, made.view.is_held) == (-1, False)
        parsed = orjson.loads(made.view.document_json)
        for same in (TEXT, file, parsed, orjson.dumps(parsed).decode()):
            again = await client.register_subscription(same)
            assert (again.is_new, again.is_changed, again.view) == (False, False, made.view)
        assert await client.subscription(NAME) == made.view
        assert await client.subscriptions() == [made.view]
        parsed["spec"]["dispatch"]["playbook"] = "other"
        changed = await client.register_subscription(parsed)
        assert (changed.is_new, changed.is_changed) == (False, True)
        assert changed.view.subscription.revision == 2


async def test_refusals(url: str, tmp_path: Path) -> None:
    latin = tmp_path / "latin.yaml"
    latin.write_bytes(b"kind: \xe9\n")
    broken: list[tuple[Any, str, str]] = [
        (TEXT.replace("continuous", "sometimes"), "spec.activation", "line 7"),
        ("inbox.yaml", "document", "is the name of a file"),
        (latin, str(latin), "is not UTF-8"),
        (7, "document", "must be text, a path or a mapping, not int"),
        ({"kind": {1}}, "document", "document"),
    ]
    async with tape.connect_async(url) as client:
        for text, field, said in broken:
            with pytest.raises(tape.InvalidArgument, match=said) as refused:
                await client.register_subscription(text)
            assert refused.value.field == field
        with pytest.raises(tape.NotFound, match="no subscription 'none'"):
            await client.subscription("none")
        with pytest.raises(tape.NotFound):
            await client.move_subscription("none", "activate")
        await client.register_subscription(TEXT)
        with pytest.raises(tape.WrongState, match="to pause it, it must be active") as wrong:
            await client.move_subscription(NAME, "pause")
        assert wrong.value.state == "registered"
        with pytest.raises(tape.InvalidArgument, match="'open' is not one of activate, pause"):
            await client.move_subscription(NAME, "open")
        assert await client.delete_subscription("none") is False
        assert (await client.subscription(NAME)).subscription.state == "registered"


async def test_it_is_moved_through_its_life(url: str) -> None:
    async with tape.connect_async(url) as client:
        await client.register_subscription(TEXT)
        for verb, state in (
            ("activate", "active"),
            ("activate", "active"),
            ("pause", "paused"),
            ("resume", "active"),
            ("drain", "deactivated"),  # nothing is in hand
            ("activate", "active"),
            ("deactivate", "deactivated"),
        ):
            view = await client.move_subscription(NAME, verb)
            assert view.subscription.state == state
        assert await client.delete_subscription(NAME) is True
        assert await client.subscriptions() == []


async def test_dead_letters_are_looked_at_and_settled(url: str) -> None:
    async with tape.connect_async(url) as client:
        await client.register_subscription(TEXT)
        await client.move_subscription(NAME, "activate")
        await hand_over(client, b'"fine"', b"\xff1", b"2x", b"3x", b"4x", name=NAME)
        letters = await client.subscription_dead_letters(NAME)
        assert [b64decode(each.body) for each in letters] == [b"\xff1", b"2x", b"3x", b"4x"]
        assert [letter.reason for letter in letters] == ["not_json"] * 4
        assert orjson.loads(letters[0].headers_json) == [["X-A", "/w=="], ["x-a", "MQ=="]]
        ids = [letter.letter_id for letter in letters]
        assert await client.subscription_dead_letters(NAME, limit=2) == letters[:2]
        assert await client.subscription_dead_letters(NAME, after=ids[1]) == letters[2:]
        for letter in letters:
            assert await client.subscription_dead_letter(NAME, letter.letter_id) == letter
        for missing in ("none", "", ids[0][:-1], ids[0] + "0", "\x01", "é"):
            assert await client.subscription_dead_letter(NAME, missing) is None
        assert await client.replay_subscription_dead_letters(NAME, ids[:1]) == 0
        again = await client.subscription_dead_letter(NAME, ids[0])
        assert again is not None
        assert again.attempts == 2
        assert await client.drop_subscription_dead_letters(NAME, [ids[1], ids[1], "none"]) == 1
        lenient = orjson.loads((await client.subscription(NAME)).document_json)
        lenient["spec"]["dispatch"]["payload_from"] = "message.body"
        await client.register_subscription(lenient)
        assert await client.replay_subscription_dead_letters(NAME, [ids[2]]) == 1
        assert await client.replay_subscription_dead_letters(NAME) == 2
        assert await client.subscription_dead_letters(NAME) == []
        counts = (await client.subscription(NAME)).listener
        assert (counts.accepted, counts.dead_lettered, counts.replayed) == (1, 4, 3)
        runs = await client.list_runs(app_name="read_line")
        places = {run.invocation_id for run in runs}
        assert places == {f"{ORIGIN}/{number}" for number in (1, 2, 4, 5)}


def test_without_an_event_loop(sqlite_url: str) -> None:
    with tape.connect(sqlite_url) as client:
        assert client.register_subscription(TEXT).is_new
        view: tape.SubscriptionView = client.move_subscription(NAME, "activate")
        assert view.subscription.state == "active"
        assert client.subscription(NAME) == client.subscriptions()[0] == view
        assert client.subscription_dead_letters(NAME) == []
        assert client.subscription_dead_letter(NAME, "x") is None
        assert client.replay_subscription_dead_letters(NAME) == 0
        assert client.drop_subscription_dead_letters(NAME) == 0
        client.move_subscription(NAME, "deactivate")
        assert client.delete_subscription(NAME) is True
