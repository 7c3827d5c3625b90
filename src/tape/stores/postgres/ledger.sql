-- The ledger: event subscriptions, how far drainers have come, and the newest entries.

-- name: load_event_subscriptions
-- Rows by key, for a batch to decide on.
SELECT
  subscription_id, drainer_id, event_type_glob, workflow_type, input_mapper, filter_expr,
  enabled, awaits_end, created_at_ms, pool
FROM tape_event_subscriptions
WHERE subscription_id = ANY ($1);

-- name: save_event_subscriptions
-- Write rows, new or changed.
INSERT INTO tape_event_subscriptions (
  subscription_id, drainer_id, event_type_glob, workflow_type, input_mapper, filter_expr,
  enabled, awaits_end, created_at_ms, pool)
SELECT * FROM unnest(
  $1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::boolean[],
  $8::boolean[], $9::bigint[], $10::text[])
ON CONFLICT (subscription_id) DO UPDATE SET
  drainer_id = excluded.drainer_id,
  event_type_glob = excluded.event_type_glob,
  workflow_type = excluded.workflow_type,
  input_mapper = excluded.input_mapper,
  filter_expr = excluded.filter_expr,
  enabled = excluded.enabled,
  awaits_end = excluded.awaits_end,
  created_at_ms = excluded.created_at_ms,
  pool = excluded.pool;

-- name: load_event_drain_state
-- Rows by key, for a batch to decide on.
SELECT
  drainer_id, last_global_seq, last_event_id, last_drained_at_ms, events_processed_total,
  dispatched_total, failed_total, skipped_total, halted_on_event_id, halted_on_global_seq,
  halted_at_ms, last_error, attempts_json, lease_owner, lease_expires_at_ms, fencing_token,
  next_try_at_ms, waiting_on_run_id, waiting_on_event_id, waiting_on_global_seq, waiting_since_ms
FROM tape_event_drain_state
WHERE drainer_id = ANY ($1);

-- name: save_event_drain_state
-- Write rows, new or changed.
INSERT INTO tape_event_drain_state (
  drainer_id, last_global_seq, last_event_id, last_drained_at_ms, events_processed_total,
  dispatched_total, failed_total, skipped_total, halted_on_event_id, halted_on_global_seq,
  halted_at_ms, last_error, attempts_json, lease_owner, lease_expires_at_ms, fencing_token,
  next_try_at_ms, waiting_on_run_id, waiting_on_event_id, waiting_on_global_seq, waiting_since_ms)
