-- The journal. Statements return an entry's columns in the order of model.entry.Entry.

-- name: append_entries
-- Append entries; the caller holds the write lock and numbers them.
INSERT INTO tape_journal (
  global_seq, ts_ms, event_id, kind, subject, payload_json, run_id, seq, schema_version, trace_id,
  span_id, parent_span_id, event_type, entity_type, entity_id, caused_by, source, occurred_at_ms,
  idempotency_key)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: take_turn
-- The last number given out, by who holds the write lock.
SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'tape_journal'), 0);

-- name: load_known
-- Idempotency keys that were used, with the ids of their entries.
SELECT idempotency_key, event_id, global_seq, coalesce(seq, 0)
FROM tape_journal
WHERE idempotency_key IN (SELECT value ->> 0 FROM json_each(?));

-- name: read_head
-- The newest committed entry.
SELECT coalesce(max(global_seq), 0) FROM tape_journal;

-- name: read_last_given
-- The last number given out, whatever became of it.
SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'tape_journal'), 0);

-- name: read_tail
-- The oldest kept entry.
SELECT coalesce(min(global_seq), 0) FROM tape_journal;

-- name: read_entries
-- A range of entries in order; the caller stops reading when it has enough bytes.
SELECT
  global_seq, coalesce(run_id, '') AS run_id, coalesce(seq, 0) AS seq, kind, subject,
  payload_json, schema_version, trace_id, span_id, parent_span_id, ts_ms, event_id, event_type,
  entity_type, entity_id, caused_by, source, occurred_at_ms,
  coalesce(idempotency_key, '') AS idempotency_key
FROM tape_journal
WHERE global_seq > ?1 AND global_seq <= ?2
  AND (?4 = '' OR (subject >= ?4 AND subject < ?5))
  AND (?6 = '' OR kind = ?6)
  AND (?7 = '' OR run_id = ?7)
  AND (?8 = 0 OR ts_ms >= ?8)
  AND /* predicate */ TRUE
ORDER BY global_seq
LIMIT ?3;

-- name: read_run
-- The entries of one run in its own order.
SELECT
  global_seq, coalesce(run_id, '') AS run_id, coalesce(seq, 0) AS seq, kind, subject,
  payload_json, schema_version, trace_id, span_id, parent_span_id, ts_ms, event_id, event_type,
  entity_type, entity_id, caused_by, source, occurred_at_ms,
  coalesce(idempotency_key, '') AS idempotency_key
FROM tape_journal
WHERE run_id = ? AND seq > ?
ORDER BY tape_journal.seq
LIMIT ?;

-- name: read_value_history
-- The changes of one value in order, of which only what is fetched is read.
-- Their numbers come from an index. To sort whole rows, SQLite would read them all.
SELECT
  global_seq, coalesce(run_id, '') AS run_id, coalesce(seq, 0) AS seq, kind, subject,
  payload_json, schema_version, trace_id, span_id, parent_span_id, ts_ms, event_id, event_type,
  entity_type, entity_id, caused_by, source, occurred_at_ms,
  coalesce(idempotency_key, '') AS idempotency_key
FROM tape_journal
WHERE global_seq IN (
  SELECT global_seq FROM tape_journal
  WHERE kind = 'value' AND subject IN (SELECT value FROM json_each(?)) AND global_seq > ?
  ORDER BY global_seq
  LIMIT ?
)
ORDER BY global_seq;
