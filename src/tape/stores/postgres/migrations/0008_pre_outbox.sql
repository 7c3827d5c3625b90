-- The outbox: events that programs write in their own transactions, and who takes them on.
--
-- bus.outbox has a schema of its own, so that a program finds it whatever its search path, and can
-- be given the right to insert there and nothing else. A row is there if and only if the
-- transaction of its producer committed. The relay promotes it to the journal (global_seq), then
-- publishes it, and sets published_to_nats once the broker has acknowledged it. Ids are drawn
-- before commits, so they are no order across transactions that run at once: what is promoted first
-- comes first, on the journal and at the broker.

CREATE SCHEMA IF NOT EXISTS bus;
-- statement
CREATE TABLE bus.outbox (
  id                 BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  event_id           TEXT COLLATE "C" NOT NULL,
  subject            TEXT COLLATE "C" NOT NULL,
  payload_json       TEXT NOT NULL,
  schema_version     SMALLINT NOT NULL DEFAULT 1,
  entity_type        TEXT COLLATE "C" NOT NULL DEFAULT '',
  entity_id          TEXT COLLATE "C" NOT NULL DEFAULT '',
  idempotency_key    TEXT COLLATE "C",
  caused_by          TEXT COLLATE "C" NOT NULL DEFAULT '',
  source             TEXT COLLATE "C" NOT NULL DEFAULT '',
  occurred_at_ms     BIGINT NOT NULL DEFAULT 0,
  trace_id           TEXT COLLATE "C" NOT NULL DEFAULT '',
  span_id            TEXT COLLATE "C" NOT NULL DEFAULT '',
  parent_span_id     TEXT COLLATE "C" NOT NULL DEFAULT '',
  created_at_ms      BIGINT NOT NULL DEFAULT floor(extract(epoch FROM clock_timestamp()) * 1000),
  global_seq         BIGINT NOT NULL DEFAULT 0,
  published_to_nats  BOOLEAN NOT NULL DEFAULT FALSE,
  published_at_ms    BIGINT NOT NULL DEFAULT 0,
  published_term     BIGINT NOT NULL DEFAULT 0,
  attempts           INTEGER NOT NULL DEFAULT 0,
  last_error         TEXT NOT NULL DEFAULT ''
);
-- statement
CREATE INDEX outbox_unpublished ON bus.outbox (global_seq, id) WHERE NOT published_to_nats;
-- statement
CREATE INDEX outbox_unpromoted ON bus.outbox (id) WHERE global_seq = 0;
-- statement
CREATE INDEX outbox_failing ON bus.outbox (id)
  WHERE last_error <> '' AND NOT published_to_nats;
-- statement
CREATE INDEX outbox_published ON bus.outbox (published_at_ms) WHERE published_to_nats;
-- statement
-- Messages that a consumer has handled, written in the transaction of their handling. A program may
-- have made the table before Tape came to its database (`tape.create_processed`).
CREATE TABLE IF NOT EXISTS bus.processed (
  consumer         TEXT COLLATE "C" NOT NULL,
  message_id       TEXT COLLATE "C" NOT NULL,
  processed_at_ms  BIGINT NOT NULL DEFAULT floor(extract(epoch FROM clock_timestamp()) * 1000),
  PRIMARY KEY (consumer, message_id)
);
-- statement
CREATE INDEX IF NOT EXISTS processed_at ON bus.processed (processed_at_ms);
-- statement
-- Which relay leads: the term goes up with each election, and marks what was published in it.
CREATE TABLE tape_relays (
  relay          TEXT COLLATE "C" PRIMARY KEY,
  term           BIGINT NOT NULL,
  owner          TEXT NOT NULL,
  elected_at_ms  BIGINT NOT NULL,
  expires_at_ms  BIGINT NOT NULL
) WITH (fillfactor = 20);