SELECT * FROM unnest(
  $1::text[], $2::bigint[], $3::text[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[],
  $8::bigint[], $9::text[], $10::bigint[], $11::bigint[], $12::text[], $13::text[], $14::text[],
  $15::bigint[], $16::bigint[], $17::bigint[], $18::text[], $19::text[], $20::bigint[],
  $21::bigint[])
ON CONFLICT (drainer_id) DO UPDATE SET
  last_global_seq = excluded.last_global_seq,
  last_event_id = excluded.last_event_id,
  last_drained_at_ms = excluded.last_drained_at_ms,
  events_processed_total = excluded.events_processed_total,
  dispatched_total = excluded.dispatched_total,
  failed_total = excluded.failed_total,
  skipped_total = excluded.skipped_total,
  halted_on_event_id = excluded.halted_on_event_id,
  halted_on_global_seq = excluded.halted_on_global_seq,
  halted_at_ms = excluded.halted_at_ms,
  last_error = excluded.last_error,
  attempts_json = excluded.attempts_json,
  lease_owner = excluded.lease_owner,
  lease_expires_at_ms = excluded.lease_expires_at_ms,
  fencing_token = excluded.fencing_token,
  next_try_at_ms = excluded.next_try_at_ms,
  waiting_on_run_id = excluded.waiting_on_run_id,
  waiting_on_event_id = excluded.waiting_on_event_id,
  waiting_on_global_seq = excluded.waiting_on_global_seq,
  waiting_since_ms = excluded.waiting_since_ms;

-- name: delete_event_subscriptions
-- Remove rows by key.
DELETE FROM tape_event_subscriptions WHERE subscription_id = ANY ($1);

-- name: list_event_subscriptions
-- All, by id.
SELECT
  subscription_id, drainer_id, event_type_glob, workflow_type, input_mapper, filter_expr,
  enabled, awaits_end, created_at_ms, pool
FROM tape_event_subscriptions
ORDER BY subscription_id;

-- name: list_event_subscriptions_of_drainer
-- Those of one drainer, by id.
SELECT
  subscription_id, drainer_id, event_type_glob, workflow_type, input_mapper, filter_expr,
  enabled, awaits_end, created_at_ms, pool
FROM tape_event_subscriptions
WHERE drainer_id = $1
ORDER BY subscription_id;

-- name: get_drainer
-- How far one drainer has come.
SELECT
  drainer_id, last_global_seq, last_event_id, last_drained_at_ms, events_processed_total,
  dispatched_total, failed_total, skipped_total, halted_on_event_id, halted_on_global_seq,
  halted_at_ms, last_error, attempts_json, lease_owner, lease_expires_at_ms, fencing_token,
  next_try_at_ms, waiting_on_run_id, waiting_on_event_id, waiting_on_global_seq, waiting_since_ms
FROM tape_event_drain_state
WHERE drainer_id = $1;

-- name: list_drainers
-- How far each drainer has come, by id.
SELECT
  drainer_id, last_global_seq, last_event_id, last_drained_at_ms, events_processed_total,
  dispatched_total, failed_total, skipped_total, halted_on_event_id, halted_on_global_seq,
  halted_at_ms, last_error, attempts_json, lease_owner, lease_expires_at_ms, fencing_token,
  next_try_at_ms, waiting_on_run_id, waiting_on_event_id, waiting_on_global_seq, waiting_since_ms
FROM tape_event_drain_state
ORDER BY drainer_id;

-- name: read_recent
-- A range of entries, newest first; beyond the byte budget they come without their payload.
SELECT
  global_seq, coalesce(run_id, '') AS run_id, coalesce(seq, 0) AS seq, kind, subject,
  CASE WHEN bytes_before < $4 THEN payload_json END AS payload_json, schema_version, trace_id,
  span_id, parent_span_id, ts_ms, event_id, event_type, entity_type, entity_id, caused_by, source,
  occurred_at_ms, coalesce(idempotency_key, '') AS idempotency_key
FROM (
  SELECT *, sum(octet_length(payload_json)) OVER (ORDER BY global_seq DESC)
    - octet_length(payload_json) AS bytes_before
  FROM tape_journal
  WHERE global_seq < $1 AND global_seq >= $2
    AND ($5 = '' OR (subject >= $5 AND subject < $6))
    AND ($7 = '' OR event_type = $7)
    AND ($8 = '' OR entity_type = $8)
    AND ($9 = '' OR entity_id = $9)
    AND ($10 = '' OR trace_id = $10)
    AND ($11 = '' OR event_id = $11)
    AND ($12 = '' OR caused_by = $12)
    AND ($13 = '' OR source = $13)
  ORDER BY global_seq DESC
  LIMIT $3
) page
ORDER BY page.global_seq DESC;

-- name: read_recent_of_run
-- Entries of one run, newest first, likewise.
SELECT
  global_seq, coalesce(run_id, '') AS run_id, coalesce(seq, 0) AS seq, kind, subject,
  CASE WHEN bytes_before < $4 THEN payload_json END AS payload_json, schema_version, trace_id,
  span_id, parent_span_id, ts_ms, event_id, event_type, entity_type, entity_id, caused_by, source,
  occurred_at_ms, coalesce(idempotency_key, '') AS idempotency_key
FROM (
  SELECT *, sum(octet_length(payload_json)) OVER (ORDER BY seq DESC)
    - octet_length(payload_json) AS bytes_before
  FROM tape_journal
  WHERE global_seq < $1 AND run_id = $2
    AND ($5 = '' OR (subject >= $5 AND subject < $6))
    AND ($7 = '' OR event_type = $7)
    AND ($8 = '' OR entity_type = $8)
    AND ($9 = '' OR entity_id = $9)
    AND ($10 = '' OR trace_id = $10)
    AND ($11 = '' OR event_id = $11)
    AND ($12 = '' OR caused_by = $12)
    AND ($13 = '' OR source = $13)
  ORDER BY seq DESC
  LIMIT $3
) page
ORDER BY page.seq DESC;

-- name: find_older
-- The next entry before a number.
SELECT coalesce(max(global_seq), 0) FROM tape_journal WHERE global_seq < $1;

-- name: read_clock
-- The time that leases go by.
SELECT tape_now_us() / 1000;
