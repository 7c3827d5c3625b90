-- Repeats in the outbox: what was not taken says so and names the first, and unique indexes hold it.
--
-- A key belongs to its subject, and an id to one event. has_entry: the row made the entry at its
-- global_seq under its own id. The unique indexes are over those rows alone, because the code before
-- gives a row with a used key the first one's id and place, and must be able to go on beside this.
-- repeat_of and repeat_of_seq: the row is a repeat of that event. Its own global_seq is -1, which
-- neither this code nor the one before takes for a row that waits.

ALTER TABLE bus.outbox
  ADD COLUMN has_entry BOOLEAN NOT NULL DEFAULT TRUE,
  ADD COLUMN repeat_of TEXT COLLATE "C" NOT NULL DEFAULT '',
  ADD COLUMN repeat_of_seq BIGINT NOT NULL DEFAULT 0,
  ADD COLUMN repeated_at_ms BIGINT NOT NULL DEFAULT 0;
-- statement
-- Rows that are there have TRUE without being written again; a new one is promoted first.
ALTER TABLE bus.outbox ALTER COLUMN has_entry SET DEFAULT FALSE;
-- statement
UPDATE bus.outbox SET has_entry = FALSE WHERE global_seq = 0;
-- statement
UPDATE bus.outbox AS o SET has_entry = FALSE
FROM tape_journal AS j
WHERE o.last_error LIKE 'skipped: %' AND j.global_seq = o.global_seq AND j.kind = 'outbox';
-- statement
-- Of rows that were given one id, the first is the event. Another that is published stays as it is.
-- One that is not is a repeat if it is the same event, or else an event of its own that is promoted
-- again, under an id of its own.
WITH ranked AS (
  SELECT
    o.id, o.subject, o.payload_json, o.event_id, o.global_seq, j.event_type,
    row_number() OVER ids AS place,
    first_value(o.subject) OVER ids AS first_subject,
    first_value(o.payload_json) OVER ids AS first_payload,
    first_value(o.global_seq) OVER ids AS first_seq
  FROM bus.outbox AS o
  LEFT JOIN tape_journal AS j ON j.global_seq = o.global_seq
  WHERE o.global_seq > 0 AND o.event_id IN (
    SELECT event_id FROM bus.outbox WHERE global_seq > 0 GROUP BY event_id HAVING count(*) > 1
    UNION ALL
    SELECT event_id FROM bus.outbox WHERE global_seq > 0 AND NOT published_to_nats)
  WINDOW ids AS (
    PARTITION BY o.event_id ORDER BY j.event_type IS DISTINCT FROM o.subject, o.id)
), others AS (
  SELECT
    id, event_id, first_seq,
    place > 1 AND subject = first_subject
      AND (global_seq = first_seq OR payload_json = first_payload) AS is_repeat
  FROM ranked
  WHERE place > 1 OR event_type <> subject
)
UPDATE bus.outbox AS o SET
  has_entry = FALSE,
  event_id = CASE WHEN o.published_to_nats OR s.is_repeat THEN o.event_id
    ELSE substr(o.event_id, 1, 10) || upper(substr(md5(random()::text || o.id), 1, 16)) END,
  repeat_of = CASE WHEN s.is_repeat AND NOT o.published_to_nats THEN s.event_id ELSE '' END,
  repeat_of_seq = CASE WHEN s.is_repeat AND NOT o.published_to_nats THEN s.first_seq ELSE 0 END,
  repeated_at_ms = CASE WHEN s.is_repeat AND NOT o.published_to_nats
    THEN tape_now_us() / 1000 ELSE 0 END,
  global_seq = CASE WHEN o.published_to_nats THEN o.global_seq WHEN s.is_repeat THEN -1 ELSE 0 END
FROM others AS s
WHERE s.id = o.id;
-- statement
-- A key whose first entry was pruned could be used again while the first row was still there.
UPDATE bus.outbox AS o SET has_entry = FALSE
FROM (
  SELECT id, row_number() OVER (PARTITION BY subject, idempotency_key ORDER BY id) AS place
  FROM bus.outbox
  WHERE has_entry AND idempotency_key <> ''
) AS k
WHERE k.id = o.id AND k.place > 1;
-- statement
CREATE UNIQUE INDEX outbox_entry_id ON bus.outbox (event_id) WHERE has_entry;
-- statement
CREATE UNIQUE INDEX outbox_entry_key ON bus.outbox (subject, idempotency_key)
  WHERE has_entry AND idempotency_key <> '';
-- statement
CREATE INDEX outbox_repeats ON bus.outbox (repeated_at_ms, id) WHERE repeat_of <> '';
