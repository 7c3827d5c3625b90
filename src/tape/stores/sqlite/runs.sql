-- Runs and the lease that fences their writes.
--
-- The lists take the same parameters: status, app, pool, user and session (NULL: any), parent, the
-- place after which they go on, and how many. Each has another filter that leads into an index.

-- name: load_runs
-- Rows by key, for a batch to decide on.
SELECT
  run_id, app_name, user_id, session_id, invocation_id, pool, status, seq_cursor, lease_owner,
  reactor_name, lease_expires_at_ms, fencing_token, started_at_ms, ended_at_ms, app_version,
  parent_run_id, waiting_on, cancel_reason, top_obligation, ending, outcome_json
FROM tape_runs
WHERE run_id IN (
  SELECT value ->> 0 FROM json_each(?));

-- name: save_runs
-- Write one row, new or changed. What names a run, its pool, parent and start never change.
-- They are not set again, for SQLite writes anew every index on a column that a statement sets.
INSERT INTO tape_runs (
  run_id, app_name, user_id, session_id, invocation_id, pool, status, seq_cursor, lease_owner,
  reactor_name, lease_expires_at_ms, fencing_token, started_at_ms, ended_at_ms, app_version,
  parent_run_id, waiting_on, cancel_reason, top_obligation, ending, outcome_json)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
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

-- name: advance_runs
-- Write one row whose status is as it was. It is then not set, for the reason above.
UPDATE tape_runs SET
  seq_cursor = ?8,
  lease_owner = ?9,
  reactor_name = ?10,
  lease_expires_at_ms = ?11,
  fencing_token = ?12,
  ended_at_ms = ?14,
  app_version = ?15,
  waiting_on = ?17,
  cancel_reason = ?18,
  top_obligation = ?19,
  ending = ?20,
  outcome_json = ?21
WHERE run_id = ?1;

-- name: get_run
-- One run.
SELECT
  run_id, app_name, user_id, session_id, invocation_id, pool, status, seq_cursor, lease_owner,
  reactor_name, lease_expires_at_ms, fencing_token, started_at_ms, ended_at_ms, app_version,
  parent_run_id, waiting_on, cancel_reason, top_obligation, ending, outcome_json
FROM tape_runs
WHERE run_id = ?;

-- name: list_runs
-- Runs, newest first.
SELECT
  run_id, app_name, user_id, session_id, invocation_id, pool, status, seq_cursor, lease_owner,
  reactor_name, lease_expires_at_ms, fencing_token, started_at_ms, ended_at_ms, app_version,
  parent_run_id, waiting_on, cancel_reason, top_obligation, ending, outcome_json
FROM tape_runs INDEXED BY tape_runs_started
WHERE (started_at_ms, run_id) < (?7, ?8)
  AND (?1 = 0 OR status = ?1)
  AND (?2 = '' OR app_name = ?2)
  AND (?3 = '' OR pool = ?3)
  AND (?4 IS NULL OR (user_id = ?4 AND session_id = ?5))
  AND (?6 = '' OR parent_run_id = ?6)
ORDER BY started_at_ms DESC, run_id DESC
LIMIT ?9;

-- name: list_runs_of_pool
-- Runs of a pool, newest first.
SELECT
  run_id, app_name, user_id, session_id, invocation_id, pool, status, seq_cursor, lease_owner,
  reactor_name, lease_expires_at_ms, fencing_token, started_at_ms, ended_at_ms, app_version,
  parent_run_id, waiting_on, cancel_reason, top_obligation, ending, outcome_json
FROM tape_runs INDEXED BY tape_runs_pool
WHERE pool = ?3
  AND (started_at_ms, run_id) < (?7, ?8)
  AND (?1 = 0 OR status = ?1)
  AND (?2 = '' OR app_name = ?2)
  AND (?4 IS NULL OR (user_id = ?4 AND session_id = ?5))
  AND (?6 = '' OR parent_run_id = ?6)
ORDER BY started_at_ms DESC, run_id DESC
LIMIT ?9;

