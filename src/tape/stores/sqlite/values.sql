-- Values: versioned, with a tombstone where one was deleted.

-- name: load_values
-- Rows by key, for a batch to decide on.
SELECT
  namespace, key, value_json, version, ts_ms, writer, deleted, request_id
FROM tape_values
WHERE (namespace, key) IN (
  SELECT value ->> 0, value ->> 1 FROM json_each(?));

-- name: save_values
-- Write one row, new or changed.
INSERT INTO tape_values (
  namespace, key, value_json, version, ts_ms, writer, deleted, request_id)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (namespace, key) DO UPDATE SET
  value_json = excluded.value_json,
  version = excluded.version,
  ts_ms = excluded.ts_ms,
  writer = excluded.writer,
  deleted = excluded.deleted,
  request_id = excluded.request_id;

-- name: get_value
-- One value, deleted or not.
SELECT namespace, key, value_json, version, ts_ms, writer, deleted
FROM tape_values
WHERE namespace = ? AND key = ?;

-- name: list_values
-- The live values of a namespace by key.
SELECT namespace, key, value_json, version, ts_ms, writer, deleted
FROM tape_values
WHERE namespace = ? AND key > ? AND NOT deleted
ORDER BY key
LIMIT ?;

-- name: list_namespaces
-- The namespaces that hold a value, by name. Each is looked up behind the last one: the index has many rows of each.
WITH RECURSIVE named (namespace) AS (
  SELECT min(namespace) FROM tape_values WHERE namespace > ?
  UNION ALL
  SELECT (SELECT min(v.namespace) FROM tape_values v WHERE v.namespace > named.namespace)
  FROM named
  WHERE named.namespace IS NOT NULL)
SELECT namespace FROM named
WHERE namespace IS NOT NULL
  AND EXISTS (SELECT 1 FROM tape_values v WHERE v.namespace = named.namespace AND NOT v.deleted)
LIMIT ?;
