-- Writes in bulk: epochs, their lists of parts, and the chunks that were staged for them.

-- name: load_writes
-- Rows by key, for a batch to decide on.
SELECT write_id, epoch, origin, chunks, recorded, rows, duplicates, updated_at_ms
FROM tape_writes
JOIN unnest($1::text[]) AS wanted (write_id) USING (write_id);

-- name: save_writes
-- Write rows, new or changed.
INSERT INTO tape_writes (
  write_id, epoch, origin, chunks, recorded, rows, duplicates, updated_at_ms)
SELECT * FROM unnest(
  $1::text[], $2::bigint[], $3::text[], $4::integer[], $5::integer[], $6::bigint[],
  $7::bigint[], $8::bigint[])
ON CONFLICT (write_id) DO UPDATE SET
  epoch = excluded.epoch,
  origin = excluded.origin,
  chunks = excluded.chunks,
  recorded = excluded.recorded,
  rows = excluded.rows,
  duplicates = excluded.duplicates,
  updated_at_ms = excluded.updated_at_ms;

-- name: get_write
-- One write.
SELECT write_id, epoch, origin, chunks, recorded, rows, duplicates, updated_at_ms
FROM tape_writes
WHERE write_id = $1;

-- name: forget_write
-- Delete a write that is finished.
DELETE FROM tape_writes
WHERE write_id = $1 AND epoch <= $2 AND recorded >= chunks;

-- name: load_write_lists
-- Rows by key, for a batch to decide on.
SELECT write_id, epoch, parts_json
FROM tape_write_lists
JOIN unnest($1::text[], $2::bigint[]) AS wanted (write_id, epoch) USING (write_id, epoch);

-- name: save_write_lists
-- Write rows, new or changed.
INSERT INTO tape_write_lists (write_id, epoch, parts_json)
SELECT * FROM unnest($1::text[], $2::bigint[], $3::text[])
ON CONFLICT (write_id, epoch) DO UPDATE SET
  parts_json = excluded.parts_json;

-- name: get_write_list
-- The list of an epoch.
SELECT write_id, epoch, parts_json
FROM tape_write_lists
WHERE write_id = $1 AND epoch = $2;

-- name: forget_write_lists
-- Delete the lists of epochs that are done.
DELETE FROM tape_write_lists
WHERE write_id = $1 AND epoch <= $2;

-- name: stage_chunk
-- Keep a chunk; one that is there already is the same.
INSERT INTO tape_write_chunks (write_id, epoch, part, number, rows, body, staged_at_ms)
VALUES ($1, $2, $3, $4, $5, $6, (extract(epoch FROM clock_timestamp()) * 1000)::bigint)
ON CONFLICT (write_id, epoch, part, number) DO NOTHING;

-- name: get_chunk
-- The body of a chunk.
SELECT body FROM tape_write_chunks
WHERE write_id = $1 AND epoch = $2 AND part = $3 AND number = $4;

-- name: discard_part
-- Delete what one part has staged.
DELETE FROM tape_write_chunks
WHERE write_id = $1 AND epoch = $2 AND part = $3;

-- name: discard_staged
-- Delete a few chunks of epochs that are done, or that nobody has registered for long.
DELETE FROM tape_write_chunks
WHERE ctid = ANY (ARRAY (
  SELECT c.ctid FROM tape_write_chunks c
  WHERE (c.write_id = $1 AND c.epoch <= $2)
    OR (c.staged_at_ms < (extract(epoch FROM clock_timestamp()) * 1000)::bigint - $3
      AND NOT EXISTS (
        SELECT FROM tape_write_lists l WHERE (l.write_id, l.epoch) = (c.write_id, c.epoch)))
  LIMIT $4));
