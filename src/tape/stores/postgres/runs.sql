-- Runs and the lease that fences their writes.
--
-- The lists take the same parameters: status, app, pool, user and session (NULL: any), parent, the
-- place after which they go on, and how many. Each has another filter that leads into an index. It
-- is a range and part of the order: of what equals a constant the planner knows that it orders
-- nothing, and might walk through all runs by their start to find the few of an app.

-- name: load_runs
-- Rows by key, for a batch to decide on.
SELECT
  run_id, app_name, user_id, session_id, invocation_id, pool, status, seq_cursor, lease_owner,
  reactor_name, lease_expires_at_ms, fencing_token, started_at_ms, ended_at_ms, app_version,
  parent_run_id, waiting_on, cancel_reason, top_obligation, ending, outcome_json
FROM tape_runs
JOIN unnest($1::text[]) AS wanted (run_id) USING (run_id);

-- name: save_runs
-- Write rows, new or changed. What names a run, its pool, parent and start never change.
INSERT INTO tape_runs (
  run_id, app_name, user_id, session_id, invocation_id, pool, status, seq_cursor, lease_owner,
  reactor_name, lease_expires_at_ms, fencing_token, started_at_ms, ended_at_ms, app_version,
  parent_run_id, waiting_on, cancel_reason, top_obligation, ending, outcome_json)
SELECT * FROM unnest(
  $1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::smallint[],
  $8::bigint[], $9::text[], $10::text[], $11::bigint[], $12::bigint[], $13::bigint[],
  $14::bigint[], $15::text[], $16::text[], $17::text[], $18::text[], $19::bigint[],
  $20::smallint[], $21::text[])
ON CONFLICT (run_id) DO UPDATE SET
  status = excluded.status,
  seq_cursor = excluded.seq_cursor,
  lease_owner = excluded.lease_owner,
  reactor_name = excluded.reactor_name,
  lease_expires_at_ms = excluded.lease_expires_at_ms,
  fencing_token = excluded.fencing_token,
  ended_at_ms = excluded.ended_at_ms,
  app_version = excluded.app_version,
  waiting_on = excluded.waiting_on,
  cancel_reason = excluded.cancel_reason,
  top_obligation = excluded.top_obligation,
  ending = excluded.ending,
  outcome_json = excluded.outcome_json;

-- name: get_run
-- One run.
SELECT
  run_id, app_name, user_id, session_id, invocation_id, pool, status, seq_cursor, lease_owner,
  reactor_name, lease_expires_at_ms, fencing_token, started_at_ms, ended_at_ms, app_version,
  parent_run_id, waiting_on, cancel_reason, top_obligation, ending, outcome_json
FROM tape_runs
WHERE run_id = $1;

-- name: list_runs
-- Runs, newest first.
SELECT
  run_id, app_name, user_id, session_id, invocation_id, pool, status, seq_cursor, lease_owner,
  reactor_name, lease_expires_at_ms, fencing_token, started_at_ms, ended_at_ms, app_version,
  parent_run_id, waiting_on, cancel_reason, top_obligation, ending, outcome_json
FROM tape_runs
WHERE (started_at_ms, run_id) < ($7::bigint, $8)
  AND ($1::smallint = 0 OR status = $1)
  AND ($2 = '' OR app_name = $2)
  AND ($3 = '' OR pool = $3)
  AND ($4::text IS NULL OR (user_id = $4 AND session_id = $5))
  AND ($6 = '' OR parent_run_id = $6)
ORDER BY started_at_ms DESC, run_id DESC
LIMIT $9::bigint;

-- name: list_runs_of_pool
-- Runs of a pool, newest first.
SELECT
  run_id, app_name, user_id, session_id, invocation_id, pool, status, seq_cursor, lease_owner,
  reactor_name, lease_expires_at_ms, fencing_token, started_at_ms, ended_at_ms, app_version,
  parent_run_id, waiting_on, cancel_reason, top_obligation, ending, outcome_json
FROM tape_runs
WHERE (pool, started_at_ms, run_id) < ($3, $7::bigint, $8)
  AND pool >= $3
  AND ($1::smallint = 0 OR status = $1)
  AND ($2 = '' OR app_name = $2)
  AND ($4::text IS NULL OR (user_id = $4 AND session_id = $5))
  AND ($6 = '' OR parent_run_id = $6)
ORDER BY pool DESC, started_at_ms DESC, run_id DESC
LIMIT $9::bigint;

