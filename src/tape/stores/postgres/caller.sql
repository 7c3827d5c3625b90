-- What a program runs in its own transaction. No statement needs more than the right to write.

-- name: append_outbox
-- Add an event and wake the relay when it commits, in one round trip.
INSERT INTO bus.outbox (
  event_id, subject, payload_json, schema_version, entity_type, entity_id, idempotency_key,
  caused_by, source, occurred_at_ms, trace_id, span_id, parent_span_id)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)
RETURNING pg_notify('bus_outbox_appended', '');

-- name: note_processed
-- One row if the message is new to the consumer. Waits for whoever handles it at the moment.
INSERT INTO bus.processed (consumer, message_id)
VALUES ($1, $2)
ON CONFLICT (consumer, message_id) DO NOTHING;

-- name: hold_processed
-- Alone with the table: who makes it while another does fails on a name that is taken.
SELECT pg_advisory_xact_lock(794040978559599881);

-- name: create_processed_schema
-- Where the table is found whatever the search path.
CREATE SCHEMA IF NOT EXISTS bus;

-- name: create_processed
-- The table as the migrations make it.
CREATE TABLE IF NOT EXISTS bus.processed (
  consumer         TEXT COLLATE "C" NOT NULL,
  message_id       TEXT COLLATE "C" NOT NULL,
  processed_at_ms  BIGINT NOT NULL DEFAULT floor(extract(epoch FROM clock_timestamp()) * 1000),
  PRIMARY KEY (consumer, message_id)
);

-- name: index_processed
-- What forget_processed reads by.
CREATE INDEX IF NOT EXISTS processed_at ON bus.processed (processed_at_ms);

-- name: forget_processed
-- Remove messages that were handled longer ago than that, by the database's clock.
DELETE FROM bus.processed
WHERE processed_at_ms
  < CAST(floor(extract(epoch FROM clock_timestamp()) * 1000) AS BIGINT) - CAST($1 AS BIGINT);
