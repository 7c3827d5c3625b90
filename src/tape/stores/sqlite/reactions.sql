-- Reactions, how far each has come and how many tasks it has.

-- name: load_reactions
-- Rows by key, for a batch to decide on.
SELECT
  reaction_id, name, subject_pattern, predicate_cel, handler_kind, agent_app, publish_target,
  max_concurrency, rate_limit_per_s, debounce_ms, retry_max, retry_backoff_ms, dlq_after_n,
  num_shards, engine, created_at_ms, deleted, pool
FROM tape_reactions
WHERE reaction_id IN (
  SELECT value ->> 0 FROM json_each(?));

-- name: save_reactions
-- Write one row, new or changed.
INSERT INTO tape_reactions (
  reaction_id, name, subject_pattern, predicate_cel, handler_kind, agent_app, publish_target,
  max_concurrency, rate_limit_per_s, debounce_ms, retry_max, retry_backoff_ms, dlq_after_n,
  num_shards, engine, created_at_ms, deleted, pool)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (reaction_id) DO UPDATE SET
  name = excluded.name,
  subject_pattern = excluded.subject_pattern,
  predicate_cel = excluded.predicate_cel,
  handler_kind = excluded.handler_kind,
  agent_app = excluded.agent_app,
  publish_target = excluded.publish_target,
  max_concurrency = excluded.max_concurrency,
  rate_limit_per_s = excluded.rate_limit_per_s,
  debounce_ms = excluded.debounce_ms,
  retry_max = excluded.retry_max,
  retry_backoff_ms = excluded.retry_backoff_ms,
  dlq_after_n = excluded.dlq_after_n,
  num_shards = excluded.num_shards,
  engine = excluded.engine,
  created_at_ms = excluded.created_at_ms,
  deleted = excluded.deleted,
  pool = excluded.pool;

-- name: load_reaction_cursors
-- Rows by key, for a batch to decide on.
SELECT
  reaction_id, shard, last_global_seq, last_processed_at_ms, following, matched, coalesced,
  predicate_errors, last_error, last_error_global_seq
FROM tape_reaction_cursors
WHERE (reaction_id, shard) IN (
  SELECT CAST(value ->> 0 AS TEXT), CAST(value ->> 1 AS INTEGER) FROM json_each(?));

-- name: save_reaction_cursors
-- Write one row, new or changed.
INSERT INTO tape_reaction_cursors (
  reaction_id, shard, last_global_seq, last_processed_at_ms, following, matched, coalesced,
  predicate_errors, last_error, last_error_global_seq)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (reaction_id, shard) DO UPDATE SET
  last_global_seq = excluded.last_global_seq,
  last_processed_at_ms = excluded.last_processed_at_ms,
  following = excluded.following,
  matched = excluded.matched,
  coalesced = excluded.coalesced,
  predicate_errors = excluded.predicate_errors,
  last_error = excluded.last_error,
  last_error_global_seq = excluded.last_error_global_seq;

-- name: delete_reaction_cursors
-- Delete rows by key.
DELETE FROM tape_reaction_cursors
WHERE (reaction_id, shard) IN (
  SELECT CAST(value ->> 0 AS TEXT), CAST(value ->> 1 AS INTEGER) FROM json_each(?));

-- name: load_reaction_tallies
-- Rows by key, for a batch to decide on.
SELECT
  reaction_id, queued, in_flight, dead_letters, next_free_us, shards
FROM tape_reaction_tallies
WHERE reaction_id IN (
  SELECT value ->> 0 FROM json_each(?));

-- name: save_reaction_tallies
-- Write one row, new or changed.
INSERT INTO tape_reaction_tallies (
  reaction_id, queued, in_flight, dead_letters, next_free_us, shards)
VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (reaction_id) DO UPDATE SET
  queued = excluded.queued,
  in_flight = excluded.in_flight,
  dead_letters = excluded.dead_letters,
  next_free_us = excluded.next_free_us,
  shards = excluded.shards;

-- name: load_reaction_book
-- Rows by key, for a batch to decide on.
SELECT
  name, version, resharded_at
FROM tape_reaction_book
WHERE name IN (
  SELECT value ->> 0 FROM json_each(?));

-- name: save_reaction_book
-- Write one row, new or changed.
INSERT INTO tape_reaction_book (
  name, version, resharded_at)
VALUES (?, ?, ?)
ON CONFLICT (name) DO UPDATE SET
  version = excluded.version,
  resharded_at = excluded.resharded_at;

-- name: read_book
-- The version of the book of reactions, and up to where tasks may be of other shards than today's.
SELECT version, resharded_at FROM tape_reaction_book WHERE name = 'reactions';

-- name: read_reactions
-- Every reaction that is not deregistered.
SELECT
  reaction_id, name, subject_pattern, predicate_cel, handler_kind, agent_app, publish_target,
  max_concurrency, rate_limit_per_s, debounce_ms, retry_max, retry_backoff_ms, dlq_after_n,
  num_shards, engine, created_at_ms, deleted, pool
FROM tape_reactions
WHERE deleted = 0
ORDER BY reaction_id;

-- name: read_cursors
-- Every cursor.
SELECT
  reaction_id, shard, last_global_seq, last_processed_at_ms, following, matched, coalesced,
  predicate_errors, last_error, last_error_global_seq
FROM tape_reaction_cursors
ORDER BY reaction_id, shard;

-- name: list_reactions
-- Reactions with how they are doing, in the order of model.reaction.ReactionState.
SELECT
  r.reaction_id, r.name, r.subject_pattern, r.predicate_cel, r.handler_kind, r.agent_app,
  r.publish_target, r.max_concurrency, r.rate_limit_per_s, r.debounce_ms, r.retry_max,
  r.retry_backoff_ms, r.dlq_after_n, r.num_shards, r.engine, r.created_at_ms,
  r.deleted, r.pool,
  min(iif(c.following, max(c.last_global_seq, m.position), c.last_global_seq)),
  min(c.following), max(c.last_processed_at_ms), sum(c.matched), sum(c.coalesced),
  sum(c.predicate_errors),
  (SELECT e.last_error FROM tape_reaction_cursors e
   WHERE e.reaction_id = r.reaction_id
   ORDER BY e.last_error_global_seq DESC LIMIT 1),
  t.queued - t.in_flight, t.in_flight, t.dead_letters
FROM tape_reactions r
JOIN tape_reaction_cursors c ON c.reaction_id = r.reaction_id
JOIN tape_reaction_tallies t ON t.reaction_id = r.reaction_id
JOIN tape_matcher m ON m.name = 'matcher'
WHERE r.deleted = 0
GROUP BY r.reaction_id
ORDER BY r.reaction_id;
