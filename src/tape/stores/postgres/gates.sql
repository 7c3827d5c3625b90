-- Gates: where runs wait for a word from outside.

-- name: load_gates
-- Rows by key, for a batch to decide on.
SELECT
  run_id, gate_name, awaited, released, payload_json, resolution_json
FROM tape_gates
JOIN unnest($1::text[], $2::text[]) AS wanted (run_id, gate_name)
  USING (run_id, gate_name);

-- name: save_gates
-- Write rows, new or changed.
INSERT INTO tape_gates (
  run_id, gate_name, awaited, released, payload_json, resolution_json)
SELECT * FROM unnest(
  $1::text[], $2::text[], $3::boolean[], $4::boolean[], $5::text[], $6::text[])
ON CONFLICT (run_id, gate_name) DO UPDATE SET
  awaited = excluded.awaited,
  released = excluded.released,
  payload_json = excluded.payload_json,
  resolution_json = excluded.resolution_json;
