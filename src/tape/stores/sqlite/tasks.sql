-- Tasks: the queue, what has ended, and the entries that made them. Statements that return tasks
-- give the columns of model.task.Task, then those of its entry (NULL where that is gone) and, unless
-- they claim, the traceback.
--
-- Keys are cast: of columns with several types SQLite looks up only the first where it has to
-- guess. Indexes of a part of the queue are named: it would take the whole.

-- name: load_task_queue
-- Rows by key, for a batch to decide on.
SELECT
  reaction_id, shard, source_global_seq, status, attempts, next_attempt_at_ms, lease_owner,
  lease_expires_at_ms, claimed_at_ms, last_error, debounce_key, debounce_until_ms, created_at_ms,
  last_traceback
FROM tape_task_queue
WHERE (reaction_id, shard, source_global_seq) IN (
  SELECT CAST(value ->> 0 AS TEXT), CAST(value ->> 1 AS INTEGER), CAST(value ->> 2 AS INTEGER)
  FROM json_each(?));

-- name: save_task_queue
-- Write one row, new or changed.
INSERT INTO tape_task_queue (
  reaction_id, shard, source_global_seq, status, attempts, next_attempt_at_ms, lease_owner,
  lease_expires_at_ms, claimed_at_ms, last_error, debounce_key, debounce_until_ms, created_at_ms,
  last_traceback)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (reaction_id, shard, source_global_seq) DO UPDATE SET
  status = excluded.status,
  attempts = excluded.attempts,
  next_attempt_at_ms = excluded.next_attempt_at_ms,
  lease_owner = excluded.lease_owner,
  lease_expires_at_ms = excluded.lease_expires_at_ms,
  claimed_at_ms = excluded.claimed_at_ms,
  last_error = excluded.last_error,
  debounce_key = excluded.debounce_key,
  debounce_until_ms = excluded.debounce_until_ms,
  created_at_ms = excluded.created_at_ms,
  last_traceback = excluded.last_traceback;

-- name: delete_task_queue
-- Delete rows by key.
DELETE FROM tape_task_queue
WHERE (reaction_id, shard, source_global_seq) IN (
  SELECT CAST(value ->> 0 AS TEXT), CAST(value ->> 1 AS INTEGER), CAST(value ->> 2 AS INTEGER)
  FROM json_each(?));

-- name: load_task_ended
-- Rows by key, for a batch to decide on.
SELECT
  reaction_id, shard, source_global_seq, status, attempts, lease_owner, last_error, created_at_ms,
  completed_at_ms, last_traceback
FROM tape_task_ended
WHERE (reaction_id, shard, source_global_seq) IN (
  SELECT CAST(value ->> 0 AS TEXT), CAST(value ->> 1 AS INTEGER), CAST(value ->> 2 AS INTEGER)
  FROM json_each(?));

-- name: save_task_ended
-- Write one row, new or changed.
INSERT INTO tape_task_ended (
  reaction_id, shard, source_global_seq, status, attempts, lease_owner, last_error, created_at_ms,
  completed_at_ms, last_traceback)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (reaction_id, shard, source_global_seq) DO UPDATE SET
  status = excluded.status,
  attempts = excluded.attempts,
  lease_owner = excluded.lease_owner,
  last_error = excluded.last_error,
  created_at_ms = excluded.created_at_ms,
  completed_at_ms = excluded.completed_at_ms,
  last_traceback = excluded.last_traceback;

-- name: delete_task_ended
-- Delete rows by key.
DELETE FROM tape_task_ended
WHERE (reaction_id, shard, source_global_seq) IN (
  SELECT CAST(value ->> 0 AS TEXT), CAST(value ->> 1 AS INTEGER), CAST(value ->> 2 AS INTEGER)
  FROM json_each(?));

-- name: load_sources
-- What an entry about a task says of the entry that made it.
SELECT global_seq, subject, trace_id, span_id, parent_span_id
FROM tape_journal
WHERE global_seq IN (
  SELECT value ->> 0 FROM json_each(?));

-- name: find_claimable
-- Which of these reactions, each with its first and last shard, have a task to claim.
SELECT w.key
FROM json_each(?1) AS w
WHERE EXISTS (
    SELECT 1 FROM tape_task_queue INDEXED BY tape_task_queue_fresh
    WHERE reaction_id = w.value ->> 0 AND shard BETWEEN w.value ->> 1 AND w.value ->> 2
      AND status = 1 AND next_attempt_at_ms = 0)
  OR EXISTS (
    SELECT 1 FROM tape_task_queue INDEXED BY tape_task_queue_due
    WHERE reaction_id = w.value ->> 0 AND next_attempt_at_ms > 0 AND next_attempt_at_ms <= ?2
      AND status = 1 AND shard BETWEEN w.value ->> 1 AND w.value ->> 2);

