-- Decisions: where in its run's journal each is.

-- name: load_decisions
-- Rows by key, for a batch to decide on.
SELECT
  run_id, decision_index, seq, ts_ms
FROM tape_decisions
WHERE (run_id, decision_index) IN (
  SELECT CAST(value ->> 0 AS TEXT), CAST(value ->> 1 AS INTEGER) FROM json_each(?));

-- name: save_decisions
-- Write one row, new or changed.
INSERT INTO tape_decisions (
  run_id, decision_index, seq, ts_ms)
VALUES (?, ?, ?, ?)
ON CONFLICT (run_id, decision_index) DO UPDATE SET
  seq = excluded.seq,
  ts_ms = excluded.ts_ms;

-- name: get_decision
-- The entry that records a decision.
SELECT
  j.global_seq, coalesce(j.run_id, ''), coalesce(j.seq, 0), j.kind, j.subject, j.payload_json,
  j.schema_version, j.trace_id, j.span_id, j.parent_span_id, j.ts_ms, j.event_id, j.event_type,
  j.entity_type, j.entity_id, j.caused_by, j.source, j.occurred_at_ms,
  coalesce(j.idempotency_key, '')
FROM tape_journal j
WHERE j.run_id = ?1
  AND j.seq = (SELECT seq FROM tape_decisions WHERE run_id = ?1 AND decision_index = ?2);
