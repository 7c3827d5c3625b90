CREATE SCHEMA market_data;
CREATE SCHEMA trading;
CREATE SCHEMA risk;

CREATE TABLE market_data.spot_klines (
  open_time BIGINT NOT NULL,
  symbol    TEXT NOT NULL,
  tf        TEXT NOT NULL,
  open      DOUBLE PRECISION NOT NULL,
  high      DOUBLE PRECISION NOT NULL,
  low       DOUBLE PRECISION NOT NULL,
  close     DOUBLE PRECISION NOT NULL,
  volume    DOUBLE PRECISION NOT NULL,
  PRIMARY KEY (open_time, symbol, tf)
);

CREATE TABLE trading.order_intents (
  intent_id   TEXT PRIMARY KEY,
  bot_id      TEXT NOT NULL,
  symbol      TEXT NOT NULL,
  open_time   BIGINT NOT NULL,
  side        TEXT NOT NULL,
  quantity    DOUBLE PRECISION NOT NULL,
  limit_price DOUBLE PRECISION NOT NULL
);

-- Klines that a halted bot let pass.
CREATE TABLE trading.passed_klines (
  bot_id    TEXT NOT NULL,
  symbol    TEXT NOT NULL,
  open_time BIGINT NOT NULL,
  reason    TEXT NOT NULL,
  PRIMARY KEY (bot_id, symbol, open_time)
);

CREATE TABLE trading.trades (
  trade_fingerprint TEXT PRIMARY KEY,
  intent_id         TEXT NOT NULL UNIQUE,
  bot_id            TEXT NOT NULL,
  symbol            TEXT NOT NULL,
  side              TEXT NOT NULL,
  quantity          DOUBLE PRECISION NOT NULL,
  price             DOUBLE PRECISION NOT NULL
);

CREATE TABLE trading.refused_intents (
  intent_id TEXT PRIMARY KEY,
  reason    TEXT NOT NULL
);

-- Which service knows that which bot is halted.
CREATE TABLE trading.halts (
  service TEXT NOT NULL,
  bot_id  TEXT NOT NULL,
  reason  TEXT NOT NULL,
  PRIMARY KEY (service, bot_id)
);

CREATE TABLE risk.positions (
  bot_id   TEXT PRIMARY KEY,
  quantity DOUBLE PRECISION NOT NULL
);

CREATE TABLE risk.breakers (
  breaker TEXT NOT NULL,
  bot_id  TEXT NOT NULL,
  state   TEXT NOT NULL,
  PRIMARY KEY (breaker, bot_id)
);

-- What the manager shows.
CREATE TABLE risk.shown_breakers (
  breaker TEXT NOT NULL,
  bot_id  TEXT NOT NULL,
  state   TEXT NOT NULL,
  PRIMARY KEY (breaker, bot_id)
);