-- name: read_room
-- What bounds the claims of a reaction: how many more at once, its rate, and its next free moment.
SELECT r.max_concurrency - t.in_flight, r.rate_limit_per_s, t.next_free_us
FROM tape_reactions r
JOIN tape_reaction_tallies t ON t.reaction_id = r.reaction_id
WHERE r.reaction_id = ? AND r.deleted = 0;

-- name: read_shards
-- How many shards a reaction has, and the most it ever had.
SELECT r.num_shards, t.shards
FROM tape_reactions r
JOIN tape_reaction_tallies t ON t.reaction_id = r.reaction_id
WHERE r.reaction_id = ?;

-- name: read_due_tasks
-- Tasks between two shards whose time has come, longest first.
SELECT
  q.reaction_id, q.shard, q.source_global_seq, q.status, q.attempts, q.next_attempt_at_ms,
  q.lease_owner, q.lease_expires_at_ms, q.claimed_at_ms, q.last_error, q.created_at_ms, 0,
  j.global_seq, coalesce(j.run_id, ''), coalesce(j.seq, 0), j.kind, j.subject, j.payload_json,
  j.schema_version, j.trace_id, j.span_id, j.parent_span_id, j.ts_ms, j.event_id, j.event_type,
  j.entity_type, j.entity_id, j.caused_by, j.source, j.occurred_at_ms,
  coalesce(j.idempotency_key, '')
FROM tape_task_queue q INDEXED BY tape_task_queue_due
LEFT JOIN tape_journal j ON j.global_seq = q.source_global_seq
WHERE q.reaction_id = ?1 AND q.next_attempt_at_ms > 0 AND q.next_attempt_at_ms <= ?4
  AND q.status = 1 AND q.shard BETWEEN ?2 AND ?3
ORDER BY q.next_attempt_at_ms
LIMIT ?5;

-- name: read_fresh_shards
-- The shards of a reaction that have tasks which never waited, each found from the one before.
WITH RECURSIVE found (shard) AS (
  SELECT min(shard) FROM tape_task_queue INDEXED BY tape_task_queue_fresh
  WHERE reaction_id = ?1 AND status = 1 AND next_attempt_at_ms = 0
  UNION ALL
  SELECT (
    SELECT min(q.shard) FROM tape_task_queue q INDEXED BY tape_task_queue_fresh
    WHERE q.reaction_id = ?1 AND q.shard > found.shard
      AND q.status = 1 AND q.next_attempt_at_ms = 0)
  FROM found WHERE found.shard IS NOT NULL
)
SELECT shard FROM found WHERE shard IS NOT NULL;

-- name: read_fresh_tasks
-- Tasks of a shard that never waited, in the order of their sources.
SELECT
  q.reaction_id, q.shard, q.source_global_seq, q.status, q.attempts, q.next_attempt_at_ms,
  q.lease_owner, q.lease_expires_at_ms, q.claimed_at_ms, q.last_error, q.created_at_ms, 0,
  j.global_seq, coalesce(j.run_id, ''), coalesce(j.seq, 0), j.kind, j.subject, j.payload_json,
  j.schema_version, j.trace_id, j.span_id, j.parent_span_id, j.ts_ms, j.event_id, j.event_type,
  j.entity_type, j.entity_id, j.caused_by, j.source, j.occurred_at_ms,
  coalesce(j.idempotency_key, '')
FROM tape_task_queue q INDEXED BY tape_task_queue_fresh
LEFT JOIN tape_journal j ON j.global_seq = q.source_global_seq
WHERE q.reaction_id = ? AND q.shard = ? AND q.status = 1 AND q.next_attempt_at_ms = 0
ORDER BY q.source_global_seq
LIMIT ?;

-- name: claim_due_tasks
-- Give these to an owner.
UPDATE tape_task_queue SET
  status = 2, attempts = attempts + 1, next_attempt_at_ms = 0, lease_owner = ?2,
  lease_expires_at_ms = ?3, claimed_at_ms = ?4
WHERE (reaction_id, shard, source_global_seq) IN (
  SELECT CAST(value ->> 0 AS TEXT), CAST(value ->> 1 AS INTEGER), CAST(value ->> 2 AS INTEGER)
  FROM json_each(?1));

