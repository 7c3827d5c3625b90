-- Writes in bulk: epochs, their lists of parts, and the chunks that were staged for them.

-- name: load_writes
-- Rows by key, for a batch to decide on.
SELECT write_id, epoch, origin, chunks, recorded, rows, duplicates, updated_at_ms
FROM tape_writes
WHERE write_id IN (
  SELECT value ->> 0 FROM json_each(?));

-- name: save_writes
-- Write one row, new or changed.
INSERT INTO tape_writes (
  write_id, epoch, origin, chunks, recorded, rows, duplicates, updated_at_ms)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)
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
WHERE write_id = ?;

-- name: forget_write
-- Delete a write that is finished.
DELETE FROM tape_writes
WHERE write_id = ? AND epoch <= ? AND recorded >= chunks;

-- name: load_write_lists
-- Rows by key, for a batch to decide on.
SELECT write_id, epoch, parts_json
FROM tape_write_lists
WHERE (write_id, epoch) IN (
  SELECT value ->> 0, value ->> 1 FROM json_each(?));

-- name: save_write_lists
-- Write one row, new or changed.
INSERT INTO tape_write_lists (write_id, epoch, parts_json)
VALUES (?, ?, ?)
ON CONFLICT (write_id, epoch) DO UPDATE SET
  parts_json = excluded.parts_json;

-- name: get_write_list
-- The list of an epoch.
SELECT write_id, epoch, parts_json
FROM tape_write_lists
WHERE write_id = ? AND epoch = ?;

-- name: forget_write_lists
-- Delete the lists of epochs that are done.
DELETE FROM tape_write_lists
WHERE write_id = ? AND epoch <= ?;

-- name: stage_chunk
-- Keep a chunk; one that is there already is the same.
INSERT INTO tape_write_chunks (write_id, epoch, part, number, rows, body, staged_at_ms)
VALUES (?, ?, ?, ?, ?, ?, CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER))
ON CONFLICT (write_id, epoch, part, number) DO NOTHING;

-- name: get_chunk
-- The body of a chunk.
SELECT body FROM tape_write_chunks
WHERE write_id = ? AND epoch = ? AND part = ? AND number = ?;

-- name: discard_part
-- Delete what one part has staged.
DELETE FROM tape_write_chunks
WHERE write_id = ? AND epoch = ? AND part = ?;

-- name: discard_staged
-- Delete a few chunks of epochs that are done, or that nobody has registered for long.
DELETE FROM tape_write_chunks
WHERE rowid IN (
  SELECT c.rowid FROM tape_write_chunks c
  WHERE (c.write_id = ?1 AND c.epoch <= ?2)
    OR (c.staged_at_ms < CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) - ?3
      AND NOT EXISTS (
        SELECT 1 FROM tape_write_lists l WHERE (l.write_id, l.epoch) = (c.write_id, c.epoch)))
  LIMIT ?4);
