-- The outbox, and who leads its relays.

-- name: load_outbox
-- Rows by key, for a batch to decide on; nobody marks them meanwhile.
SELECT
  id, event_id, subject, global_seq, published_to_nats, last_error, has_entry, repeat_of,
  repeat_of_seq
FROM bus.outbox
WHERE id = ANY ($1::bigint[])
FOR UPDATE;

-- name: save_outbox
-- Change rows that are there. No row changes its id or its subject.
UPDATE bus.outbox AS o SET
  global_seq = v.global_seq,
  published_at_ms = CASE
    WHEN v.published_to_nats AND NOT o.published_to_nats THEN tape_now_us() / 1000
    ELSE o.published_at_ms END,
  published_to_nats = v.published_to_nats,
  last_error = v.last_error,
  has_entry = v.has_entry,
  repeat_of = v.repeat_of,
  repeat_of_seq = v.repeat_of_seq,
  repeated_at_ms = CASE
    WHEN v.repeat_of <> '' AND o.repeat_of = '' THEN tape_now_us() / 1000
    ELSE o.repeated_at_ms END
FROM unnest(
  $1::bigint[], $2::text[], $3::text[], $4::bigint[], $5::boolean[], $6::text[], $7::boolean[],
  $8::text[], $9::bigint[]
) AS v (
  id, event_id, subject, global_seq, published_to_nats, last_error, has_entry, repeat_of,
  repeat_of_seq)
WHERE o.id = v.id;

-- name: load_outbox_ids
-- Rows that made an entry under one of these ids.
SELECT event_id, id, subject, payload_json, global_seq
FROM bus.outbox
WHERE event_id = ANY ($1::text[]) AND has_entry;

-- name: load_outbox_keys
-- Entries that rows made with one of these keys of their subjects.
SELECT first.subject, first.idempotency_key, first.event_id, first.global_seq
FROM unnest($1::text[], $2::text[]) AS wanted (subject, idempotency_key)
CROSS JOIN LATERAL (
  SELECT o.subject, o.idempotency_key, o.event_id, o.global_seq
  FROM bus.outbox AS o
  WHERE o.subject = wanted.subject AND o.idempotency_key = wanted.idempotency_key
    AND o.has_entry AND o.idempotency_key <> ''
  LIMIT 1
) AS first
UNION ALL
-- Before step 10 the journal had keys of the outbox as they were, among those of recorded events.
SELECT j.event_type, j.idempotency_key, j.event_id, j.global_seq
FROM unnest($1::text[], $2::text[]) AS wanted (subject, idempotency_key)
CROSS JOIN LATERAL (
  SELECT event_type, idempotency_key, event_id, global_seq, ts_ms
  FROM tape_journal
  WHERE idempotency_key = wanted.idempotency_key
  LIMIT 1
) AS j
WHERE j.event_type = wanted.subject AND j.ts_ms < (
  SELECT extract(epoch FROM applied_at) * 1000 FROM tape_schema_steps WHERE number = 10);

-- name: load_relays
-- Rows by key, for a batch to decide on.
SELECT relay, term, owner, elected_at_ms, expires_at_ms
FROM tape_relays
WHERE relay = ANY ($1::text[]);

-- name: save_relays
-- Write rows, new or changed.
INSERT INTO tape_relays (relay, term, owner, elected_at_ms, expires_at_ms)
SELECT * FROM unnest($1::text[], $2::bigint[], $3::text[], $4::bigint[], $5::bigint[])
ON CONFLICT (relay) DO UPDATE SET
  term = excluded.term,
  owner = excluded.owner,
  elected_at_ms = excluded.elected_at_ms,
  expires_at_ms = excluded.expires_at_ms;

-- name: take_lead
-- Take the lock that this session then holds until it ends.
SELECT pg_try_advisory_lock($1);

-- name: confirm_lead
-- A session that answers is there, and so is its lock.
SELECT 1;

-- name: read_unpromoted
-- Rows that are not on the journal, by id.
SELECT
  id, event_id, subject, payload_json, schema_version, entity_type, entity_id, idempotency_key,
  caused_by, source, occurred_at_ms, trace_id, span_id, parent_span_id, created_at_ms, global_seq,
  attempts, last_error
FROM bus.outbox
WHERE global_seq = 0 AND subject <> ALL ($2::text[])
ORDER BY id
LIMIT $1;

