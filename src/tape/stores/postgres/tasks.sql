-- The queue of tasks, and those that have ended. Statements that return tasks return the columns of
-- model.task.Task, then (`statements` puts them in place of a mark) those of its entry and, unless they
-- claim, the traceback.

-- name: load_task_queue
-- Rows by key, for a batch to decide on; kept from others until its end.
SELECT
  reaction_id, shard, source_global_seq, status, attempts, next_attempt_at_ms, lease_owner,
  lease_expires_at_ms, claimed_at_ms, last_error, debounce_key, debounce_until_ms, created_at_ms,
  last_traceback
FROM tape_task_queue
JOIN unnest($1::text[], $2::integer[], $3::bigint[])
  AS wanted (reaction_id, shard, source_global_seq) USING (reaction_id, shard, source_global_seq)
ORDER BY reaction_id, shard, source_global_seq
FOR UPDATE OF tape_task_queue;

-- name: save_task_queue
-- Write rows, new or changed, and wake who waits for tasks.
WITH saved AS (
  INSERT INTO tape_task_queue (
    reaction_id, shard, source_global_seq, status, attempts, next_attempt_at_ms, lease_owner,
    lease_expires_at_ms, claimed_at_ms, last_error, debounce_key, debounce_until_ms, created_at_ms,
    last_traceback)
  SELECT * FROM unnest(
    $1::text[], $2::integer[], $3::bigint[], $4::smallint[], $5::integer[], $6::bigint[], $7::text[],
    $8::bigint[], $9::bigint[], $10::text[], $11::text[], $12::bigint[], $13::bigint[],
    $14::text[])
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
    last_traceback = excluded.last_traceback
)
SELECT pg_notify('tape_tasks_' || 'tape_journal'::regclass::oid, '');

-- name: delete_task_queue
-- Forget rows by key.
DELETE FROM tape_task_queue q
USING unnest($1::text[], $2::integer[], $3::bigint[])
  AS gone (reaction_id, shard, source_global_seq)
WHERE q.reaction_id = gone.reaction_id AND q.shard = gone.shard
  AND q.source_global_seq = gone.source_global_seq;

-- name: load_task_ended
-- Rows by key, for a batch to decide on.
SELECT
  reaction_id, shard, source_global_seq, status, attempts, lease_owner, last_error, created_at_ms,
  completed_at_ms, last_traceback
FROM tape_task_ended
JOIN unnest($1::text[], $2::integer[], $3::bigint[])
  AS wanted (reaction_id, shard, source_global_seq) USING (reaction_id, shard, source_global_seq);

-- name: save_task_ended
-- Write rows, new or changed.
INSERT INTO tape_task_ended (
  reaction_id, shard, source_global_seq, status, attempts, lease_owner, last_error, created_at_ms,
  completed_at_ms, last_traceback)
SELECT * FROM unnest(
  $1::text[], $2::integer[], $3::bigint[], $4::smallint[], $5::integer[], $6::text[], $7::text[],
  $8::bigint[], $9::bigint[], $10::text[])
ON CONFLICT (reaction_id, shard, source_global_seq) DO UPDATE SET
  status = excluded.status,
  attempts = excluded.attempts,
  lease_owner = excluded.lease_owner,
  last_error = excluded.last_error,
  completed_at_ms = excluded.completed_at_ms,
  last_traceback = excluded.last_traceback;

-- name: delete_task_ended
-- Forget rows by key.
DELETE FROM tape_task_ended e
USING unnest($1::text[], $2::integer[], $3::bigint[])
  AS gone (reaction_id, shard, source_global_seq)
WHERE e.reaction_id = gone.reaction_id AND e.shard = gone.shard
  AND e.source_global_seq = gone.source_global_seq;

-- name: load_sources
-- What the entries that made tasks are called.
SELECT global_seq, subject, trace_id, span_id, parent_span_id
FROM tape_journal
JOIN unnest($1::bigint[]) AS wanted (global_seq) USING (global_seq);

-- name: claim_tasks
-- Give tasks to an owner; first whether each had to wait for a time.
SELECT * FROM tape_claim($1, $2, $3::text[], $4::integer[], $5::integer[], $6::integer, $7::jsonb);

