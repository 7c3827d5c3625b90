-- Runs and the lease that fences their writes.

-- name: load_runs
-- Rows by key, for a batch to decide on.
SELECT
  run_id, app_name, user_id, session_id, invocation_id, pool, status, seq_cursor, lease_owner,
  reactor_name, lease_expires_at_ms, fencing_token, started_at_ms, ended_at_ms
FROM tape_runs
WHERE run_id IN (
  SELECT value ->> 0 FROM json_each(?));

-- name: save_runs
-- Write one row, new or changed.
INSERT INTO tape_runs (
  run_id, app_name, user_id, session_id, invocation_id, pool, status, seq_cursor, lease_owner,
  reactor_name, lease_expires_at_ms, fencing_token, started_at_ms, ended_at_ms)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (run_id) DO UPDATE SET
  app_name = excluded.app_name,
  user_id = excluded.user_id,
  session_id = excluded.session_id,
  invocation_id = excluded.invocation_id,
  pool = excluded.pool,
  status = excluded.status,
  seq_cursor = excluded.seq_cursor,
  lease_owner = excluded.lease_owner,
  reactor_name = excluded.reactor_name,
  lease_expires_at_ms = excluded.lease_expires_at_ms,
  fencing_token = excluded.fencing_token,
  started_at_ms = excluded.started_at_ms,
  ended_at_ms = excluded.ended_at_ms;
