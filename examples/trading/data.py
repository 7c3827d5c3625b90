"""gordon-data: writes klines as the exchange pushes them."""

import tape
from examples.trading.events import KlineEvent
from examples.trading.service import Desk

TF = "1m"


async def write_kline(desk: Desk, kline: KlineEvent) -> bool:
    """The row and the event of it; False for one that was pushed before."""
    async with desk.pool.acquire() as connection, connection.transaction():
        written = await connection.execute(
            "INSERT INTO market_data.spot_klines VALUES ($1, $2, $3, $4, $5, $6, $7, $8) "
            "ON CONFLICT DO NOTHING",
            kline.open_time, kline.symbol, kline.tf, kline.open, kline.high, kline.low,
            kline.close, kline.volume,
        )  # fmt: skip
        if written == "INSERT 0 0":
            return False
        subject = tape.bus_subject("market.klines.binance", "spot", kline.symbol, kline.tf)
        await tape.publish_within(
            connection,
            subject,
            kline,
            entity_type="kline",
            entity_id=f"{kline.symbol}/{kline.tf}/{kline.open_time}",
            occurred_at_ms=kline.open_time + 60_000,
            source="gordon-data",
        )
        return True