-- name: claim_fresh_tasks
-- Give those of a shard that never waited, up to a source, to an owner.
UPDATE tape_task_queue INDEXED BY tape_task_queue_fresh SET
  status = 2, attempts = attempts + 1, lease_owner = ?4, lease_expires_at_ms = ?5,
  claimed_at_ms = ?6
WHERE reaction_id = ?1 AND shard = ?2 AND source_global_seq <= ?3
  AND status = 1 AND next_attempt_at_ms = 0;

-- name: count_claimed
-- Add to what a reaction has in hand, and note when its rate allows the next.
UPDATE tape_reaction_tallies SET in_flight = in_flight + ?2, next_free_us = ?3
WHERE reaction_id = ?1;

-- name: count_tasks
-- Add to the tallies of reactions: queued, and of those in hand.
UPDATE tape_reaction_tallies AS t SET
  queued = t.queued + (d.value ->> 1), in_flight = t.in_flight + (d.value ->> 2)
FROM json_each(?) AS d
WHERE t.reaction_id = d.value ->> 0;

-- name: extend_tasks
-- Prolong the leases that the owner still holds.
UPDATE tape_task_queue SET lease_expires_at_ms = ?3
WHERE (reaction_id, shard, source_global_seq) IN (
    SELECT CAST(value ->> 0 AS TEXT), CAST(value ->> 1 AS INTEGER), CAST(value ->> 2 AS INTEGER)
    FROM json_each(?1))
  AND lease_owner = ?2 AND status = 2
RETURNING reaction_id, shard, source_global_seq;

-- name: complete_tasks
-- Take those that this owner was the last to claim from the queue.
DELETE FROM tape_task_queue
WHERE (reaction_id, shard, source_global_seq) IN (
    SELECT CAST(value ->> 0 AS TEXT), CAST(value ->> 1 AS INTEGER), CAST(value ->> 2 AS INTEGER)
    FROM json_each(?1))
  AND lease_owner = ?2
RETURNING
  reaction_id, shard, source_global_seq, status, attempts, lease_owner, last_error, created_at_ms;

-- name: read_expired
-- Claimed tasks whose lease has run out, longest first.
SELECT reaction_id, shard, source_global_seq
FROM tape_task_queue INDEXED BY tape_task_queue_lease
WHERE status = 2 AND lease_expires_at_ms <= ?
ORDER BY lease_expires_at_ms
LIMIT ?;

-- name: read_known_reactions
-- Of these ids, those of reactions that were ever registered.
SELECT r.reaction_id FROM json_each(?1) AS d
CROSS JOIN tape_reactions r ON r.reaction_id = d.value;

-- name: read_next_due
-- Of reactions with room for one: when the next that waits is due, and when their rate allows one.
SELECT
  (SELECT min(q.next_attempt_at_ms) FROM tape_task_queue q INDEXED BY tape_task_queue_due
   WHERE q.reaction_id = r.reaction_id AND q.next_attempt_at_ms > 0
     AND q.next_attempt_at_ms > ?2),
  iif(r.rate_limit_per_s > 0, t.next_free_us, 0)
FROM json_each(?1) AS d
CROSS JOIN tape_reactions r ON r.reaction_id = d.value
CROSS JOIN tape_reaction_tallies t ON t.reaction_id = d.value
WHERE r.deleted = 0 AND t.in_flight < r.max_concurrency AND t.queued > t.in_flight;

-- name: get_task
-- One task, queued or ended.
SELECT
  q.reaction_id, q.shard, q.source_global_seq, q.status, q.attempts, q.next_attempt_at_ms,
  q.lease_owner, q.lease_expires_at_ms, q.claimed_at_ms, q.last_error, q.created_at_ms, 0,
  j.global_seq, coalesce(j.run_id, ''), coalesce(j.seq, 0), j.kind, j.subject, j.payload_json,
  j.schema_version, j.trace_id, j.span_id, j.parent_span_id, j.ts_ms, j.event_id, j.event_type,
  j.entity_type, j.entity_id, j.caused_by, j.source, j.occurred_at_ms,
  coalesce(j.idempotency_key, ''), q.last_traceback
