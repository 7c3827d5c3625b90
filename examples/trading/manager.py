"""gordon-manager: shows breakers. It may be told of one twice, and shows it once."""

from examples.trading.events import BreakerEvent
from examples.trading.service import Connection, Desk, serve, tell
from tape.consumers import Message


class Manager:
    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def run(self) -> None:
        await serve(self._desk, "manager-risk", "risk.events.*", self.on_breaker, in_order=True)

    async def on_breaker(self, connection: Connection, message: Message) -> None:
        event = BreakerEvent.read(message.data)
        await connection.execute(
            "INSERT INTO risk.shown_breakers VALUES ($1, $2, $3) "
            "ON CONFLICT (breaker, bot_id) DO UPDATE SET state = excluded.state",
            event.breaker, event.bot_id, event.state,
        )  # fmt: skip
        await tell(connection, f"shown {event.bot_id} {event.state}")
