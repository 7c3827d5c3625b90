"""gordon-risk: watches positions, trips a breaker, and has bots halted; an operator resets it."""

import tape
from examples.trading.events import BreakerEvent, FillEvent, RiskCommandEvent
from examples.trading.service import Connection, Desk, serve, tell
from tape.consumers import Message

BREAKER = "position"
NAME = "gordon-risk"


class Risk:
    def __init__(self, desk: Desk, limit: float) -> None:
        self._desk = desk
        self._limit = limit

    async def run(self) -> None:
        await serve(self._desk, "risk-fills", "trading.fills.*", self.on_fill)

    async def on_fill(self, connection: Connection, message: Message) -> None:
        fill = FillEvent.read(message.data)
        change = fill.quantity if fill.side == "buy" else -fill.quantity
        position: float = await connection.fetchval(
            "INSERT INTO risk.positions AS p VALUES ($1, $2) "
            "ON CONFLICT (bot_id) DO UPDATE SET quantity = p.quantity + excluded.quantity "
            "RETURNING quantity",
            fill.bot_id, change,
        )  # fmt: skip
        if abs(position) > self._limit and position * change > 0:
            await self._set(connection, fill.bot_id, "tripped", position, message.message_id)

    async def reset(self, bot_id: str) -> None:
        async with self._desk.pool.acquire() as connection, connection.transaction():
            await self._set(connection, bot_id, "reset", 0.0, "operator")

    async def _set(
        self, connection: Connection, bot_id: str, state: str, value: float, cause: str
    ) -> None:
        changed = await connection.fetchval(
            "INSERT INTO risk.breakers AS b VALUES ($1, $2, $3) ON CONFLICT (breaker, bot_id) "
            "DO UPDATE SET state = excluded.state WHERE b.state <> excluded.state RETURNING TRUE",
            BREAKER, bot_id, state,
        )  # fmt: skip
        if not changed:
            return
        event = BreakerEvent(
            breaker=BREAKER, bot_id=bot_id, state=state, value=value, limit=self._limit
        )
        subject = tape.bus_subject("risk.events", BREAKER)
        breaker_id = await tape.publish_within(
            connection, subject, event, entity_type="breaker", entity_id=f"{BREAKER}/{bot_id}",
            caused_by=cause, source=NAME,
        )  # fmt: skip
        command = RiskCommandEvent(
            command="halt" if state == "tripped" else "resume",
            bot_id=bot_id,
            breaker=BREAKER,
            reason=f"{BREAKER} {value:+g} beyond {self._limit:g}",
        )
        await tape.publish_within(
            connection, "risk.commands", command, entity_type="bot", entity_id=bot_id,
            caused_by=breaker_id, source=NAME,
        )  # fmt: skip
        await tell(connection, f"breaker {bot_id} {state}")
