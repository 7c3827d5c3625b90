-- Runs and the lease that fences their writes.

-- name: load_runs
-- Rows by key, for a batch to decide on.
SELECT
  run_id, app_name, user_id, session_id, invocation_id, pool, status, seq_cursor, lease_owner,
  reactor_name, lease_expires_at_ms, fencing_token, started_at_ms, ended_at_ms
FROM tape_runs
JOIN unnest($1::text[]) AS wanted (run_id) USING (run_id);

-- name: save_runs
-- Write rows, new or changed.
INSERT INTO tape_runs (
  run_id, app_name, user_id, session_id, invocation_id, pool, status, seq_cursor, lease_owner,
  reactor_name, lease_expires_at_ms, fencing_token, started_at_ms, ended_at_ms)
SELECT * FROM unnest(
  $1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::smallint[],
  $8::bigint[], $9::text[], $10::text[], $11::bigint[], $12::bigint[], $13::bigint[],
  $14::bigint[])
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
