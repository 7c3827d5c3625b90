"""What goes over the bus. Their history is in `schemas/`; `tape schema check` holds them to it."""

from tape.payloads import Payload


class KlineEvent(Payload, subject="market.klines.>"):
    schema_version: int = 1
    symbol: str = ""
    tf: str = ""
    open_time: int = 0
    open: float = 0.0
    high: float = 0.0
    low: float = 0.0
    close: float = 0.0
    volume: float = 0.0


class OrderIntentEvent(Payload, subject="intents.executor"):
    schema_version: int = 1
    intent_id: str = ""
    bot_id: str = ""
    fence: int = 0
    symbol: str = ""
    side: str = ""
    quantity: float = 0.0
    limit_price: float = 0.0


class RiskCommandEvent(Payload, subject="risk.commands"):
    schema_version: int = 1
    command: str = ""
    bot_id: str = ""
    breaker: str = ""
    reason: str = ""


class BreakerEvent(Payload, subject="risk.events.*"):
    schema_version: int = 1
    breaker: str = ""
    bot_id: str = ""
    state: str = ""
    value: float = 0.0
    limit: float = 0.0


class FillEvent(Payload, subject="trading.fills.*"):
    schema_version: int = 1
    trade_fingerprint: str = ""
    intent_id: str = ""
    bot_id: str = ""
    symbol: str = ""
    side: str = ""
    quantity: float = 0.0
    price: float = 0.0
