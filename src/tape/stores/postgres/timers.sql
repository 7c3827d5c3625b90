-- Timers: what runs want to be told later.

-- name: load_timers
-- Rows by key, for a batch to decide on.
SELECT
  run_id, timer_id, fire_at_ms, kind, payload_json, fired, cancelled, created_at_ms
FROM tape_timers
JOIN unnest($1::text[], $2::text[]) AS wanted (run_id, timer_id)
  USING (run_id, timer_id);

-- name: save_timers
-- Write rows, new or changed.
INSERT INTO tape_timers (
  run_id, timer_id, fire_at_ms, kind, payload_json, fired, cancelled, created_at_ms)
SELECT * FROM unnest(
  $1::text[], $2::text[], $3::bigint[], $4::text[], $5::text[], $6::boolean[], $7::boolean[],
  $8::bigint[])
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
WHERE run_id = $1
ORDER BY fire_at_ms, timer_id;

-- name: list_due_timers
-- Neither fired nor cancelled and due, earliest first.
SELECT
  run_id, timer_id, fire_at_ms, kind, payload_json, fired, cancelled, created_at_ms
FROM tape_timers
WHERE NOT fired AND NOT cancelled AND fire_at_ms <= (SELECT tape_now_us() / 1000)
ORDER BY fire_at_ms, run_id, timer_id
LIMIT $1;

-- name: read_next_timer
-- How long until the next timer is due.
SELECT min(fire_at_ms) - tape_now_us() / 1000 FROM tape_timers WHERE NOT fired AND NOT cancelled;
