-- Timers: what runs want to be told later.

-- name: load_timers
-- Rows by key, for a batch to decide on.
SELECT
  run_id, timer_id, fire_at_ms, kind, payload_json, fired, cancelled, created_at_ms
FROM tape_timers
WHERE (run_id, timer_id) IN (
  SELECT value ->> 0, value ->> 1 FROM json_each(?));

-- name: save_timers
-- Write one row, new or changed.
INSERT INTO tape_timers (
  run_id, timer_id, fire_at_ms, kind, payload_json, fired, cancelled, created_at_ms)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (run_id, timer_id) DO UPDATE SET
  fire_at_ms = excluded.fire_at_ms,
  kind = excluded.kind,
  payload_json = excluded.payload_json,
  fired = excluded.fired,
  cancelled = excluded.cancelled,
  created_at_ms = excluded.created_at_ms;

-- name: list_timers
-- All of a run, earliest first.
SELECT
  run_id, timer_id, fire_at_ms, kind, payload_json, fired, cancelled, created_at_ms
FROM tape_timers
WHERE run_id = ?
ORDER BY fire_at_ms, timer_id;

-- name: list_due_timers
-- Neither fired nor cancelled and due, earliest first.
SELECT
  run_id, timer_id, fire_at_ms, kind, payload_json, fired, cancelled, created_at_ms
FROM tape_timers INDEXED BY tape_timers_due
WHERE fired = 0 AND cancelled = 0 AND fire_at_ms <= ?
ORDER BY fire_at_ms, run_id, timer_id
LIMIT ?;

-- name: read_next_timer
-- When the next timer is due.
SELECT min(fire_at_ms) FROM tape_timers INDEXED BY tape_timers_due
WHERE fired = 0 AND cancelled = 0;
