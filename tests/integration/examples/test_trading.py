"""The trading desk: the tour on real servers, and each service told everything twice."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import asyncpg
import pytest

import tape
from examples.trading import events
from examples.trading.bot import Bot, take_lease
from examples.trading.data import write_kline
from examples.trading.events import FillEvent, KlineEvent, OrderIntentEvent, RiskCommandEvent
from examples.trading.exchange import Exchange
from examples.trading.executor import Executor
from examples.trading.manager import Manager
from examples.trading.market import minutes
from examples.trading.risk import Risk
from examples.trading.service import Connection, Desk, new_message
from tape.model.message import SourceMessage
from tape.payloads import Payload
from tape.payloads.history import check_history, declared_in, unrecorded
from tape.ports.source import ReceivedMessage
from tape.programs.consumers import Message
from tests.integration.cli.command import clean_environment
from tests.integration.docs.pages import ROOT

TRADING = ROOT / "examples/trading"
SCHEMAS = "market_data, trading, risk"


def test_at_most_one_fill_for_each_kline_and_none_lost() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "examples.trading.tour", "--minutes", "18"],
        cwd=ROOT, env=clean_environment(), capture_output=True, text=True, timeout=110, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    killed, halted, klines, _intents, _events, last = done.stdout.splitlines()
    assert killed == "the relay that led was killed at minute 3"
    assert halted == "bots 7, 8 are halted by risk, and the manager shows it"
    assert klines.startswith("36 klines: ")
    assert last == "at most one intent and one fill for each kline, and none lost"


def test_the_types_keep_to_their_history() -> None:
    checkup = check_history(TRADING / "schemas", declared_in([events]))
    assert checkup.findings == []
    assert [kind.declared.name for kind in checkup.types] == [
        "BreakerEvent", "FillEvent", "KlineEvent", "OrderIntentEvent", "RiskCommandEvent",
    ]  # fmt: skip
    assert [finding for kind in checkup.types for finding in unrecorded(kind)] == []


class Told:
    """A desk without a bus: what a service is told is said here, as often as a broker would."""

    def __init__(self, desk: Desk, client: tape.AsyncTapeClient) -> None:
        self.desk = desk
        self.client = client
        self._messages = 0

    async def tell(
        self,
        handler: Callable[[Connection, Message], Awaitable[None]],
        payload: Payload | bytes,
        times: int = 2,
    ) -> None:
        self._messages += 1
        data = payload if isinstance(payload, bytes) else payload.to_json().encode()
        message_id = f"message-{self._messages}"
        for delivery in range(1, times + 1):
            told = ReceivedMessage(
                SourceMessage(
                    "nats", "nats/any@0", "1", data, message_id=message_id, subject="any",
                    deliveries=delivery,
                ),
                "",
            )  # fmt: skip
            message = Message(told, None)  # type: ignore[arg-type] # nobody acknowledges
            async with new_message(self.desk, "told", message_id) as connection:
                if connection is not None:
                    await handler(connection, message)

    async def read(self, sql: str) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in await self.desk.pool.fetch(sql)]

    async def subjects(self) -> list[str]:
        return [s for (s,) in await self.read("SELECT subject FROM bus.outbox ORDER BY id")]


@pytest.fixture
async def told(migrated_postgres_url: str) -> AsyncIterator[Told]:
    async with (
        asyncpg.create_pool(migrated_postgres_url, min_size=1) as pool,
        tape.connect_async(migrated_postgres_url) as client,
    ):
        await pool.execute(f"DROP SCHEMA IF EXISTS {SCHEMAS} CASCADE")
        await pool.execute((TRADING / "tables.sql").read_text())
        yield Told(Desk(pool, "nats://127.0.0.1:1", asyncio.Event()), client)
        await pool.execute(f"DROP SCHEMA {SCHEMAS} CASCADE")


((KLINE, _other),) = minutes(1)
INTENT = OrderIntentEvent(
    intent_id="7/BTCUSDT/1m/1", bot_id="7", fence=1, symbol="BTCUSDT", side="buy", quantity=1.0,
    limit_price=68_000.0,
)  # fmt: skip


async def test_a_kline_is_written_and_published_once(told: Told) -> None:
    assert await write_kline(told.desk, KLINE)
    assert not await write_kline(told.desk, KLINE)
    assert await told.subjects() == ["market.klines.binance.spot.btcusdt.1m"]
    ((text,),) = await told.read("SELECT payload_json FROM bus.outbox")
    assert KlineEvent.read(text) == KLINE


async def test_a_kline_makes_one_intent(told: Told) -> None:
    bot = Bot(told.desk, "7", "BTCUSDT", fence=3)
    await told.tell(bot.on_kline, KLINE)
    await told.tell(bot.on_kline, KLINE)  # sent anew, as another message
    assert await told.subjects() == ["intents.executor"]
    ((text, caused_by),) = await told.read("SELECT payload_json, caused_by FROM bus.outbox")
    assert (OrderIntentEvent.read(text).fence, caused_by) == (3, "message-1")


async def test_a_halted_bot_lets_klines_pass(told: Told) -> None:
    bot = Bot(told.desk, "7", "BTCUSDT", fence=1)
    await told.tell(bot.on_risk, RiskCommandEvent(command="halt", bot_id="8", reason="not ours"))
    await told.tell(bot.on_risk, RiskCommandEvent(command="halt", bot_id="7", reason="position"))
    await told.tell(bot.on_kline, KLINE)
    assert await told.read("SELECT reason FROM trading.passed_klines") == [("position",)]
    await told.tell(bot.on_risk, RiskCommandEvent(command="resume", bot_id="7"))
    await told.tell(bot.on_kline, list(minutes(2))[1][0])
    assert await told.subjects() == ["intents.executor"]


async def test_an_intent_is_filled_once(told: Told) -> None:
    exchange = Exchange()
    executor = Executor(told.desk, told.client, exchange)
    assert await take_lease(told.client, "7") == 1
    await told.tell(executor.on_intent, INTENT)
    await told.tell(executor.on_intent, INTENT)
    assert exchange.orders == 1
    assert await told.subjects() == ["trading.fills.7"]
    assert await told.read("SELECT intent_id, price FROM trading.trades") == [
        ("7/BTCUSDT/1m/1", 68_000.0)
    ]


async def test_an_intent_of_a_later_version_is_understood(told: Told) -> None:
    await take_lease(told.client, "7")
    executor = Executor(told.desk, told.client, Exchange())
    later = INTENT.to_json().replace('"schema_version":1', '"schema_version":2')
    await told.tell(executor.on_intent, (later[:-1] + ',"venue":"kraken"}').encode())
    assert await told.subjects() == ["trading.fills.7"]


async def test_a_bot_that_was_replaced_is_refused(told: Told) -> None:
    exchange = Exchange()
    executor = Executor(told.desk, told.client, exchange)
    await take_lease(told.client, "7")
    assert await take_lease(told.client, "7") == 2
    await told.tell(executor.on_intent, INTENT)
    assert await told.read("SELECT * FROM trading.refused_intents") == [
        ("7/BTCUSDT/1m/1", "fence 1 is stale")
    ]
    assert (exchange.orders, await told.subjects()) == (0, [])


async def test_an_executor_that_dies_after_the_order_fills_it_once(told: Told) -> None:
    exchange = Exchange()
    executor = Executor(told.desk, told.client, exchange)
    await take_lease(told.client, "7")

    async def die_after(connection: Connection, message: Message) -> None:
        await executor.on_intent(connection, message)
        raise ConnectionError("killed before the commit")

    with pytest.raises(ConnectionError):
        await told.tell(die_after, INTENT)
    assert (exchange.orders, await told.subjects()) == (1, [])
    await told.tell(executor.on_intent, INTENT)
    assert (exchange.orders, await told.subjects()) == (1, ["trading.fills.7"])


async def test_a_breaker_trips_once_and_halts(told: Told) -> None:
    risk, manager = Risk(told.desk, limit=2.0), Manager(told.desk)
    for number in range(5):
        fill = FillEvent(trade_fingerprint=str(number), bot_id="7", side="buy", quantity=1.0)
        await told.tell(risk.on_fill, fill)
    assert await told.read("SELECT quantity FROM risk.positions") == [(5.0,)]
    assert await told.subjects() == ["risk.events.position", "risk.commands"]
    ((breaker, command),) = [await told.read("SELECT payload_json FROM bus.outbox ORDER BY id")]
    await told.tell(manager.on_breaker, breaker[0].encode())
    assert await told.read("SELECT state FROM risk.shown_breakers") == [("tripped",)]
    assert RiskCommandEvent.read(command[0]).command == "halt"
    await risk.reset("7")
    await risk.reset("7")
    assert (await told.subjects())[2:] == ["risk.events.position", "risk.commands"]