FROM tape_task_queue q
LEFT JOIN tape_journal j ON j.global_seq = q.source_global_seq
WHERE q.reaction_id = ?1 AND q.shard = ?2 AND q.source_global_seq = ?3
UNION ALL
SELECT
  q.reaction_id, q.shard, q.source_global_seq, q.status, q.attempts, 0, q.lease_owner, 0, 0,
  q.last_error, q.created_at_ms, q.completed_at_ms,
  j.global_seq, coalesce(j.run_id, ''), coalesce(j.seq, 0), j.kind, j.subject, j.payload_json,
  j.schema_version, j.trace_id, j.span_id, j.parent_span_id, j.ts_ms, j.event_id, j.event_type,
  j.entity_type, j.entity_id, j.caused_by, j.source, j.occurred_at_ms,
  coalesce(j.idempotency_key, ''), q.last_traceback
FROM tape_task_ended q
LEFT JOIN tape_journal j ON j.global_seq = q.source_global_seq
WHERE q.reaction_id = ?1 AND q.shard = ?2 AND q.source_global_seq = ?3;

-- name: list_queued_tasks
-- Queued tasks after a key, of one reaction or (empty) of all; status 0 is any.
SELECT
  q.reaction_id, q.shard, q.source_global_seq, q.status, q.attempts, q.next_attempt_at_ms,
  q.lease_owner, q.lease_expires_at_ms, q.claimed_at_ms, q.last_error, q.created_at_ms, 0,
  j.global_seq, coalesce(j.run_id, ''), coalesce(j.seq, 0), j.kind, j.subject, j.payload_json,
  j.schema_version, j.trace_id, j.span_id, j.parent_span_id, j.ts_ms, j.event_id, j.event_type,
  j.entity_type, j.entity_id, j.caused_by, j.source, j.occurred_at_ms,
  coalesce(j.idempotency_key, ''), q.last_traceback
FROM tape_task_queue q
LEFT JOIN tape_journal j ON j.global_seq = q.source_global_seq
WHERE (q.reaction_id, q.shard, q.source_global_seq) > (?1, ?2, ?3)
  AND q.reaction_id <= iif(?4 = '', x'', ?4) AND (?5 = 0 OR q.status = ?5)
ORDER BY q.reaction_id, q.shard, q.source_global_seq
LIMIT ?6;

-- name: list_ended_tasks
-- Ended tasks after a key, of one reaction or (empty) of all; status 0 is any.
SELECT
  q.reaction_id, q.shard, q.source_global_seq, q.status, q.attempts, 0, q.lease_owner, 0, 0,
  q.last_error, q.created_at_ms, q.completed_at_ms,
  j.global_seq, coalesce(j.run_id, ''), coalesce(j.seq, 0), j.kind, j.subject, j.payload_json,
  j.schema_version, j.trace_id, j.span_id, j.parent_span_id, j.ts_ms, j.event_id, j.event_type,
  j.entity_type, j.entity_id, j.caused_by, j.source, j.occurred_at_ms,
  coalesce(j.idempotency_key, ''), q.last_traceback
FROM tape_task_ended q
LEFT JOIN tape_journal j ON j.global_seq = q.source_global_seq
WHERE (q.reaction_id, q.shard, q.source_global_seq) > (?1, ?2, ?3)
  AND q.reaction_id <= iif(?4 = '', x'', ?4) AND (?5 = 0 OR q.status = ?5)
ORDER BY q.reaction_id, q.shard, q.source_global_seq
LIMIT ?6;

-- name: list_badly_ended_tasks
-- Failed or dead-lettered tasks after a key, of one reaction or (empty) of all.
SELECT
  q.reaction_id, q.shard, q.source_global_seq, q.status, q.attempts, 0, q.lease_owner, 0, 0,
  q.last_error, q.created_at_ms, q.completed_at_ms,
  j.global_seq, coalesce(j.run_id, ''), coalesce(j.seq, 0), j.kind, j.subject, j.payload_json,
  j.schema_version, j.trace_id, j.span_id, j.parent_span_id, j.ts_ms, j.event_id, j.event_type,
  j.entity_type, j.entity_id, j.caused_by, j.source, j.occurred_at_ms,
  coalesce(j.idempotency_key, ''), q.last_traceback
FROM tape_task_ended q INDEXED BY tape_task_ended_badly
LEFT JOIN tape_journal j ON j.global_seq = q.source_global_seq
WHERE (q.reaction_id, q.shard, q.source_global_seq) > (?1, ?2, ?3)
  AND q.reaction_id <= iif(?4 = '', x'', ?4) AND q.status > 3 AND q.status = ?5
ORDER BY q.reaction_id, q.shard, q.source_global_seq
LIMIT ?6;
