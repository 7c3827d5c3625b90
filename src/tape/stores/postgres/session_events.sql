-- The events of a session, in its own order.

-- name: load_session_events
-- Rows by key, for a batch to decide on.
SELECT
  app_name, user_id, session_id, id, position, invocation_id, author, branch,
  content_json, actions_json, timestamp_ms
FROM tape_session_events
JOIN unnest($1::text[], $2::text[], $3::text[], $4::text[]) AS wanted (app_name, user_id, session_id, id) USING (app_name, user_id, session_id, id);

-- name: save_session_events
-- Write rows, new or changed.
INSERT INTO tape_session_events (
  app_name, user_id, session_id, id, position, invocation_id, author, branch,
  content_json, actions_json, timestamp_ms)
SELECT * FROM unnest(
  $1::text[], $2::text[], $3::text[], $4::text[], $5::bigint[], $6::text[], $7::text[],
  $8::text[], $9::text[], $10::text[], $11::bigint[])
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
WHERE app_name = $1 AND user_id = $2 AND session_id = $3
ORDER BY position DESC
LIMIT $4;