-- name: list_runs_of_app
-- Runs of an app, newest first.
SELECT
  run_id, app_name, user_id, session_id, invocation_id, pool, status, seq_cursor, lease_owner,
  reactor_name, lease_expires_at_ms, fencing_token, started_at_ms, ended_at_ms, app_version,
  parent_run_id, waiting_on, cancel_reason, top_obligation, ending, outcome_json
FROM tape_runs
WHERE (app_name, started_at_ms, run_id) < ($2, $7::bigint, $8)
  AND app_name >= $2
  AND ($1::smallint = 0 OR status = $1)
  AND ($3 = '' OR pool = $3)
  AND ($4::text IS NULL OR (user_id = $4 AND session_id = $5))
  AND ($6 = '' OR parent_run_id = $6)
ORDER BY app_name DESC, started_at_ms DESC, run_id DESC
LIMIT $9::bigint;

-- name: list_runs_of_session
-- Runs of an app's session, newest first.
SELECT
  run_id, app_name, user_id, session_id, invocation_id, pool, status, seq_cursor, lease_owner,
  reactor_name, lease_expires_at_ms, fencing_token, started_at_ms, ended_at_ms, app_version,
  parent_run_id, waiting_on, cancel_reason, top_obligation, ending, outcome_json
FROM tape_runs
WHERE (app_name, user_id, session_id, started_at_ms, run_id) < ($2, $4::text, $5, $7::bigint, $8)
  AND (app_name, user_id, session_id) >= ($2, $4, $5)
  AND ($1::smallint = 0 OR status = $1)
  AND ($3 = '' OR pool = $3)
  AND ($6 = '' OR parent_run_id = $6)
ORDER BY app_name DESC, user_id DESC, session_id DESC, started_at_ms DESC, run_id DESC
LIMIT $9::bigint;

-- name: list_open_runs_of_session
-- Runs of an app's session with a status in which they can be driven, newest first.
SELECT
  run_id, app_name, user_id, session_id, invocation_id, pool, status, seq_cursor, lease_owner,
  reactor_name, lease_expires_at_ms, fencing_token, started_at_ms, ended_at_ms, app_version,
  parent_run_id, waiting_on, cancel_reason, top_obligation, ending, outcome_json
FROM tape_runs
WHERE (session_id, user_id, app_name, started_at_ms, run_id) < ($5, $4::text, $2, $7::bigint, $8)
  AND (session_id, user_id, app_name) >= ($5, $4, $2)
  AND status IN (1, 2, 3) AND status = $1::smallint
  AND ($3 = '' OR pool = $3)
  AND ($6 = '' OR parent_run_id = $6)
ORDER BY session_id DESC, user_id DESC, app_name DESC, started_at_ms DESC, run_id DESC
LIMIT $9::bigint;

-- name: list_runs_of_parent
-- A run's children, newest first.
SELECT
  run_id, app_name, user_id, session_id, invocation_id, pool, status, seq_cursor, lease_owner,
  reactor_name, lease_expires_at_ms, fencing_token, started_at_ms, ended_at_ms, app_version,
  parent_run_id, waiting_on, cancel_reason, top_obligation, ending, outcome_json
FROM tape_runs
WHERE (parent_run_id, started_at_ms, run_id) < ($6, $7::bigint, $8)
  AND parent_run_id >= $6
  AND parent_run_id <> ''
  AND ($1::smallint = 0 OR status = $1)
  AND ($2 = '' OR app_name = $2)
  AND ($3 = '' OR pool = $3)
  AND ($4::text IS NULL OR (user_id = $4 AND session_id = $5))
ORDER BY parent_run_id DESC, started_at_ms DESC, run_id DESC
LIMIT $9::bigint;

-- name: list_runs_of_status
-- Runs with a status other than TERMINAL, newest first.
SELECT
  run_id, app_name, user_id, session_id, invocation_id, pool, status, seq_cursor, lease_owner,
  reactor_name, lease_expires_at_ms, fencing_token, started_at_ms, ended_at_ms, app_version,
  parent_run_id, waiting_on, cancel_reason, top_obligation, ending, outcome_json
FROM tape_runs
WHERE (status, started_at_ms, run_id) < ($1::smallint, $7::bigint, $8)
  AND status >= $1
  AND status <> 4
  AND ($2 = '' OR app_name = $2)
  AND ($3 = '' OR pool = $3)
  AND ($4::text IS NULL OR (user_id = $4 AND session_id = $5))
  AND ($6 = '' OR parent_run_id = $6)
