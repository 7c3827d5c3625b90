-- Retention: how far the journal was pruned, what still needs its old entries, and their removal.

-- name: read_pruned_through
-- Up to where entries were removed.
SELECT pruned_through FROM tape_retention WHERE name = 'journal';

-- name: read_holds
-- How far reactions have come, those that follow the matcher as one, and drainers with subscribers.
SELECT name, min(upto) FROM (
  SELECT
    iif(c.following AND r.engine = 'server', 'matcher', 'reaction ' || r.reaction_id) AS name,
    iif(c.following AND r.engine = 'server', max(c.last_global_seq, m.position), c.last_global_seq)
      AS upto
  FROM tape_reactions r
  JOIN tape_reaction_cursors c ON c.reaction_id = r.reaction_id
  JOIN tape_matcher m ON m.name = 'matcher'
  WHERE r.deleted = 0
  UNION ALL
  SELECT 'drainer ' || s.drainer_id, coalesce(d.last_global_seq, 0)
  FROM tape_event_subscriptions s
  LEFT JOIN tape_event_drain_state d ON d.drainer_id = s.drainer_id
  WHERE s.enabled
)
GROUP BY name
ORDER BY name;

-- name: find_prune_end
-- How many entries a step of so many would look at, and the last of them.
SELECT count(*), coalesce(max(global_seq), 0) FROM (
  SELECT global_seq FROM tape_journal
  WHERE global_seq > ?1 AND global_seq <= ?2
  ORDER BY global_seq
  LIMIT ?3
) step;

-- name: find_kept
-- Entries of a range that runs or tasks still need, each with what for.
WITH RECURSIVE places (reaction_id, shard, shards) AS (
  SELECT reaction_id, 0, shards FROM tape_reaction_tallies WHERE shards > 0
  UNION ALL
  SELECT reaction_id, shard + 1, shards FROM places WHERE shard + 1 < shards
)
SELECT j.global_seq, 'runs'
FROM tape_journal j CROSS JOIN tape_runs r ON r.run_id = j.run_id
WHERE j.global_seq > ?1 AND j.global_seq <= ?2 AND j.run_id IS NOT NULL
  AND r.status NOT IN (4, 5, 8)
UNION ALL
SELECT q.source_global_seq, 'tasks'
FROM places p CROSS JOIN tape_task_queue q
  ON q.reaction_id = p.reaction_id AND q.shard = p.shard
  AND q.source_global_seq > ?1 AND q.source_global_seq <= ?2
UNION ALL
SELECT e.source_global_seq, 'dead letters'
FROM places p CROSS JOIN tape_task_ended e INDEXED BY tape_task_ended_badly
  ON e.reaction_id = p.reaction_id AND e.shard = p.shard
  AND e.source_global_seq > ?1 AND e.source_global_seq <= ?2 AND e.status > 3 AND e.status = 5;

-- name: prune_entries
-- Remove a range of entries but for these.
DELETE FROM tape_journal
WHERE global_seq > ?1 AND global_seq <= ?2
  AND global_seq NOT IN (SELECT value FROM json_each(?3));

-- name: advance_pruned
-- Say that entries up to there are gone.
UPDATE tape_retention SET pruned_through = max(pruned_through, ?) WHERE name = 'journal';

-- name: measure_range
-- How many entries a range has, and its ends.
SELECT count(*), coalesce(min(global_seq), 0), coalesce(max(global_seq), 0)
FROM tape_journal
WHERE global_seq > ? AND global_seq <= ?;

-- name: recall_entries
-- Bring an entry back that has been pruned; its key may be another's by now.
INSERT INTO tape_journal (
  global_seq, run_id, seq, kind, subject, payload_json, schema_version, trace_id, span_id,
  parent_span_id, ts_ms, event_id, event_type, entity_type, entity_id, caused_by, source,
  occurred_at_ms)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (global_seq) DO NOTHING;

-- name: find_absent
-- The first of these entries that the journal does not have.
SELECT min(d.value)
FROM json_each(?) AS d
WHERE NOT EXISTS (SELECT 1 FROM tape_journal j WHERE j.global_seq = d.value);
