-- Sessions: the state of a conversation.

-- name: load_sessions
-- Rows by key, for a batch to decide on.
SELECT
  app_name, user_id, session_id, state_json, event_count, created_at_ms,
  last_update_time_ms
FROM tape_sessions
JOIN unnest($1::text[], $2::text[], $3::text[]) AS wanted (app_name, user_id, session_id) USING (app_name, user_id, session_id);

-- name: save_sessions
-- Write rows, new or changed.
INSERT INTO tape_sessions (
  app_name, user_id, session_id, state_json, event_count, created_at_ms,
  last_update_time_ms)
SELECT * FROM unnest(
  $1::text[], $2::text[], $3::text[], $4::text[], $5::bigint[], $6::bigint[], $7::bigint[])
ON CONFLICT (app_name, user_id, session_id) DO UPDATE SET
  state_json = excluded.state_json,
  event_count = excluded.event_count,
  created_at_ms = excluded.created_at_ms,
  last_update_time_ms = excluded.last_update_time_ms;

-- name: delete_sessions
-- Delete rows by key.
DELETE FROM tape_sessions
USING unnest($1::text[], $2::text[], $3::text[]) AS gone (app_name, user_id, session_id)
WHERE tape_sessions.app_name = gone.app_name AND tape_sessions.user_id = gone.user_id AND tape_sessions.session_id = gone.session_id;

-- name: get_session
-- One session.
SELECT
  app_name, user_id, session_id, state_json, event_count, created_at_ms,
  last_update_time_ms
FROM tape_sessions
WHERE app_name = $1 AND user_id = $2 AND session_id = $3;

-- name: list_sessions
-- A user's sessions, newest change first.
SELECT
  app_name, user_id, session_id, state_json, event_count, created_at_ms,
  last_update_time_ms
FROM tape_sessions
WHERE app_name = $1 AND user_id = $2
ORDER BY last_update_time_ms DESC, session_id
LIMIT $3;

-- name: list_session_apps
-- The apps that have a session, by name. Each is looked up behind the last one: the index has many rows of each.
WITH RECURSIVE named (app_name) AS (
  SELECT min(app_name) FROM tape_sessions WHERE app_name > $1
  UNION ALL
  SELECT (SELECT min(v.app_name) FROM tape_sessions v WHERE v.app_name > named.app_name)
  FROM named
  WHERE named.app_name IS NOT NULL)
SELECT app_name FROM named
WHERE app_name IS NOT NULL
LIMIT $2;
