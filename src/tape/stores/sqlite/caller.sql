-- What a program runs in its own transaction on the file of the store. `main.` on purpose: a commit
-- over attached files is not atomic in WAL mode.

-- name: append_outbox
-- Add an event; the relay polls.
INSERT INTO main.bus_outbox (
  event_id, subject, payload_json, schema_version, entity_type, entity_id, idempotency_key,
  caused_by, source, occurred_at_ms, trace_id, span_id, parent_span_id)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: note_processed
-- One row if the message is new to the consumer.
INSERT INTO main.bus_processed (consumer, message_id)
VALUES (?, ?)
ON CONFLICT (consumer, message_id) DO NOTHING;

-- name: create_processed
-- The table as the migrations make it.
CREATE TABLE IF NOT EXISTS main.bus_processed (
  consumer         TEXT NOT NULL,
  message_id       TEXT NOT NULL,
  processed_at_ms  INTEGER NOT NULL
    DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)),
  PRIMARY KEY (consumer, message_id)
) WITHOUT ROWID;

-- name: index_processed
-- What forget_processed reads by.
CREATE INDEX IF NOT EXISTS main.bus_processed_at ON bus_processed (processed_at_ms);

-- name: forget_processed
-- Remove messages that were handled longer ago than that, by the clock of the defaults above.
DELETE FROM main.bus_processed
WHERE processed_at_ms < CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) - ?;
