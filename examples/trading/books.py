"""What the tables say at the end: every kline and every intent is accounted for."""

from typing import Any, NamedTuple

QUERY = """
SELECT
  (SELECT count(*) FROM market_data.spot_klines) AS klines,
  (SELECT count(*) FROM trading.order_intents) AS intents,
  (SELECT count(*) FROM trading.passed_klines) AS passed,
  (SELECT count(*) FROM trading.trades) AS fills,
  (SELECT count(*) FROM trading.refused_intents) AS refused,
  (SELECT count(*) FROM market_data.spot_klines k
   WHERE 1 <> (SELECT count(*) FROM trading.order_intents i
               WHERE (i.symbol, i.open_time) = (k.symbol, k.open_time))
            + (SELECT count(*) FROM trading.passed_klines p
               WHERE (p.symbol, p.open_time) = (k.symbol, k.open_time))) AS klines_astray,
  (SELECT count(*) FROM trading.order_intents i
   WHERE 1 <> (SELECT count(*) FROM trading.trades t WHERE t.intent_id = i.intent_id)
            + (SELECT count(*) FROM trading.refused_intents r
               WHERE r.intent_id = i.intent_id)) AS intents_astray,
  (SELECT count(*) FROM trading.halts) AS halts,
  (SELECT count(*) FROM risk.shown_breakers WHERE state = 'tripped') AS shown,
  (SELECT count(*) FROM bus.processed WHERE consumer = 'risk-fills') AS fills_weighed,
  (SELECT count(*) FROM bus.outbox) AS events,
  (SELECT count(*) FROM bus.outbox WHERE published_to_nats) AS published,
  (SELECT count(*) FROM tape_journal j WHERE EXISTS (
     SELECT FROM bus.outbox o WHERE o.event_id = j.event_id)) AS on_the_journal,
  (SELECT count(DISTINCT term) FROM (SELECT published_term AS term FROM bus.outbox) t) AS leaders
"""


class Books(NamedTuple):
    klines: int
    intents: int
    passed: int
    fills: int
    refused: int
    klines_astray: int
    intents_astray: int
    halts: int
    shown: int
    fills_weighed: int
    events: int
    published: int
    on_the_journal: int
    leaders: int

    @property
    def settled(self) -> bool:
        """Nothing is on its way any more."""
        return (self.klines_astray, self.intents_astray, self.published, self.fills_weighed) == (
            0, 0, self.events, self.fills
        )  # fmt: skip


async def read_books(connection: Any) -> Books:
    return Books(*await connection.fetchrow(QUERY))
