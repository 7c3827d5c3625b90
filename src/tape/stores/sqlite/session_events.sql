-- The events of a session, in its own order.

-- name: load_session_events
-- Rows by key, for a batch to decide on.
SELECT
  app_name, user_id, session_id, id, position, invocation_id, author, branch,
  content_json, actions_json, timestamp_ms
FROM tape_session_events
WHERE (app_name, user_id, session_id, id) IN (
  SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3 FROM json_each(?));

-- name: save_session_events
-- Write one row, new or changed.
INSERT INTO tape_session_events (
  app_name, user_id, session_id, id, position, invocation_id, author, branch,
  content_json, actions_json, timestamp_ms)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (app_name, user_id, session_id, id) DO UPDATE SET
  position = excluded.position,
  invocation_id = excluded.invocation_id,
  author = excluded.author,
  branch = excluded.branch,
  content_json = excluded.content_json,
  actions_json = excluded.actions_json,
  timestamp_ms = excluded.timestamp_ms;

-- name: read_session_events
-- The newest events of a session, newest first.
SELECT
  app_name, user_id, session_id, id, position, invocation_id, author, branch,
  content_json, actions_json, timestamp_ms
FROM tape_session_events
WHERE app_name = ? AND user_id = ? AND session_id = ?
ORDER BY position DESC
LIMIT ?;
