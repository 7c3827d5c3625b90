"""Effects are called in a unit test, without a run and without a store."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tape
from tape.errors import InvalidArgument
from tape.runs.declare import Apps
from tape.testing import effects

APPS = Apps()
ATTEMPTS: list[str] = []


@tape.effect(registry=APPS)
def charge(account: str, *, cents: int) -> dict[str, Any]:
    return {"account": account, "cents": cents, "key": tape.idempotency_key()}


@tape.effect(registry=APPS)
async def refund(cents: int) -> Any:
    await asyncio.sleep(0)
    return cents, tape.idempotency_key()


@tape.effect(registry=APPS, retry=tape.RetryPolicy(attempts=3))
def decline() -> None:
    ATTEMPTS.append(tape.idempotency_key())
    raise ValueError("no funds")


@tape.effect(registry=APPS)
def nested() -> Any:
    return charge("ada", cents=1)


@tape.effect(registry=APPS)
def drawing() -> Any:
    return tape.random()


@tape.effect(registry=APPS)
def unwritable() -> Any:
    return object()


@pytest.fixture
def without_run() -> Iterator[None]:
    with effects():
        yield


def test_a_synchronous_one() -> None:
    with tape.testing.effects():
        first, second = charge("ada", cents=5), charge("bob", cents=6)
    assert first == {"account": "ada", "cents": 5, "key": "test-run/decision-0/charge/0"}
    assert second["key"] == "test-run/decision-0/charge/1"


async def test_an_asynchronous_one_gives_what_json_makes_of_its_result() -> None:
    with effects():
        assert await refund(5) == [5, "test-run/decision-0/refund/0"]


async def test_many_at_once() -> None:
    with effects():
        done = await asyncio.gather(*(refund(cents) for cents in range(3)))
    assert done == [[n, f"test-run/decision-0/refund/{n}"] for n in range(3)]


async def test_the_key_can_be_given() -> None:
    with effects(key="order-17"):
        assert charge("ada", cents=5)["key"] == "order-17"
        assert await refund(5) == [5, "order-17"]


def test_as_a_fixture(without_run: None) -> None:
    assert charge("ada", cents=5)["cents"] == 5


async def test_as_a_fixture_of_an_asynchronous_test(without_run: None) -> None:
    assert (await refund(5))[0] == 5


def test_what_it_raises_is_raised_once_and_as_it_is() -> None:
    ATTEMPTS.clear()
    with effects(), pytest.raises(ValueError, match="no funds"):
        decline()
    assert len(ATTEMPTS) == 1


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (nested, "effect charge cannot be called in effect 'nested'"),
        (drawing, "random works only in a run"),
        (unwritable, "result of unwritable: cannot be written as JSON"),
        (lambda: charge("ada", cents=object()), "arguments of charge: cannot be written"),  # type: ignore[arg-type]
    ],
    ids=["an effect in an effect", "a step in an effect", "a result", "an argument"],
)
def test_what_a_run_would_refuse_is_refused(call: Any, says: str) -> None:
    with effects(), pytest.raises(InvalidArgument) as refused:
        call()
    assert says in str(refused.value)


def test_outside_the_error_names_the_remedy() -> None:
    remedy = r"in a unit test, call the effect inside `with tape\.testing\.effects\(\):`"
    with effects():
        charge("ada", cents=5)
    for call in (lambda: charge("ada", cents=5), tape.idempotency_key):
        with pytest.raises(InvalidArgument, match=remedy):
            call()


def test_a_run_inside_is_a_run(tmp_path: Path) -> None:
    @tape.app("paying", registry=Apps())
    def paying(ctx: tape.SyncContext) -> Any:
        return charge("ada", cents=5)["key"]

    with effects(), tape.connect(f"sqlite:{tmp_path}/tape.db") as client:
        assert not client.run(paying).startswith("test-run")
        (run,) = client.list_runs()
        assert "effect" in {entry.kind for entry in client.read_run(run.run_id)}
