-- Gates: where runs wait for a word from outside.

-- name: load_gates
-- Rows by key, for a batch to decide on.
SELECT
  run_id, gate_name, awaited, released, payload_json, resolution_json
FROM tape_gates
WHERE (run_id, gate_name) IN (
  SELECT value ->> 0, value ->> 1 FROM json_each(?));

-- name: save_gates
-- Write one row, new or changed.
INSERT INTO tape_gates (
  run_id, gate_name, awaited, released, payload_json, resolution_json)
VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (run_id, gate_name) DO UPDATE SET
  awaited = excluded.awaited,
  released = excluded.released,
  payload_json = excluded.payload_json,
  resolution_json = excluded.resolution_json;
