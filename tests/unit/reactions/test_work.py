"""What is done with a task: a handler is called, or a broker is given the entry."""

import asyncio
import threading
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import pytest

from tape.errors import BrokerError, BrokerRefused, BrokerUnavailable, GiveUp
from tape.model.entry import Entry
from tape.model.task import Task, TaskOutcome, TaskStatus
from tape.ports.broker import Outgoing
from tape.predicates import ENVELOPE
from tape.reactions.threads import HandlerThreads
from tape.reactions.work import BrokerAway, CallHandler, Handler, PublishTasks, handler_envelope


def a_task(seq: int = 7, **fields: Any) -> Task:
    entry = Entry(
        seq, "run-1", 3, "value", "/tape/value/changed/ns/key", '{"prev_value_json":"1","x":[2]}',
        2, "a" * 32, "b" * 16, "", 1_000, f"event-{seq}", "type", "desk", "9", "cause", "src",
        900, "key",
    )  # fmt: skip
    plain = Task(
        f"r/0/{seq}",
        "r",
        0,
        seq,
        TaskStatus.CLAIMED.value,
        2,
        0,
        "me",
        9_000,
        8_000,
        "",
        7_000,
        0,
        entry,
    )
    return plain._replace(**fields)


@pytest.fixture
def threads() -> Iterator[HandlerThreads]:
    executor = HandlerThreads(4)
    yield executor
    executor.shutdown()


async def outcome_of(handler: Handler, threads: HandlerThreads, task: Task) -> TaskOutcome:
    (outcome,) = await CallHandler(handler, threads).do([task])
    return outcome


async def test_a_plain_handler_runs_in_a_thread(threads: HandlerThreads) -> None:
    ran: list[threading.Thread] = []
    outcome = await outcome_of(lambda _: ran.append(threading.current_thread()), threads, a_task())
    assert outcome == TaskOutcome("r/0/7")
    (thread,) = ran
    assert thread is not threading.main_thread()
    assert thread.daemon, "a handler that never returns would keep the process from ending"


def test_a_handler_is_given_all_that_a_predicate_can_name() -> None:
    given = handler_envelope(a_task())
    assert ENVELOPE.keys() <= given.keys()
    names = ("event_type", "entity_type", "entity_id", "caused_by", "source", "idempotency_key")
    assert [given[name] for name in names] == ["type", "desk", "9", "cause", "src", "key"]


async def test_an_asynchronous_handler_runs_on_the_loop(threads: HandlerThreads) -> None:
    ran: list[asyncio.AbstractEventLoop] = []

    async def handler(envelope: dict[str, Any]) -> None:
        ran.append(asyncio.get_running_loop())

    call = CallHandler(handler, threads)
    assert not call.threaded
    assert await call.do([a_task()]) == [TaskOutcome("r/0/7")]
    assert ran == [asyncio.get_running_loop()]


async def test_what_a_plain_function_leaves_to_be_awaited_is_awaited(
    threads: HandlerThreads,
) -> None:
    done: list[int] = []

    async def later(envelope: dict[str, Any]) -> None:
        await asyncio.sleep(0)
        done.append(envelope["global_seq"])

    def plain(envelope: dict[str, Any]) -> Any:
        return later(envelope)

    assert await outcome_of(plain, threads, a_task()) == TaskOutcome("r/0/7")
    assert await outcome_of(partial(later), threads, a_task(8)) == TaskOutcome("r/0/8")
    assert done == [7, 8]


async def test_a_handler_is_given_all_there_is_to_know(threads: HandlerThreads) -> None:
    seen: list[dict[str, Any]] = []
    await outcome_of(seen.append, threads, a_task())
    assert seen == [
        {
            "global_seq": 7,
            "run_id": "run-1",
            "seq": 3,
            "kind": "value",
            "subject": "/tape/value/changed/ns/key",
            "ts_ms": 1_000,
            "schema_version": 2,
            "trace_id": "a" * 32,
            "payload": {"prev_value_json": "1", "x": [2]},
            "prev_value_json": "1",
            "span_id": "b" * 16,
            "event_id": "event-7",
            "event_type": "type",
            "entity_type": "desk",
            "entity_id": "9",
            "caused_by": "cause",
            "source": "src",
            "occurred_at_ms": 900,
            "idempotency_key": "key",
            "task_id": "r/0/7",
            "reaction_id": "r",
            "attempt": 2,
        }
    ]