-- name: list_runs_of_app
-- Runs of an app, newest first.
SELECT
  run_id, app_name, user_id, session_id, invocation_id, pool, status, seq_cursor, lease_owner,
  reactor_name, lease_expires_at_ms, fencing_token, started_at_ms, ended_at_ms, app_version,
  parent_run_id, waiting_on, cancel_reason, top_obligation, ending, outcome_json
FROM tape_runs INDEXED BY tape_runs_app
WHERE app_name = ?2
  AND (started_at_ms, run_id) < (?7, ?8)
  AND (?1 = 0 OR status = ?1)
  AND (?3 = '' OR pool = ?3)
  AND (?4 IS NULL OR (user_id = ?4 AND session_id = ?5))
  AND (?6 = '' OR parent_run_id = ?6)
ORDER BY started_at_ms DESC, run_id DESC
LIMIT ?9;

-- name: list_runs_of_session
-- Runs of an app's session, newest first.
SELECT
  run_id, app_name, user_id, session_id, invocation_id, pool, status, seq_cursor, lease_owner,
  reactor_name, lease_expires_at_ms, fencing_token, started_at_ms, ended_at_ms, app_version,
  parent_run_id, waiting_on, cancel_reason, top_obligation, ending, outcome_json
FROM tape_runs INDEXED BY tape_runs_session
WHERE app_name = ?2
  AND user_id = ?4 AND session_id = ?5
  AND (started_at_ms, run_id) < (?7, ?8)
  AND (?1 = 0 OR status = ?1)
  AND (?3 = '' OR pool = ?3)
  AND (?6 = '' OR parent_run_id = ?6)
ORDER BY started_at_ms DESC, run_id DESC
LIMIT ?9;

-- name: list_open_runs_of_session
-- Runs of an app's session with a status in which they can be driven, newest first.
SELECT
  run_id, app_name, user_id, session_id, invocation_id, pool, status, seq_cursor, lease_owner,
  reactor_name, lease_expires_at_ms, fencing_token, started_at_ms, ended_at_ms, app_version,
  parent_run_id, waiting_on, cancel_reason, top_obligation, ending, outcome_json
FROM tape_runs INDEXED BY tape_runs_open
WHERE status = ?1 AND status IN (1, 2, 3)
  AND app_name = ?2
  AND user_id = ?4 AND session_id = ?5
  AND (started_at_ms, run_id) < (?7, ?8)
  AND (?3 = '' OR pool = ?3)
  AND (?6 = '' OR parent_run_id = ?6)
ORDER BY started_at_ms DESC, run_id DESC
LIMIT ?9;

-- name: list_runs_of_parent
-- A run's children, newest first.
SELECT
  run_id, app_name, user_id, session_id, invocation_id, pool, status, seq_cursor, lease_owner,
  reactor_name, lease_expires_at_ms, fencing_token, started_at_ms, ended_at_ms, app_version,
  parent_run_id, waiting_on, cancel_reason, top_obligation, ending, outcome_json
FROM tape_runs INDEXED BY tape_runs_parent
WHERE parent_run_id = ?6 AND parent_run_id <> ''
  AND (started_at_ms, run_id) < (?7, ?8)
  AND (?1 = 0 OR status = ?1)
  AND (?2 = '' OR app_name = ?2)
  AND (?3 = '' OR pool = ?3)
  AND (?4 IS NULL OR (user_id = ?4 AND session_id = ?5))
ORDER BY started_at_ms DESC, run_id DESC
LIMIT ?9;

-- name: list_runs_of_status
-- Runs with a status other than TERMINAL, newest first.
SELECT
  run_id, app_name, user_id, session_id, invocation_id, pool, status, seq_cursor, lease_owner,
  reactor_name, lease_expires_at_ms, fencing_token, started_at_ms, ended_at_ms, app_version,
  parent_run_id, waiting_on, cancel_reason, top_obligation, ending, outcome_json
FROM tape_runs INDEXED BY tape_runs_status
WHERE status = ?1 AND status <> 4
  AND (started_at_ms, run_id) < (?7, ?8)
  AND (?2 = '' OR app_name = ?2)
  AND (?3 = '' OR pool = ?3)
  AND (?4 IS NULL OR (user_id = ?4 AND session_id = ?5))
  AND (?6 = '' OR parent_run_id = ?6)
