-- The matcher: who may match, how far it has come, and what a step of it changes.

-- name: acquire_matcher
-- Take or renew the lease if it is free, has run out or is the owner's own.
UPDATE tape_matcher SET
  fencing_token = fencing_token + (owner <> ?1), owner = ?1, expires_at_ms = ?2 + ?3
WHERE name = 'matcher' AND (owner = ?1 OR expires_at_ms <= ?2)
RETURNING owner, fencing_token, position;

-- name: release_matcher
-- Give the lease up, if it is still this one.
UPDATE tape_matcher SET owner = '', expires_at_ms = 0
WHERE name = 'matcher' AND owner = ? AND fencing_token = ?;

-- name: check_matcher
-- Whether the token and the position are what a step was made for.
SELECT 1 FROM tape_matcher WHERE name = 'matcher' AND fencing_token = ? AND position = ?;

-- name: advance_matcher
-- Move the matcher on and renew its lease.
UPDATE tape_matcher SET position = ?, expires_at_ms = ? WHERE name = 'matcher';

-- name: advance_cursors
-- Move cursors on and add to their counts.
UPDATE tape_reaction_cursors AS c SET
  last_global_seq = max(c.last_global_seq, d.value ->> 2),
  last_processed_at_ms = ?2,
  following = max(c.following, d.value ->> 3),
  matched = c.matched + (d.value ->> 4),
  coalesced = c.coalesced + (d.value ->> 5),
  predicate_errors = c.predicate_errors + (d.value ->> 6),
  last_error = iif(d.value ->> 6, d.value ->> 7, c.last_error),
  last_error_global_seq = iif(d.value ->> 6, d.value ->> 8, c.last_error_global_seq)
FROM json_each(?1) AS d
WHERE c.reaction_id = d.value ->> 0 AND c.shard = d.value ->> 1;

-- name: put_off_reactions
-- Have reactions follow no longer, but catch up from where their cursors are.
UPDATE tape_reaction_cursors SET following = 0
WHERE reaction_id IN (SELECT value FROM json_each(?));

-- name: find_moved_cursors
-- Those of these that do not stand where they should.
SELECT d.value ->> 0, d.value ->> 1
FROM json_each(?) AS d
LEFT JOIN tape_reaction_cursors AS c
  ON c.reaction_id = d.value ->> 0 AND c.shard = d.value ->> 1
WHERE c.last_global_seq IS NOT d.value ->> 2;

-- name: count_matched
-- Count tasks as matched whose entries their cursor has passed.
UPDATE tape_reaction_cursors AS c SET matched = c.matched + d.n
FROM (
  SELECT p.reaction_id, p.shard, count(*) AS n
  FROM json_each(?) AS t
  JOIN tape_reaction_cursors AS p ON p.reaction_id = t.value ->> 0 AND p.shard = t.value ->> 1
  JOIN tape_matcher AS m ON m.name = 'matcher'
  WHERE t.value ->> 2 <= iif(p.following, max(p.last_global_seq, m.position), p.last_global_seq)
  GROUP BY p.reaction_id, p.shard
) AS d
WHERE c.reaction_id = d.reaction_id AND c.shard = d.shard;

-- name: find_overtaken_tasks
-- Those of these whose burst a task has that waits and is of a later entry.
SELECT DISTINCT d.value ->> 0, d.value ->> 1, d.value ->> 2
FROM json_each(?) AS d
CROSS JOIN tape_task_queue AS q INDEXED BY tape_task_queue_debounce
WHERE q.reaction_id = d.value ->> 0 AND q.debounce_key = d.value ->> 4 AND q.debounce_key <> ''
  AND q.status = 1 AND q.source_global_seq > d.value ->> 2
  AND q.debounce_until_ms < (d.value ->> 3) + 2 * (d.value ->> 5);

-- name: find_known_tasks
-- Those of these that are queued or have ended.
SELECT d.value ->> 0, d.value ->> 1, d.value ->> 2
FROM json_each(?) AS d
WHERE EXISTS (
    SELECT 1 FROM tape_task_queue q
    WHERE q.reaction_id = d.value ->> 0 AND q.shard = d.value ->> 1
      AND q.source_global_seq = d.value ->> 2)
  OR EXISTS (
    SELECT 1 FROM tape_task_ended e
    WHERE e.reaction_id = d.value ->> 0 AND e.shard = d.value ->> 1
      AND e.source_global_seq = d.value ->> 2);

-- name: find_superseded_tasks
-- Tasks that still wait and whose window one of these falls into, with shard and source of that one.
SELECT q.reaction_id, q.shard, q.source_global_seq, d.value ->> 1, d.value ->> 2
FROM json_each(?) AS d
CROSS JOIN tape_task_queue AS q INDEXED BY tape_task_queue_debounce
WHERE q.reaction_id = d.value ->> 0 AND q.debounce_key = d.value ->> 4 AND q.debounce_key <> ''
  AND q.status = 1 AND q.debounce_until_ms > d.value ->> 3;

-- name: count_coalesced
-- Add to the counts of entries whose work was left to a later one.
UPDATE tape_reaction_cursors AS c SET coalesced = c.coalesced + (d.value ->> 2)
FROM json_each(?) AS d
WHERE c.reaction_id = d.value ->> 0 AND c.shard = d.value ->> 1;
