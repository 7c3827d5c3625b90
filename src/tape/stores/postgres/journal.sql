-- The journal. Statements return an entry's columns in the order of model.entry.Entry.

-- name: append_entries
-- Append entries as the next ones: a whole turn in one round trip, or part of a turn taken before.
SELECT first_global_seq, recorded_ms
FROM tape_append(
  $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18);

-- name: take_turn
-- Wait for the turn to write; the last number given out and the store's clock.
SELECT head, now_ms FROM tape_take_turn();

-- name: make_incoming
-- Where a session puts a large batch before its turn; in the order of model.entry.Draft.
CREATE TEMPORARY TABLE tape_incoming (
  n BIGINT, event_id TEXT, kind TEXT, subject TEXT, payload_json TEXT, run_id TEXT, seq BIGINT,
  schema_version SMALLINT, trace_id TEXT, span_id TEXT, parent_span_id TEXT, event_type TEXT,
  entity_type TEXT, entity_id TEXT, caused_by TEXT, source TEXT, occurred_at_ms BIGINT,
  idempotency_key TEXT
) ON COMMIT DELETE ROWS;

-- name: append_incoming
-- Append what was put there as the next entries.
SELECT first_global_seq, recorded_ms FROM tape_append_incoming();

-- name: find_committed
-- Whether a batch whose commit was cut off is there, by the id of its first entry.
SELECT global_seq, ts_ms FROM tape_journal WHERE global_seq > $1 AND event_id = $2;

-- name: load_known
-- Idempotency keys that were used, with the ids of their entries.
SELECT idempotency_key, event_id, global_seq, coalesce(seq, 0)
FROM tape_journal
WHERE idempotency_key = ANY ($1);

-- name: read_head
-- The newest committed entry.
SELECT coalesce(max(global_seq), 0) FROM tape_journal;

-- name: read_last_given
-- The last number given out, whatever became of it.
SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM tape_global_seq;

-- name: read_tail
-- The oldest kept entry.
SELECT coalesce(min(global_seq), 0) FROM tape_journal;

-- name: read_entries
-- A range of entries in order; those that start beyond the byte budget come without their payload.
SELECT
  global_seq, coalesce(run_id, '') AS run_id, coalesce(seq, 0) AS seq, kind, subject,
  CASE WHEN bytes_before < $4 THEN payload_json END AS payload_json, schema_version, trace_id,
  span_id, parent_span_id, ts_ms, event_id, event_type, entity_type, entity_id, caused_by, source,
  occurred_at_ms, coalesce(idempotency_key, '') AS idempotency_key
FROM (
  SELECT *, sum(octet_length(payload_json)) OVER (ORDER BY global_seq)
    - octet_length(payload_json) AS bytes_before
  FROM tape_journal
  WHERE global_seq > $1 AND global_seq <= $2
    AND ($5 = '' OR (subject >= $5 AND subject < $6))
    AND ($7 = '' OR kind = $7)
    AND ($8 = '' OR run_id = $8)
    AND ($9::bigint = 0 OR ts_ms >= $9)
    AND /* predicate */ TRUE
  ORDER BY global_seq
  LIMIT $3
) page
ORDER BY global_seq;

-- name: read_run
-- The entries of one run in its own order, up to the one that reaches the byte budget.
SELECT
  global_seq, coalesce(run_id, '') AS run_id, coalesce(seq, 0) AS seq, kind, subject,
  payload_json, schema_version, trace_id, span_id, parent_span_id, ts_ms, event_id, event_type,
  entity_type, entity_id, caused_by, source, occurred_at_ms,
  coalesce(idempotency_key, '') AS idempotency_key
FROM (
  SELECT *, sum(octet_length(payload_json)) OVER (ORDER BY seq)
    - octet_length(payload_json) AS bytes_before
  FROM tape_journal
  WHERE run_id = $1 AND seq > $2
  ORDER BY seq
  LIMIT $3
) page
WHERE bytes_before < $4
ORDER BY page.seq;

-- name: read_value_history
-- The changes of one value in order, up to the one that reaches the byte budget.
-- The next of each subject are found by its index, then merged.
SELECT
  global_seq, coalesce(run_id, '') AS run_id, coalesce(seq, 0) AS seq, kind, subject,
  payload_json, schema_version, trace_id, span_id, parent_span_id, ts_ms, event_id, event_type,
  entity_type, entity_id, caused_by, source, occurred_at_ms,
  coalesce(idempotency_key, '') AS idempotency_key
FROM (
  SELECT *, sum(octet_length(payload_json)) OVER (ORDER BY global_seq)
    - octet_length(payload_json) AS bytes_before
  FROM unnest($1::text[]) AS wanted (name)
  CROSS JOIN LATERAL (
    SELECT * FROM tape_journal
    WHERE kind = 'value' AND subject = wanted.name AND global_seq > $2
    ORDER BY global_seq
    LIMIT $3
  ) each
  ORDER BY global_seq
  LIMIT $3
) page
WHERE bytes_before < $4
ORDER BY global_seq;
