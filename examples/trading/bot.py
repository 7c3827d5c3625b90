"""gordon-bot: answers each kline with an order intent, unless it is halted.

A bot that is started takes its lease: a value on the journal whose version is the fence. The
executor refuses intents with an older fence, so a bot that was thought dead and is not can do no
harm.
"""

import asyncio

import tape
from examples.trading.data import TF
from examples.trading.events import KlineEvent, OrderIntentEvent, RiskCommandEvent
from examples.trading.service import Connection, Desk, serve, tell
from tape.consumers import Message

LEASES = "trading.leases"
QUANTITY = 1.0


async def take_lease(client: tape.AsyncTapeClient, bot_id: str) -> int:
    """The fence of a bot that starts; every earlier one is stale from here on."""
    value = await client.set_value(LEASES, bot_id, {"bot": bot_id})
    return value.version


class Bot:
    def __init__(self, desk: Desk, bot_id: str, symbol: str, fence: int) -> None:
        self._desk = desk
        self._bot_id = bot_id
        self._symbol = symbol
        self._fence = fence
        self._name = f"bot-{bot_id}"

    async def run(self) -> None:
        klines = tape.bus_subject("market.klines.binance", "spot", self._symbol, TF)
        durable = f"{self._name}-{self._symbol.lower()}-{TF}-klines"
        await asyncio.gather(
            serve(self._desk, durable, klines, self.on_kline),
            serve(self._desk, f"{self._name}-risk", "risk.commands", self.on_risk, in_order=True),
        )

    async def on_kline(self, connection: Connection, message: Message) -> None:
        kline = KlineEvent.read(message.data)
        reason = await halted(connection, self._name, self._bot_id)
        if reason is not None:
            await connection.execute(
                "INSERT INTO trading.passed_klines VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING",
                self._bot_id, kline.symbol, kline.open_time, reason,
            )  # fmt: skip
            await tell(connection, f"{self._name} passed")
            return
        intent = OrderIntentEvent(
            intent_id=f"{self._bot_id}/{kline.symbol}/{kline.tf}/{kline.open_time}",
            bot_id=self._bot_id,
            fence=self._fence,
            symbol=kline.symbol,
            side="buy" if kline.close >= kline.open else "sell",
            quantity=QUANTITY,
            limit_price=kline.close,
        )
        written = await connection.execute(
            "INSERT INTO trading.order_intents VALUES ($1, $2, $3, $4, $5, $6, $7) "
            "ON CONFLICT DO NOTHING",
            intent.intent_id, intent.bot_id, intent.symbol, kline.open_time, intent.side,
            intent.quantity, intent.limit_price,
        )  # fmt: skip
        if written != "INSERT 0 0":
            await tape.publish_within(
                connection,
                "intents.executor",
                intent,
                entity_type="intent",
                entity_id=intent.intent_id,
                caused_by=message.message_id,
                source=self._name,
            )

    async def on_risk(self, connection: Connection, message: Message) -> None:
        command = RiskCommandEvent.read(message.data)
        if command.bot_id == self._bot_id:
            await obey(connection, self._name, command)


async def obey(connection: Connection, service: str, command: RiskCommandEvent) -> None:
    """What a service knows of halts, after a command."""
    if command.command == "halt":
        await connection.execute(
            "INSERT INTO trading.halts VALUES ($1, $2, $3) ON CONFLICT DO NOTHING",
            service, command.bot_id, command.reason,
        )  # fmt: skip
    else:
        await connection.execute(
            "DELETE FROM trading.halts WHERE service = $1 AND bot_id = $2", service, command.bot_id
        )
    await tell(connection, f"{service} {command.command}")


async def halted(connection: Connection, service: str, bot_id: str) -> str | None:
    """Why, as far as the service knows."""
    reason: str | None = await connection.fetchval(
        "SELECT reason FROM trading.halts WHERE service = $1 AND bot_id = $2", service, bot_id
    )
    return reason
