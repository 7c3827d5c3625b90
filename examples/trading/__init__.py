"""A trading desk on the outbox: from a kline to a fill, every step at most once and none lost.

data writes klines, bots answer them with order intents, the executor fills intents at the exchange,
risk trips breakers and halts bots, the manager shows breakers. Each writes its rows and its events
in one transaction of its own (`tape.publish_within`), and handles what it is sent in one too
(`tape.processed_within`). `python -m examples.trading.tour` plays it on a real Postgres and NATS.
"""