-- name: extend_tasks
-- Prolong the leases that the owner still holds.
-- One that is being settled at the moment needs no longer lease and is not waited for: whoever
-- settles may be waiting for another of these.
WITH held AS (
  SELECT q.reaction_id, q.shard, q.source_global_seq
  FROM tape_task_queue q
  JOIN unnest($3::text[], $4::integer[], $5::bigint[])
    AS asked (reaction_id, shard, source_global_seq) USING (reaction_id, shard, source_global_seq)
  WHERE q.lease_owner = $1 AND q.status = 2
), free AS (
  SELECT q.reaction_id, q.shard, q.source_global_seq
  FROM tape_task_queue q
  JOIN held USING (reaction_id, shard, source_global_seq)
  WHERE q.lease_owner = $1 AND q.status = 2
  FOR UPDATE OF q SKIP LOCKED
), prolonged AS (
  UPDATE tape_task_queue q SET lease_expires_at_ms = tape_now_us() / 1000 + $2
  FROM free
  WHERE q.reaction_id = free.reaction_id AND q.shard = free.shard
    AND q.source_global_seq = free.source_global_seq
)
SELECT reaction_id, shard, source_global_seq FROM held;

-- name: complete_tasks
-- End tasks that the owner was the last to claim.
WITH gone AS (
  DELETE FROM tape_task_queue q
  USING unnest($2::text[], $3::integer[], $4::bigint[])
    AS done (reaction_id, shard, source_global_seq)
  WHERE q.reaction_id = done.reaction_id AND q.shard = done.shard
    AND q.source_global_seq = done.source_global_seq AND q.lease_owner = $1
  RETURNING
    q.reaction_id, q.shard, q.source_global_seq, q.status, q.attempts, q.lease_owner, q.last_error,
    q.created_at_ms
), ended AS (
  INSERT INTO tape_task_ended (
    reaction_id, shard, source_global_seq, status, attempts, lease_owner, last_error,
    created_at_ms, completed_at_ms)
  SELECT
    reaction_id, shard, source_global_seq, 3, attempts, lease_owner, last_error, created_at_ms,
    tape_now_us() / 1000
  FROM gone
), counted AS (
  UPDATE tape_reaction_tallies t SET
    queued = t.queued - g.ended, in_flight = t.in_flight - g.in_hand
  FROM (
    SELECT reaction_id, count(*) AS ended, count(*) FILTER (WHERE status = 2) AS in_hand
    FROM gone GROUP BY reaction_id ORDER BY reaction_id
  ) g
  WHERE t.reaction_id = g.reaction_id
)
SELECT reaction_id, shard, source_global_seq FROM gone;

-- name: read_expired
-- Claimed tasks whose lease has run out, longest first.
SELECT reaction_id, shard, source_global_seq
FROM tape_task_queue
WHERE status = 2 AND lease_expires_at_ms <= tape_now_us() / 1000
ORDER BY lease_expires_at_ms
LIMIT $1;

-- name: read_known_reactions
-- Of these ids, those of reactions that were ever registered.
SELECT reaction_id FROM tape_reactions WHERE reaction_id = ANY($1::text[]);

-- name: read_next_due
-- How long until one that waits is due or a rate allows the next, of reactions that have room.
-- One that became due a moment ago may have been missed by a claim just before.
SELECT min(greatest(waiting.due_ms, free.free_ms)) - tape_now_us() / 1000
FROM unnest($1::text[]) AS wanted (reaction_id)
JOIN tape_reactions r ON r.reaction_id = wanted.reaction_id AND r.deleted = 0
JOIN tape_reaction_tallies t ON t.reaction_id = r.reaction_id
  AND t.queued > t.in_flight AND t.in_flight < r.max_concurrency
CROSS JOIN LATERAL (SELECT CASE WHEN r.rate_limit_per_s > 0 THEN t.next_free_us / 1000 + 1
  ELSE 0 END AS free_ms) free
CROSS JOIN LATERAL (
  SELECT CASE WHEN free.free_ms > tape_now_us() / 1000 - 20 THEN free.free_ms END AS due_ms
  UNION ALL
  (SELECT next_attempt_at_ms FROM tape_task_queue
   WHERE reaction_id = wanted.reaction_id AND next_attempt_at_ms > tape_now_us() / 1000 - 20
   ORDER BY next_attempt_at_ms LIMIT 1)
) waiting
WHERE waiting.due_ms IS NOT NULL;

