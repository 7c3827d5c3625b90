-- The outbox, and who leads its relays.

-- name: load_outbox
-- Rows by key, for a batch to decide on.
SELECT
  id, event_id, subject, global_seq, published_to_nats, last_error, has_entry, repeat_of,
  repeat_of_seq
FROM bus_outbox
WHERE id IN (SELECT value ->> 0 FROM json_each(?));

-- name: save_outbox
-- Change a row that is there. No row changes its id or its subject.
UPDATE bus_outbox SET
  global_seq = v.column4,
  published_at_ms = CASE
    WHEN v.column5 AND NOT published_to_nats
    THEN CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)
    ELSE published_at_ms END,
  published_to_nats = v.column5,
  last_error = v.column6,
  has_entry = v.column7,
  repeat_of = v.column8,
  repeat_of_seq = v.column9,
  repeated_at_ms = CASE
    WHEN v.column8 <> '' AND repeat_of = ''
    THEN CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)
    ELSE repeated_at_ms END
FROM (VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)) AS v
WHERE id = v.column1;

-- name: load_outbox_ids
-- Rows that made an entry under one of these ids.
SELECT event_id, id, subject, payload_json, global_seq
FROM bus_outbox
WHERE event_id IN (SELECT value ->> 0 FROM json_each(?)) AND has_entry;

-- name: load_outbox_keys
-- Entries that rows made with one of these keys of their subjects.
SELECT o.subject, o.idempotency_key, o.event_id, o.global_seq
FROM json_each(?1) AS wanted
CROSS JOIN bus_outbox AS o
  ON o.subject = wanted.value ->> 0 AND o.idempotency_key = wanted.value ->> 1
WHERE o.has_entry AND o.idempotency_key <> ''
UNION ALL
-- Before step 10 the journal had keys of the outbox as they were, among those of recorded events.
SELECT j.event_type, j.idempotency_key, j.event_id, j.global_seq
FROM json_each(?1) AS wanted
CROSS JOIN tape_journal AS j ON j.idempotency_key = wanted.value ->> 1
WHERE j.event_type = wanted.value ->> 0
  AND j.ts_ms < (SELECT applied_at_ms FROM tape_schema_steps WHERE number = 10);

-- name: load_relays
-- Rows by key, for a batch to decide on.
SELECT relay, term, owner, elected_at_ms, expires_at_ms
FROM tape_relays
WHERE relay IN (SELECT value ->> 0 FROM json_each(?));

-- name: save_relays
-- Write one row, new or changed.
INSERT INTO tape_relays (relay, term, owner, elected_at_ms, expires_at_ms)
VALUES (?, ?, ?, ?, ?)
ON CONFLICT (relay) DO UPDATE SET
  term = excluded.term,
  owner = excluded.owner,
  elected_at_ms = excluded.elected_at_ms,
  expires_at_ms = excluded.expires_at_ms;

-- name: confirm_lead
-- Renew the lease of a term, if that is still the last one.
UPDATE tape_relays SET expires_at_ms = ?3 WHERE relay = ?1 AND term = ?2 RETURNING 1;

-- name: read_unpromoted
-- Rows that are not on the journal, by id.
SELECT
  id, event_id, subject, payload_json, schema_version, entity_type, entity_id, idempotency_key,
  caused_by, source, occurred_at_ms, trace_id, span_id, parent_span_id, created_at_ms, global_seq,
  attempts, last_error
FROM bus_outbox
WHERE global_seq = 0 AND subject NOT IN (SELECT value FROM json_each(?2))
ORDER BY id
LIMIT ?1;

-- name: has_unpromoted
-- Whether there are rows that are not on the journal.
SELECT EXISTS (SELECT 1 FROM bus_outbox WHERE global_seq = 0);

-- name: read_unpublished
-- Rows that are on the journal and not published, by their place there.
SELECT
  id, event_id, subject, payload_json, schema_version, entity_type, entity_id, idempotency_key,
  caused_by, source, occurred_at_ms, trace_id, span_id, parent_span_id, created_at_ms, global_seq,
  attempts, last_error
FROM bus_outbox
WHERE NOT published_to_nats AND global_seq > 0
  AND subject NOT IN (SELECT value FROM json_each(?2))
ORDER BY global_seq, id
LIMIT ?1;

-- name: mark_published
-- The broker has acknowledged these.
UPDATE bus_outbox SET
  published_to_nats = 1,
  published_at_ms = ?3,
  published_term = ?2,
  last_error = ''
WHERE id IN (SELECT value FROM json_each(?1)) AND NOT published_to_nats;

-- name: note_outbox_failure
-- Count an attempt and keep why it failed.
UPDATE bus_outbox SET attempts = attempts + 1, last_error = ?2
WHERE id = ?1 AND NOT published_to_nats AND repeat_of = '';

-- name: forget_published
-- Remove a few rows that were published long ago.
DELETE FROM bus_outbox WHERE id IN (
  SELECT id FROM bus_outbox
  WHERE published_to_nats AND published_at_ms < ?1
  ORDER BY published_at_ms
  LIMIT ?2);

-- name: forget_promoted
-- Remove a few rows that are on the journal, where nobody has ever published any.
DELETE FROM bus_outbox WHERE id IN (
  SELECT id FROM (
    SELECT id, created_at_ms FROM bus_outbox
    WHERE NOT published_to_nats AND global_seq > 0
    ORDER BY global_seq, id
    LIMIT ?2)
  WHERE created_at_ms < ?1)
  AND NOT EXISTS (SELECT 1 FROM tape_relays WHERE relay = 'nats');

-- name: count_outbox
-- How much waits, counted up to a bound, and since when the oldest of it does.
SELECT
  (SELECT count(*) FROM (
    SELECT 1 FROM bus_outbox WHERE NOT published_to_nats AND global_seq >= 0 LIMIT ?1)),
  (SELECT count(*) FROM (SELECT 1 FROM bus_outbox WHERE global_seq = 0 LIMIT ?1)),
  max(0, ?2 - min(
    coalesce((SELECT created_at_ms FROM bus_outbox WHERE global_seq = 0 ORDER BY id LIMIT 1), ?2),
    coalesce((SELECT created_at_ms FROM bus_outbox
     WHERE NOT published_to_nats AND global_seq > 0 ORDER BY global_seq, id LIMIT 1), ?2))),
  (SELECT count(*) FROM (SELECT 1 FROM bus_outbox WHERE repeat_of <> '' LIMIT ?1));

-- name: read_failing
-- Rows that were not taken, by id.
SELECT id, event_id, subject, created_at_ms, global_seq, attempts, last_error
FROM bus_outbox
WHERE last_error <> '' AND NOT published_to_nats AND repeat_of = ''
ORDER BY id
LIMIT ?;

-- name: read_repeats
-- Rows that repeat an event, the latest first.
SELECT
  id, event_id, subject, coalesce(idempotency_key, ''), created_at_ms, repeated_at_ms, repeat_of,
  repeat_of_seq
FROM bus_outbox
WHERE repeat_of <> ''
ORDER BY repeated_at_ms DESC, id DESC
LIMIT ?;

-- name: forget_repeats
-- Remove a few rows that were found to be repeats long ago.
DELETE FROM bus_outbox WHERE id IN (
  SELECT id FROM bus_outbox
  WHERE repeat_of <> '' AND repeated_at_ms < ?1
  ORDER BY repeated_at_ms, id
  LIMIT ?2);

-- name: read_relays
-- Who was elected last, of each relay.
SELECT relay, term, owner, elected_at_ms, expires_at_ms FROM tape_relays ORDER BY relay;