ORDER BY status DESC, started_at_ms DESC, run_id DESC
LIMIT $9::bigint;

-- name: read_pools_to_recover
-- Pools with runs to drive, one found from another.
WITH RECURSIVE found (name) AS (
  SELECT min(pool) FROM tape_runs
  WHERE status IN (1, 2)
  UNION ALL
  SELECT (
    SELECT min(pool) FROM tape_runs
    WHERE status IN (1, 2) AND pool > found.name)
  FROM found
  WHERE found.name IS NOT NULL
)
SELECT name FROM found WHERE name IS NOT NULL;

-- name: read_apps_to_recover
-- A pool's apps with runs to drive, one found from another.
WITH RECURSIVE found (name) AS (
  SELECT min(app_name) FROM tape_runs
  WHERE pool = $1 AND status IN (1, 2)
  UNION ALL
  SELECT (
    SELECT min(app_name) FROM tape_runs
    WHERE pool = $1 AND status IN (1, 2) AND app_name > found.name)
  FROM found
  WHERE found.name IS NOT NULL
)
SELECT name FROM found WHERE name IS NOT NULL;

-- name: list_runs_to_recover
-- Runs of these pools and apps that nobody drives, oldest first.
SELECT
  run_id, app_name, user_id, session_id, invocation_id, pool, status, seq_cursor, lease_owner,
  reactor_name, lease_expires_at_ms, fencing_token, started_at_ms, ended_at_ms, app_version,
  parent_run_id, waiting_on, cancel_reason, top_obligation, ending, outcome_json
FROM unnest($1::text[], $2::text[]) AS wanted (of_pool, of_app)
CROSS JOIN (VALUES (1::smallint), (2::smallint)) AS open (at_status)
CROSS JOIN LATERAL (
  SELECT * FROM tape_runs
  WHERE pool = of_pool AND app_name = of_app AND status = at_status AND status IN (1, 2)
    AND (status = 1 OR lease_expires_at_ms <= (SELECT tape_now_us() / 1000))
  ORDER BY started_at_ms, run_id
  LIMIT $3) page
ORDER BY started_at_ms, run_id
LIMIT $3;

-- name: list_waiting_runs
-- How many runs of these pools and apps nobody drives, the oldest of them, and how many are driven.
-- A runnable one has waited since its newest entry, another since its lease ran out.
SELECT of_pool, of_app, runnable.many + lost.many, running.many, oldest.run_id, oldest.since_ms
FROM unnest($1::text[], $2::text[]) AS wanted (of_pool, of_app)
CROSS JOIN LATERAL (
  SELECT run_id, since_ms FROM (
    (SELECT r.run_id, coalesce(
      (SELECT ts_ms FROM tape_journal j WHERE j.run_id = r.run_id AND j.seq = r.seq_cursor),
      r.started_at_ms) AS since_ms
    FROM tape_runs r
    WHERE pool = of_pool AND app_name = of_app AND status = 1 AND status IN (1, 2)
    ORDER BY started_at_ms, run_id
    LIMIT $5)
    UNION ALL
    (SELECT run_id, lease_expires_at_ms FROM tape_runs
    WHERE pool = of_pool AND app_name = of_app AND status = 2 AND status IN (1, 2)
      AND lease_expires_at_ms <= (SELECT tape_now_us() / 1000)
    ORDER BY started_at_ms, run_id
    LIMIT $5)) AS open
  WHERE since_ms <= (SELECT tape_now_us() / 1000) - $3
  ORDER BY since_ms, run_id
  LIMIT 1) AS oldest
CROSS JOIN LATERAL (
  SELECT count(*) AS many FROM (
    SELECT 1 FROM tape_runs
    WHERE pool = of_pool AND app_name = of_app AND status = 1 AND status IN (1, 2)
    LIMIT $4) AS due) AS runnable
CROSS JOIN LATERAL (
  SELECT count(*) AS many FROM (
    SELECT 1 FROM tape_runs
    WHERE pool = of_pool AND app_name = of_app AND status = 2 AND status IN (1, 2)
      AND lease_expires_at_ms <= (SELECT tape_now_us() / 1000)
    LIMIT $4) AS unheld) AS lost
CROSS JOIN LATERAL (
  SELECT count(*) AS many FROM (
    SELECT 1 FROM tape_runs
    WHERE pool = of_pool AND app_name = of_app AND status = 2 AND status IN (1, 2)
      AND lease_expires_at_ms > (SELECT tape_now_us() / 1000)
    LIMIT $4) AS held) AS running;