-- name: has_unpromoted
-- Whether there are rows that are not on the journal.
SELECT EXISTS (SELECT FROM bus.outbox WHERE global_seq = 0);

-- name: read_unpublished
-- Rows that are on the journal and not published, by their place there.
SELECT
  id, event_id, subject, payload_json, schema_version, entity_type, entity_id, idempotency_key,
  caused_by, source, occurred_at_ms, trace_id, span_id, parent_span_id, created_at_ms, global_seq,
  attempts, last_error
FROM bus.outbox
WHERE NOT published_to_nats AND global_seq > 0 AND subject <> ALL ($2::text[])
ORDER BY global_seq, id
LIMIT $1;

-- name: mark_published
-- The broker has acknowledged these. IS NOT TRUE keeps the planner from reading all that waits.
UPDATE bus.outbox SET
  published_to_nats = TRUE,
  published_at_ms = tape_now_us() / 1000,
  published_term = $2,
  last_error = ''
WHERE id = ANY ($1::bigint[]) AND published_to_nats IS NOT TRUE;

-- name: note_outbox_failure
-- Count an attempt and keep why it failed.
UPDATE bus.outbox SET attempts = attempts + 1, last_error = $2
WHERE id = $1 AND published_to_nats IS NOT TRUE AND repeat_of = '';

-- name: forget_published
-- Remove a few rows that were published long ago.
DELETE FROM bus.outbox WHERE id = ANY (ARRAY(
  SELECT id FROM bus.outbox
  WHERE published_to_nats AND published_at_ms < tape_now_us() / 1000 - $1::bigint
  ORDER BY published_at_ms
  LIMIT $2));

-- name: forget_promoted
-- Remove a few rows that are on the journal, where nobody has ever published any.
DELETE FROM bus.outbox WHERE id = ANY (ARRAY(
  SELECT id FROM (
    SELECT id, created_at_ms FROM bus.outbox
    WHERE NOT published_to_nats AND global_seq > 0
    ORDER BY global_seq, id
    LIMIT $2) AS oldest
  WHERE created_at_ms < tape_now_us() / 1000 - $1::bigint))
  AND NOT EXISTS (SELECT FROM tape_relays WHERE relay = 'nats');

-- name: count_outbox
-- How much waits, counted up to a bound, and since when the oldest of it does.
SELECT
  (SELECT count(*) FROM (
    SELECT FROM bus.outbox WHERE NOT published_to_nats AND global_seq >= 0 LIMIT $1) AS waiting),
  (SELECT count(*) FROM (SELECT FROM bus.outbox WHERE global_seq = 0 LIMIT $1) AS unpromoted),
  coalesce(greatest(0, tape_now_us() / 1000 - least(
    (SELECT created_at_ms FROM bus.outbox WHERE global_seq = 0 ORDER BY id LIMIT 1),
    (SELECT created_at_ms FROM bus.outbox
     WHERE NOT published_to_nats AND global_seq > 0 ORDER BY global_seq, id LIMIT 1))), 0),
  (SELECT count(*) FROM (SELECT FROM bus.outbox WHERE repeat_of <> '' LIMIT $1) AS repeats);

-- name: read_failing
-- Rows that were not taken, by id.
SELECT id, event_id, subject, created_at_ms, global_seq, attempts, last_error
FROM bus.outbox
WHERE last_error <> '' AND NOT published_to_nats AND repeat_of = ''
ORDER BY id
LIMIT $1;

-- name: read_repeats
-- Rows that repeat an event, the latest first.
SELECT
  id, event_id, subject, coalesce(idempotency_key, ''), created_at_ms, repeated_at_ms, repeat_of,
  repeat_of_seq
FROM bus.outbox
WHERE repeat_of <> ''
ORDER BY repeated_at_ms DESC, id DESC
LIMIT $1;

-- name: forget_repeats
-- Remove a few rows that were found to be repeats long ago.
DELETE FROM bus.outbox WHERE id = ANY (ARRAY(
  SELECT id FROM bus.outbox
  WHERE repeat_of <> '' AND repeated_at_ms < tape_now_us() / 1000 - $1::bigint
  ORDER BY repeated_at_ms, id
  LIMIT $2));

-- name: read_relays
-- Who was elected last, of each relay.
SELECT relay, term, owner, elected_at_ms, expires_at_ms FROM tape_relays ORDER BY relay;