ORDER BY started_at_ms DESC, run_id DESC
LIMIT ?9;

-- name: read_pools_to_recover
-- Pools with runs to drive, one found from another.
WITH RECURSIVE found (name) AS (
  SELECT min(pool) FROM tape_runs INDEXED BY tape_runs_due
  WHERE status IN (1, 2)
  UNION ALL
  SELECT (
    SELECT min(pool) FROM tape_runs INDEXED BY tape_runs_due
    WHERE status IN (1, 2) AND pool > found.name)
  FROM found
  WHERE found.name IS NOT NULL
)
SELECT name FROM found WHERE name IS NOT NULL;

-- name: read_apps_to_recover
-- A pool's apps with runs to drive, one found from another.
WITH RECURSIVE found (name) AS (
  SELECT min(app_name) FROM tape_runs INDEXED BY tape_runs_due
  WHERE pool = ?1 AND status IN (1, 2)
  UNION ALL
  SELECT (
    SELECT min(app_name) FROM tape_runs INDEXED BY tape_runs_due
    WHERE pool = ?1 AND status IN (1, 2) AND app_name > found.name)
  FROM found
  WHERE found.name IS NOT NULL
)
SELECT name FROM found WHERE name IS NOT NULL;

-- name: list_runs_to_recover
-- Runs of one pool, app and status that nobody drives, oldest first.
SELECT
  run_id, app_name, user_id, session_id, invocation_id, pool, status, seq_cursor, lease_owner,
  reactor_name, lease_expires_at_ms, fencing_token, started_at_ms, ended_at_ms, app_version,
  parent_run_id, waiting_on, cancel_reason, top_obligation, ending, outcome_json
FROM tape_runs INDEXED BY tape_runs_due
WHERE pool = ? AND app_name = ? AND status = ? AND status IN (1, 2)
  AND (status = 1 OR lease_expires_at_ms <= ?)
ORDER BY started_at_ms, run_id
LIMIT ?;

-- name: list_waiting_runs
-- How many runs of one pool and app nobody drives, the oldest of them, and how many are driven.
-- A runnable one has waited since its newest entry, another since its lease ran out.
SELECT pool, app_name, runnable + lost, running, run_id, since_ms
FROM (
  SELECT
    ?1 AS pool, ?2 AS app_name, run_id, min(since_ms) AS since_ms,
    (SELECT count(*) FROM (
      SELECT 1 FROM tape_runs INDEXED BY tape_runs_due
      WHERE pool = ?1 AND app_name = ?2 AND status = 1 AND status IN (1, 2)
      LIMIT ?5)) AS runnable,
    (SELECT count(*) FROM (
      SELECT 1 FROM tape_runs INDEXED BY tape_runs_due
      WHERE pool = ?1 AND app_name = ?2 AND status = 2 AND status IN (1, 2)
        AND lease_expires_at_ms <= ?3
      LIMIT ?5)) AS lost,
    (SELECT count(*) FROM (
      SELECT 1 FROM tape_runs INDEXED BY tape_runs_due
      WHERE pool = ?1 AND app_name = ?2 AND status = 2 AND status IN (1, 2)
        AND lease_expires_at_ms > ?3
      LIMIT ?5)) AS running
  FROM (
    SELECT * FROM (
      SELECT run_id, coalesce(
        (SELECT ts_ms FROM tape_journal j WHERE j.run_id = r.run_id AND j.seq = r.seq_cursor),
        started_at_ms) AS since_ms
      FROM tape_runs r INDEXED BY tape_runs_due
      WHERE pool = ?1 AND app_name = ?2 AND status = 1 AND status IN (1, 2)
      ORDER BY started_at_ms, run_id
      LIMIT ?6)
    UNION ALL
    SELECT * FROM (
      SELECT run_id, lease_expires_at_ms FROM tape_runs INDEXED BY tape_runs_due
      WHERE pool = ?1 AND app_name = ?2 AND status = 2 AND status IN (1, 2)
        AND lease_expires_at_ms <= ?3
      ORDER BY started_at_ms, run_id
      LIMIT ?6)))
WHERE since_ms <= ?4;