@pytest.mark.parametrize("on_the_loop", [False, True])
@pytest.mark.parametrize(
    ("error", "verdict", "told"),
    [
        (ValueError("no\0pe"), "failed", "ValueError: no\0pe"),
        (KeyError("x"), "failed", "KeyError: 'x'"),
        (GiveUp("for good"), "refused", "GiveUp: for good"),
        (TimeoutError(), "failed", "TimeoutError: "),
        (SystemExit(3), "failed", "RuntimeError: SystemExit(3)"),
        (KeyboardInterrupt(), "failed", "RuntimeError: KeyboardInterrupt()"),
        (asyncio.CancelledError(), "failed", "RuntimeError: CancelledError()"),
        (BaseException("own"), "failed", "RuntimeError: BaseException('own')"),
    ],
)
async def test_what_a_handler_raises_is_its_tasks_failure(
    threads: HandlerThreads, error: BaseException, verdict: str, told: str, on_the_loop: bool
) -> None:
    def plain(envelope: dict[str, Any]) -> None:
        raise error

    async def asynchronous(envelope: dict[str, Any]) -> None:
        raise error

    outcome = await outcome_of(asynchronous if on_the_loop else plain, threads, a_task())
    assert outcome[:3] == ("r/0/7", verdict, told)


async def test_a_task_whose_entry_is_gone_is_refused(threads: HandlerThreads) -> None:
    gone = a_task(entry=a_task().entry._replace(event_id=""))
    called: list[object] = []
    outcome = await outcome_of(called.append, threads, gone)
    assert (outcome.verdict, called) == ("refused", [])


class FakeBroker:
    """Answers as it is told."""

    def __init__(self, *answers: BrokerError | None) -> None:
        self._answers = answers
        self.given: list[Outgoing] = []

    async def publish(self, messages: Sequence[Outgoing]) -> list[BrokerError | None]:
        self.given += messages
        return list(self._answers[: len(messages)])

    async def close(self) -> None: ...


async def test_what_the_broker_took_is_done_and_what_it_refused_is_refused() -> None:
    broker = FakeBroker(None, BrokerRefused("too large"))
    outcomes = await PublishTasks(broker).do([a_task(1), a_task(2)])
    assert outcomes == [
        TaskOutcome("r/0/1"),
        TaskOutcome("r/0/2", "refused", "BrokerRefused: too large"),
    ]


async def test_what_is_behind_a_refused_message_was_not_tried_and_is_given_back() -> None:
    refused = BrokerRefused("too large")
    broker = FakeBroker(refused, refused, BrokerRefused("that too"))
    outcomes = await PublishTasks(broker).do([a_task(1), a_task(2), a_task(3)])
    assert [outcome.verdict for outcome in outcomes] == ["refused", "given_back", "refused"]


async def test_a_broker_that_is_away_says_so_for_what_it_did_not_take() -> None:
    broker = FakeBroker(None, BrokerUnavailable("no route"), BrokerRefused("no"))
    with pytest.raises(BrokerAway, match="no route") as away:
        await PublishTasks(broker).do([a_task(1), a_task(2), a_task(3)])
    assert away.value.outcomes == [
        TaskOutcome("r/0/1"),
        TaskOutcome("r/0/2", "given_back", "no route"),
        TaskOutcome("r/0/3", "refused", "BrokerRefused: no"),
    ]


async def test_a_message_has_one_id_and_says_when_it_may_be_a_repeat() -> None:
    broker = FakeBroker(None, None, None, None)
    tasks = [
        a_task(1, attempts=1),
        a_task(2, attempts=3),
        a_task(3, attempts=1, last_error="was given back"),
        a_task(4, attempts=1, entry=a_task(4).entry._replace(run_id="")),
    ]
    await PublishTasks(broker).do(tasks)
    assert [message.attempt for message in broker.given] == [1, 3, 2, 1]
    assert [message.message_id for message in broker.given] == [f"r/0/{k}" for k in (1, 2, 3, 4)]
    assert [message.ordering_key for message in broker.given] == [
        *["run-1"] * 3,
        "/tape/value/changed/ns/key",
    ]