-- name: get_task
-- A task by its key, queued or ended.
SELECT
  t.reaction_id, t.shard, t.source_global_seq, t.status, t.attempts, t.next_attempt_at_ms,
  t.lease_owner, t.lease_expires_at_ms, t.claimed_at_ms, t.last_error, t.created_at_ms,
  t.completed_at_ms,
  t.source_global_seq, /* entry */ NULL, t.last_traceback
FROM (
  SELECT
    reaction_id, shard, source_global_seq, status, attempts, next_attempt_at_ms, lease_owner,
    lease_expires_at_ms, claimed_at_ms, last_error, created_at_ms, 0::bigint AS completed_at_ms,
    last_traceback
  FROM tape_task_queue
  WHERE reaction_id = $1 AND shard = $2 AND source_global_seq = $3
  UNION ALL
  SELECT
    reaction_id, shard, source_global_seq, status, attempts, 0, lease_owner, 0, 0, last_error,
    created_at_ms, completed_at_ms, last_traceback
  FROM tape_task_ended
  WHERE reaction_id = $1 AND shard = $2 AND source_global_seq = $3
) t
LEFT JOIN tape_journal j ON j.global_seq = t.source_global_seq;

-- name: list_queued_tasks
-- Pending and claimed tasks after a key, in its order; of one reaction, or of all.
SELECT
  t.reaction_id, t.shard, t.source_global_seq, t.status, t.attempts, t.next_attempt_at_ms,
  t.lease_owner, t.lease_expires_at_ms, t.claimed_at_ms, t.last_error, t.created_at_ms,
  0::bigint AS completed_at_ms,
  t.source_global_seq, /* entry */ NULL, t.last_traceback
FROM (
  SELECT * FROM tape_task_queue
  WHERE (reaction_id, shard, source_global_seq) > ($1, $2::integer, $3::bigint)
    AND ($4 = '' OR reaction_id = $4) AND ($5::smallint = 0 OR status = $5)
  ORDER BY reaction_id, shard, source_global_seq
  LIMIT $6
) t
LEFT JOIN tape_journal j ON j.global_seq = t.source_global_seq
ORDER BY t.reaction_id, t.shard, t.source_global_seq;

-- name: list_ended_tasks
-- Ended tasks after a key, in its order; of one reaction, or of all.
SELECT
  t.reaction_id, t.shard, t.source_global_seq, t.status, t.attempts, 0::bigint, t.lease_owner,
  0::bigint, 0::bigint, t.last_error, t.created_at_ms, t.completed_at_ms,
  t.source_global_seq, /* entry */ NULL, t.last_traceback
FROM (
  SELECT * FROM tape_task_ended
  WHERE (reaction_id, shard, source_global_seq) > ($1, $2::integer, $3::bigint)
    AND ($4 = '' OR reaction_id = $4) AND ($5::smallint = 0 OR status = $5)
  ORDER BY reaction_id, shard, source_global_seq
  LIMIT $6
) t
LEFT JOIN tape_journal j ON j.global_seq = t.source_global_seq
ORDER BY t.reaction_id, t.shard, t.source_global_seq;

-- name: list_badly_ended_tasks
-- The same for those that were dead-lettered or have failed, however many are done.
SELECT
  t.reaction_id, t.shard, t.source_global_seq, t.status, t.attempts, 0::bigint, t.lease_owner,
  0::bigint, 0::bigint, t.last_error, t.created_at_ms, t.completed_at_ms,
  t.source_global_seq, /* entry */ NULL, t.last_traceback
FROM (
  SELECT * FROM tape_task_ended
  WHERE (reaction_id, shard, source_global_seq) > ($1, $2::integer, $3::bigint)
    AND ($4 = '' OR reaction_id = $4) AND status > 3 AND status = $5::smallint
  ORDER BY reaction_id, shard, source_global_seq
  LIMIT $6
) t
LEFT JOIN tape_journal j ON j.global_seq = t.source_global_seq
ORDER BY t.reaction_id, t.shard, t.source_global_seq;
