"""The exchange, as far as the desk sees it: an order is filled once, however often it is sent."""

from typing import NamedTuple

from examples.trading.events import OrderIntentEvent

VENUE = "binance"


class Filled(NamedTuple):
    order_id: int
    price: float


class Exchange:
    def __init__(self) -> None:
        self._filled: dict[str, Filled] = {}

    async def submit(self, intent: OrderIntentEvent) -> Filled:
        """The intent's id is the client order id: a repeat is answered with the first fill."""
        number = len(self._filled) + 1
        return self._filled.setdefault(intent.intent_id, Filled(number, intent.limit_price))

    @property
    def orders(self) -> int:
        return len(self._filled)
