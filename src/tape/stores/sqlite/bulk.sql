-- Reading by the column, for Spark.

-- name: read_bounds
-- The oldest and the newest entry, 0 if there is none.
SELECT
  coalesce((SELECT min(global_seq) FROM tape_journal), 0) AS first,
  coalesce((SELECT max(global_seq) FROM tape_journal), 0) AS head;

-- name: cut_range
-- Where ranges of as many numbers end, each begun at an entry, so a gap costs one look.
WITH RECURSIVE cuts (upto) AS (
  SELECT (SELECT min(global_seq) FROM tape_journal WHERE global_seq > ?1) - 1 + ?3
  UNION ALL
  SELECT (SELECT min(global_seq) FROM tape_journal WHERE global_seq > cuts.upto) - 1 + ?3
  FROM cuts
  WHERE cuts.upto < ?2
)
SELECT upto FROM cuts WHERE upto IS NOT NULL;

-- name: reach_entries
-- The last of so many entries after a number; no row if there are fewer.
SELECT global_seq FROM tape_journal WHERE global_seq > ?1 ORDER BY global_seq LIMIT 1 OFFSET ?2 - 1;

-- name: scan_entries
-- Columns of the entries of a range, in order.
SELECT /* columns */ NULL
FROM tape_journal
WHERE global_seq > ?1 AND global_seq <= ?2
  AND /* conditions */ TRUE
  AND /* predicate */ TRUE
ORDER BY global_seq;

-- name: read_table
-- Another table, whole.
SELECT /* columns */ NULL FROM /* table */ tape_journal;

-- name: read_given_out
-- The last numbers that were given out: to entries, and to rows of the outbox.
SELECT
  'journal' AS name,
  coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'tape_journal'), 0) AS last
UNION ALL
SELECT 'outbox', coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'bus_outbox'), 0);
