-- Retention: how far the journal was pruned, what still needs its old entries, and their removal.

-- name: read_pruned_through
-- Up to where entries were removed.
SELECT pruned_through FROM tape_retention WHERE name = 'journal';

-- name: take_pruning
-- Wait for the turn to prune, and keep reactions from being registered until the end of it.
SELECT pruned_through FROM tape_retention
CROSS JOIN tape_reaction_book b
WHERE tape_retention.name = 'journal' AND b.name = 'reactions'
FOR UPDATE OF tape_retention FOR SHARE OF b;

-- name: read_holds
-- How far reactions have come: those that follow the matcher as one, the others each for itself.
SELECT name, min(upto) FROM (
  SELECT
    CASE WHEN c.following <> 0 AND r.engine = 'server' THEN 'matcher'
      ELSE 'reaction ' || r.reaction_id END AS name,
    CASE WHEN c.following <> 0 AND r.engine = 'server'
      THEN greatest(c.last_global_seq, m.position) ELSE c.last_global_seq END AS upto
  FROM tape_reactions r
  JOIN tape_reaction_cursors c ON c.reaction_id = r.reaction_id
  JOIN tape_matcher m ON m.name = 'matcher'
  WHERE r.deleted = 0
) held
GROUP BY name
ORDER BY name;

-- name: find_prune_end
-- How many entries a step of so many would look at, and the last of them.
SELECT count(*), coalesce(max(global_seq), 0) FROM (
  SELECT global_seq FROM tape_journal
  WHERE global_seq > $1 AND global_seq <= $2
  ORDER BY global_seq
  LIMIT $3
) step;

-- name: find_kept
-- Entries of a range that runs or tasks still need, each with what for; looked up one by one,
-- since a join may read all the runs and tasks there are.
WITH RECURSIVE places (reaction_id, shard, shards) AS (
  SELECT reaction_id, 0, shards FROM tape_reaction_tallies WHERE shards > 0
  UNION ALL
  SELECT reaction_id, shard + 1, shards FROM places WHERE shard + 1 < shards
)
SELECT j.global_seq, 'runs'
FROM tape_journal j
WHERE j.global_seq > $1 AND j.global_seq <= $2 AND j.run_id IS NOT NULL
  AND (SELECT r.status FROM tape_runs r WHERE r.run_id = j.run_id) NOT IN (4, 5, 8)
UNION ALL
SELECT q.source_global_seq, 'tasks'
FROM places p CROSS JOIN LATERAL (
  SELECT source_global_seq FROM tape_task_queue
  WHERE reaction_id = p.reaction_id AND shard = p.shard
    AND source_global_seq > $1 AND source_global_seq <= $2
  OFFSET 0
) q
UNION ALL
SELECT e.source_global_seq, 'dead letters'
FROM places p CROSS JOIN LATERAL (
  SELECT source_global_seq FROM tape_task_ended
  WHERE reaction_id = p.reaction_id AND shard = p.shard
    AND source_global_seq > $1 AND source_global_seq <= $2 AND status > 3 AND status = 5
  OFFSET 0
) e;

-- name: prune_entries
-- Remove a range of entries but for these.
DELETE FROM tape_journal
WHERE global_seq > $1 AND global_seq <= $2 AND global_seq <> ALL ($3::bigint[]);

-- name: advance_pruned
-- Say that entries up to there are gone.
UPDATE tape_retention SET pruned_through = greatest(pruned_through, $1) WHERE name = 'journal';

-- name: measure_range
-- How many entries a range has, and its ends.
SELECT count(*), coalesce(min(global_seq), 0), coalesce(max(global_seq), 0)
FROM tape_journal
WHERE global_seq > $1 AND global_seq <= $2;
