"""The stream: made and changed without losing anything, refused clearly where that cannot be."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import orjson
import pytest

from tape.brokers.jetstream import apply_stream, check_stream, differences, new_config, read_stream
from tape.brokers.nats_bus import open_connection
from tape.brokers.nats_connection import NatsConnection
from tape.errors import BrokerUnavailable, InvalidArgument, NotFound
from tape.settings import StreamSettings
from tests.servers.nats import NatsServer


@pytest.fixture
async def connection(nats_url: str) -> AsyncIterator[NatsConnection]:
    opened = await open_connection(nats_url, field="nats")
    yield opened
    await opened.close()


@pytest.fixture
def settings(prefix: str) -> StreamSettings:
    return StreamSettings(name=prefix, subjects=(f"{prefix}.a.>",), max_bytes=1 << 20)


async def config_of(connection: NatsConnection, settings: StreamSettings) -> dict[str, Any]:
    config: dict[str, Any] = (await read_stream(connection, settings.name))["config"]
    return config


async def test_it_is_made_as_the_seed_says(
    connection: NatsConnection, settings: StreamSettings
) -> None:
    assert (await apply_stream(connection, settings)).outcome == "created"
    config = await config_of(connection, settings)
    shape = ("retention", "storage", "discard", "max_age", "max_bytes", "duplicate_window")
    week_ns = 168 * 3600 * 10**9
    assert [config[name] for name in shape] == [
        "limits", "file", "old", week_ns, 1 << 20, 120 * 10**9,
    ]  # fmt: skip
    assert (await apply_stream(connection, settings)).outcome == "unchanged"


async def test_what_loses_nothing_is_applied_and_the_rest_stays(
    connection: NatsConnection, settings: StreamSettings, prefix: str
) -> None:
    await apply_stream(connection, settings)
    config = {**await config_of(connection, settings), "max_msg_size": 5_000, "description": "ours"}
    await connection.client.request(f"$JS.API.STREAM.UPDATE.{prefix}", orjson.dumps(config))
    await connection.jetstream.publish(f"{prefix}.a.b", b"kept")
    more = replace(
        settings, subjects=(*settings.subjects, f"{prefix}.b"), max_bytes=1 << 21,
        max_age_s=700_000.0, duplicate_window_s=240.0,
    )  # fmt: skip
    applied = await apply_stream(connection, more)
    assert applied.outcome == "updated"
    assert [c.field for c in applied.changes] == [
        "subjects", "max_age_s", "max_bytes", "duplicate_window_s",
    ]  # fmt: skip
    config = await config_of(connection, settings)
    assert (config["max_msg_size"], config["description"]) == (5_000, "ours")
    assert differences(config, more) == []
    assert (await read_stream(connection, prefix))["state"]["messages"] == 1


LOSING = [
    ({"max_bytes": 1 << 10}, "max_bytes", "max_bytes is 1048576, wanted 1024"),
    ({"max_age_s": 3600.0}, "max_age_s", "max_age_s is 604800, wanted 3600"),
    ({"subjects": ("other.>",)}, "subjects", "wanted other.>"),
    ({"duplicate_window_s": 1.0}, "duplicate_window_s", "is 120, wanted 1"),
]


@pytest.mark.parametrize(("changed", "field", "told"), LOSING)
async def test_what_could_lose_messages_is_refused_unless_forced(
    connection: NatsConnection, settings: StreamSettings, prefix: str, changed: dict[str, Any],
    field: str, told: str,
) -> None:  # fmt: skip
    await apply_stream(connection, settings)
    if "subjects" in changed:
        changed = {"subjects": (f"{prefix}.other.>",)}
        told = f"subjects is {prefix}.a.>, wanted {prefix}.other.>"
    less = replace(settings, **changed)
    before = await config_of(connection, settings)
    with pytest.raises(InvalidArgument, match="could lose messages") as refusal:
        await apply_stream(connection, less)
    assert refusal.value.field == f"tape.stream.{field}"
    assert told in str(refusal.value)
    assert await config_of(connection, settings) == before
    assert (await apply_stream(connection, less, force=True)).outcome == "updated"
    assert differences(await config_of(connection, settings), less) == []


async def test_what_a_stream_cannot_change_is_refused_even_then(
    connection: NatsConnection, settings: StreamSettings, prefix: str
) -> None:
    await connection.jetstream.add_stream(
        name=prefix, subjects=list(settings.subjects), storage="memory", retention="workqueue"
    )
    with pytest.raises(InvalidArgument, match="storage is memory, wanted file") as refusal:
        await apply_stream(connection, settings, force=True)
    assert "retention is workqueue, wanted limits" in str(refusal.value)
    assert "name another stream" in str(refusal.value)


async def test_a_stream_without_limits_is_not_given_any_unasked(
    connection: NatsConnection, settings: StreamSettings, prefix: str
) -> None:
    await connection.jetstream.add_stream(name=prefix, subjects=list(settings.subjects))
    with pytest.raises(InvalidArgument, match="max_bytes is without a limit, wanted"):
        await apply_stream(connection, settings)


async def test_two_who_make_it_at_once_both_have_it(
    nats_url: str, settings: StreamSettings, prefix: str
) -> None:
    connections = [await open_connection(nats_url, field="nats") for _ in range(6)]
    wider = replace(settings, subjects=(*settings.subjects, f"{prefix}.b"))
    wanted = [settings, settings, settings, wider, wider, settings]
    done = await asyncio.gather(
        *(apply_stream(c, w) for c, w in zip(connections, wanted, strict=True)),
        return_exceptions=True,
    )
    # Whoever wants fewer subjects than another has given it is refused; nobody fails otherwise.
    assert all(isinstance(one, InvalidArgument) or one.outcome for one in done)  # type: ignore[union-attr]
    assert f"{prefix}.b" in (await config_of(connections[0], settings))["subjects"]
    for connection in connections:
        await connection.close()


async def test_the_stream_that_has_a_subject_is_named(
    connection: NatsConnection, settings: StreamSettings, prefix: str
) -> None:
    await apply_stream(connection, settings)
    with pytest.raises(InvalidArgument, match=f"{prefix}.a.b is taken by the stream {prefix}:"):
        await apply_stream(
            connection, replace(settings, name=f"{prefix}-2", subjects=(f"{prefix}.a.b",))
        )


async def test_a_stream_that_is_not_there(connection: NatsConnection) -> None:
    with pytest.raises(NotFound, match="no stream nobody-made"):
        await read_stream(connection, "nobody-made")


async def test_a_server_without_jetstream() -> None:
    with NatsServer() as server:
        url = f"nats://{server.address}"
        server.kill()
        with pytest.raises(BrokerUnavailable):
            await open_connection(url, field="nats")


@pytest.mark.parametrize(
    ("changed", "field", "told"),
    [
        ({"name": "a.b"}, "tape.stream.name", "letters, digits"),
        ({"subjects": ("a.B",)}, "tape.stream.subjects[0]", "a.b"),
        ({"subjects": ("a", "a")}, "tape.stream.subjects[1]", "is listed twice"),
        ({"subjects": ("a.>.b",)}, "tape.stream.subjects[0]", "only be the last"),
        ({"duplicate_window_s": 7e5}, "tape.stream.duplicate_window_s", "longer than max_age_s"),
    ],
)
def test_what_no_stream_can_be(changed: dict[str, Any], field: str, told: str) -> None:
    with pytest.raises(InvalidArgument, match=told) as refusal:
        check_stream(replace(StreamSettings(subjects=("x.>",)), **changed))
    assert refusal.value.field == field


async def test_no_subjects_is_no_stream(connection: NatsConnection, prefix: str) -> None:
    with pytest.raises(InvalidArgument, match="say which subjects"):
        await apply_stream(connection, StreamSettings(name=prefix))


def test_a_new_one_is_like_its_settings() -> None:
    settings = StreamSettings(subjects=("a.>", "b"))
    assert differences(new_config(settings), settings) == []
