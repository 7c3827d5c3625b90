-- The outbox: events that programs write in their own transactions, and who takes them on.
--
-- A row is there if and only if the transaction of its producer committed. The relay promotes it to
-- the journal (global_seq), then publishes it, and sets published_to_nats once the broker has
-- acknowledged it.

CREATE TABLE bus_outbox (
  id                 INTEGER PRIMARY KEY AUTOINCREMENT,
  event_id           TEXT NOT NULL,
  subject            TEXT NOT NULL,
  payload_json       TEXT NOT NULL,
  schema_version     INTEGER NOT NULL DEFAULT 1,
  entity_type        TEXT NOT NULL DEFAULT '',
  entity_id          TEXT NOT NULL DEFAULT '',
  idempotency_key    TEXT,
  caused_by          TEXT NOT NULL DEFAULT '',
  source             TEXT NOT NULL DEFAULT '',
  occurred_at_ms     INTEGER NOT NULL DEFAULT 0,
  trace_id           TEXT NOT NULL DEFAULT '',
  span_id            TEXT NOT NULL DEFAULT '',
  parent_span_id     TEXT NOT NULL DEFAULT '',
  created_at_ms      INTEGER NOT NULL
    DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)),
  global_seq         INTEGER NOT NULL DEFAULT 0,
  published_to_nats  INTEGER NOT NULL DEFAULT 0,
  published_at_ms    INTEGER NOT NULL DEFAULT 0,
  published_term     INTEGER NOT NULL DEFAULT 0,
  attempts           INTEGER NOT NULL DEFAULT 0,
  last_error         TEXT NOT NULL DEFAULT ''
);
-- statement
CREATE INDEX bus_outbox_unpublished ON bus_outbox (global_seq, id) WHERE NOT published_to_nats;
-- statement
CREATE INDEX bus_outbox_unpromoted ON bus_outbox (id) WHERE global_seq = 0;
-- statement
CREATE INDEX bus_outbox_failing ON bus_outbox (id)
  WHERE last_error <> '' AND NOT published_to_nats;
-- statement
CREATE INDEX bus_outbox_published ON bus_outbox (published_at_ms) WHERE published_to_nats;
-- statement
-- Messages that a consumer has handled, written in the transaction of their handling. A program may
-- have made the table before Tape came to its database (`tape.create_processed`).
CREATE TABLE IF NOT EXISTS bus_processed (
  consumer         TEXT NOT NULL,
  message_id       TEXT NOT NULL,
  processed_at_ms  INTEGER NOT NULL
    DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)),
  PRIMARY KEY (consumer, message_id)
) WITHOUT ROWID;
-- statement
CREATE INDEX IF NOT EXISTS bus_processed_at ON bus_processed (processed_at_ms);
-- statement
-- Which relay leads: the term goes up with each election, and marks what was published in it.
CREATE TABLE tape_relays (
  relay          TEXT PRIMARY KEY,
  term           INTEGER NOT NULL,
  owner          TEXT NOT NULL,
  elected_at_ms  INTEGER NOT NULL,
  expires_at_ms  INTEGER NOT NULL
) WITHOUT ROWID;
