-- Values: versioned, with a tombstone where one was deleted.

-- name: load_values
-- Rows by key, for a batch to decide on.
SELECT
  namespace, key, value_json, version, ts_ms, writer, deleted, request_id
FROM tape_values
JOIN unnest($1::text[], $2::text[]) AS wanted (namespace, key) USING (namespace, key);

-- name: save_values
-- Write rows, new or changed.
INSERT INTO tape_values (
  namespace, key, value_json, version, ts_ms, writer, deleted, request_id)
SELECT * FROM unnest(
  $1::text[], $2::text[], $3::text[], $4::bigint[], $5::bigint[], $6::text[], $7::boolean[],
  $8::text[])
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
WHERE namespace = $1 AND key = $2;

-- name: list_values
-- The live values of a namespace by key.
SELECT namespace, key, value_json, version, ts_ms, writer, deleted
FROM tape_values
WHERE namespace = $1 AND key > $2 AND NOT deleted
ORDER BY key
LIMIT $3;

-- name: list_namespaces
-- The namespaces that hold a value, by name. Each is looked up behind the last one: the index has many rows of each.
WITH RECURSIVE named (namespace) AS (
  SELECT min(namespace) FROM tape_values WHERE namespace > $1
  UNION ALL
  SELECT (SELECT min(v.namespace) FROM tape_values v WHERE v.namespace > named.namespace)
  FROM named
  WHERE named.namespace IS NOT NULL)
SELECT namespace FROM named
WHERE namespace IS NOT NULL
  AND EXISTS (SELECT 1 FROM tape_values v WHERE v.namespace = named.namespace AND NOT v.deleted)
LIMIT $2;
