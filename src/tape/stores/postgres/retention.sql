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
-- How far reactions have come, those that follow the matcher as one, and drainers with subscribers.
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
  UNION ALL
  SELECT 'drainer ' || s.drainer_id, coalesce(d.last_global_seq, 0)
  FROM tape_event_subscriptions s
  LEFT JOIN tape_event_drain_state d ON d.drainer_id = s.drainer_id
  WHERE s.enabled
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
-- Entries of a range that runs or tasks still need, each with what for.
-- They are looked up one by one: a join might read all the runs and tasks there are.
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

-- name: hold_pruning
-- Keep entries from being pruned until the end of the transaction; up to where they were.
SELECT pruned_through FROM tape_retention WHERE name = 'journal' FOR SHARE;

-- name: recall_entries
-- Bring entries back that have been pruned; their keys may be others' by now.
INSERT INTO tape_journal (
  global_seq, run_id, seq, kind, subject, payload_json, schema_version, trace_id, span_id,
  parent_span_id, ts_ms, event_id, event_type, entity_type, entity_id, caused_by, source,
  occurred_at_ms)
SELECT
  d.global_seq, nullif(d.run_id, ''), nullif(d.seq, 0), d.kind, d.subject, d.payload_json,
  d.schema_version, d.trace_id, d.span_id, d.parent_span_id, d.ts_ms, d.event_id, d.event_type,
  d.entity_type, d.entity_id, d.caused_by, d.source, d.occurred_at_ms
FROM unnest(
  $1::bigint[], $2::text[], $3::bigint[], $4::text[], $5::text[], $6::text[], $7::smallint[],
  $8::text[], $9::text[], $10::text[], $11::bigint[], $12::text[], $13::text[], $14::text[],
  $15::text[], $16::text[], $17::text[], $18::bigint[]
) AS d (
  global_seq, run_id, seq, kind, subject, payload_json, schema_version, trace_id, span_id,
  parent_span_id, ts_ms, event_id, event_type, entity_type, entity_id, caused_by, source,
  occurred_at_ms)
ON CONFLICT (global_seq) DO NOTHING;

-- name: find_absent
-- The first of these entries that the journal does not have.
SELECT min(d.global_seq)
FROM unnest($1::bigint[]) AS d (global_seq)
WHERE NOT EXISTS (SELECT FROM tape_journal j WHERE j.global_seq = d.global_seq);
