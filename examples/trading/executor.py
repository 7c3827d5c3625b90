"""gordon-executor: validates intents, sends them to the exchange, and writes down the fills.

The exchange is asked inside the transaction, and answers a repeat with the first fill. So an
executor that dies after the order and before the commit asks again and writes the same trade, whose
fingerprint is its key.
"""

import asyncio
import hashlib

import tape
from examples.trading.bot import LEASES, halted, obey
from examples.trading.events import FillEvent, OrderIntentEvent, RiskCommandEvent
from examples.trading.exchange import VENUE, Exchange, Filled
from examples.trading.service import Connection, Desk, serve, tell
from tape.consumers import Message

NAME = "executor"


class Executor:
    def __init__(self, desk: Desk, client: tape.AsyncTapeClient, exchange: Exchange) -> None:
        self._desk = desk
        self._client = client
        self._exchange = exchange

    async def run(self) -> None:
        await asyncio.gather(
            serve(self._desk, f"{NAME}-default", "intents.executor", self.on_intent),
            serve(self._desk, f"{NAME}-risk", "risk.commands", self.on_risk, in_order=True),
        )

    async def on_intent(self, connection: Connection, message: Message) -> None:
        intent = OrderIntentEvent.read(message.data)
        reason = await self._objection(connection, intent)
        if reason:
            await connection.execute(
                "INSERT INTO trading.refused_intents VALUES ($1, $2) ON CONFLICT DO NOTHING",
                intent.intent_id, reason,
            )  # fmt: skip
            await tell(connection, f"refused {intent.intent_id}")
            return
        filled = await self._exchange.submit(intent)
        trade = FillEvent(
            trade_fingerprint=fingerprint(intent, filled),
            intent_id=intent.intent_id,
            bot_id=intent.bot_id,
            symbol=intent.symbol,
            side=intent.side,
            quantity=intent.quantity,
            price=filled.price,
        )
        written = await connection.execute(
            "INSERT INTO trading.trades VALUES ($1, $2, $3, $4, $5, $6, $7) "
            "ON CONFLICT (trade_fingerprint) DO NOTHING",
            trade.trade_fingerprint, trade.intent_id, trade.bot_id, trade.symbol, trade.side,
            trade.quantity, trade.price,
        )  # fmt: skip
        if written != "INSERT 0 0":
            await tape.publish_within(
                connection,
                tape.bus_subject("trading.fills", trade.bot_id),
                trade,
                entity_type="trade",
                entity_id=trade.trade_fingerprint,
                caused_by=message.message_id,
                source=NAME,
            )
            await tell(connection, f"trade {trade.trade_fingerprint}")

    async def on_risk(self, connection: Connection, message: Message) -> None:
        await obey(connection, NAME, RiskCommandEvent.read(message.data))

    async def _objection(self, connection: Connection, intent: OrderIntentEvent) -> str | None:
        lease = await self._client.get_value(LEASES, intent.bot_id)
        if lease is None or intent.fence < lease.version:
            return f"fence {intent.fence} is stale"
        return await halted(connection, NAME, intent.bot_id)


def fingerprint(intent: OrderIntentEvent, filled: Filled) -> str:
    """The same for the same fill, wherever it is heard of."""
    told = f"{VENUE}/{intent.symbol}/{intent.intent_id}/{filled.order_id}"
    return hashlib.sha256(told.encode()).hexdigest()[:32]
