-- Sessions: the state of a conversation.

-- name: load_sessions
-- Rows by key, for a batch to decide on.
SELECT
  app_name, user_id, session_id, state_json, event_count, created_at_ms,
  last_update_time_ms
FROM tape_sessions
WHERE (app_name, user_id, session_id) IN (
  SELECT value ->> 0, value ->> 1, value ->> 2 FROM json_each(?));

-- name: save_sessions
-- Write one row, new or changed.
INSERT INTO tape_sessions (
  app_name, user_id, session_id, state_json, event_count, created_at_ms,
  last_update_time_ms)
VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (app_name, user_id, session_id) DO UPDATE SET
  state_json = excluded.state_json,
  event_count = excluded.event_count,
  created_at_ms = excluded.created_at_ms,
  last_update_time_ms = excluded.last_update_time_ms;

-- name: delete_sessions
-- Delete rows by key.
DELETE FROM tape_sessions
WHERE (app_name, user_id, session_id) IN (
  SELECT value ->> 0, value ->> 1, value ->> 2 FROM json_each(?));

-- name: get_session
-- One session.
SELECT
  app_name, user_id, session_id, state_json, event_count, created_at_ms,
  last_update_time_ms
FROM tape_sessions
WHERE app_name = ? AND user_id = ? AND session_id = ?;

-- name: list_sessions
-- A user's sessions, newest change first.
SELECT
  app_name, user_id, session_id, state_json, event_count, created_at_ms,
  last_update_time_ms
FROM tape_sessions
WHERE app_name = ? AND user_id = ?
ORDER BY last_update_time_ms DESC, session_id
LIMIT ?;

-- name: list_session_apps
-- The apps that have a session, by name. Each is looked up behind the last one: the index has many rows of each.
WITH RECURSIVE named (app_name) AS (
  SELECT min(app_name) FROM tape_sessions WHERE app_name > ?
  UNION ALL
  SELECT (SELECT min(v.app_name) FROM tape_sessions v WHERE v.app_name > named.app_name)
  FROM named
  WHERE named.app_name IS NOT NULL)
SELECT app_name FROM named
WHERE app_name IS NOT NULL
LIMIT ?;
