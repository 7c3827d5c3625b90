-- Reactions, their cursors and tallies, and the book that tells when one of them changed.

-- name: load_reactions
-- Rows by key, for a batch to decide on.
SELECT
  reaction_id, name, subject_pattern, predicate_cel, handler_kind, agent_app, publish_target,
  max_concurrency, rate_limit_per_s, debounce_ms, retry_max, retry_backoff_ms, dlq_after_n,
  num_shards, engine, created_at_ms, deleted, pool
FROM tape_reactions
JOIN unnest($1::text[]) AS wanted (reaction_id) USING (reaction_id);

-- name: save_reactions
-- Write rows, new or changed.
INSERT INTO tape_reactions (
  reaction_id, name, subject_pattern, predicate_cel, handler_kind, agent_app, publish_target,
  max_concurrency, rate_limit_per_s, debounce_ms, retry_max, retry_backoff_ms, dlq_after_n,
  num_shards, engine, created_at_ms, deleted, pool)
SELECT * FROM unnest(
  $1::text[], $2::text[], $3::text[], $4::text[], $5::smallint[], $6::text[], $7::text[],
  $8::integer[], $9::integer[], $10::integer[], $11::integer[], $12::integer[], $13::integer[],
  $14::integer[], $15::text[], $16::bigint[], $17::integer[], $18::text[])
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
JOIN unnest($1::text[], $2::integer[]) AS wanted (reaction_id, shard) USING (reaction_id, shard);

-- name: save_reaction_cursors
-- Write rows, new or changed.
INSERT INTO tape_reaction_cursors (
  reaction_id, shard, last_global_seq, last_processed_at_ms, following, matched, coalesced,
  predicate_errors, last_error, last_error_global_seq)
SELECT * FROM unnest(
  $1::text[], $2::integer[], $3::bigint[], $4::bigint[], $5::integer[], $6::bigint[], $7::bigint[],
  $8::bigint[], $9::text[], $10::bigint[])
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
-- Forget rows by key.
DELETE FROM tape_reaction_cursors
USING unnest($1::text[], $2::integer[]) AS gone (reaction_id, shard)
WHERE tape_reaction_cursors.reaction_id = gone.reaction_id
  AND tape_reaction_cursors.shard = gone.shard;

-- name: load_reaction_tallies
-- Rows by key, for a batch to decide on; kept from claimers until its end.
SELECT reaction_id, queued, in_flight, dead_letters, next_free_us, shards
FROM tape_reaction_tallies
JOIN unnest($1::text[]) AS wanted (reaction_id) USING (reaction_id)
ORDER BY reaction_id
FOR UPDATE OF tape_reaction_tallies;

-- name: save_reaction_tallies
-- Write rows, new or changed.
INSERT INTO tape_reaction_tallies (
  reaction_id, queued, in_flight, dead_letters, next_free_us, shards)
SELECT * FROM unnest(
  $1::text[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::integer[])
ON CONFLICT (reaction_id) DO UPDATE SET
  queued = excluded.queued,
  in_flight = excluded.in_flight,
  dead_letters = excluded.dead_letters,
  next_free_us = excluded.next_free_us,
  shards = excluded.shards;

-- name: load_reaction_book
-- Rows by key, for a batch to decide on; kept from the matcher until its end.
SELECT name, version, resharded_at
FROM tape_reaction_book
JOIN unnest($1::text[]) AS wanted (name) USING (name)
FOR UPDATE OF tape_reaction_book;

-- name: save_reaction_book
-- Write rows, new or changed.
INSERT INTO tape_reaction_book (name, version, resharded_at)
SELECT * FROM unnest($1::text[], $2::bigint[], $3::bigint[])
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
-- Every reaction that is not deregistered, with how far it has come and what it has to do.
SELECT
  r.reaction_id, r.name, r.subject_pattern, r.predicate_cel, r.handler_kind, r.agent_app,
  r.publish_target, r.max_concurrency, r.rate_limit_per_s, r.debounce_ms, r.retry_max,
  r.retry_backoff_ms, r.dlq_after_n, r.num_shards, r.engine, r.created_at_ms,
  r.deleted, r.pool,
  CASE WHEN c.following = 1 THEN greatest(c.last_global_seq, m.position)
    ELSE c.last_global_seq END AS position,
  c.following, c.last_processed_at_ms, c.matched::bigint, c.coalesced::bigint,
  c.predicate_errors::bigint, c.last_error, t.queued - t.in_flight AS pending,
  t.in_flight AS claimed, t.dead_letters
FROM tape_reactions r
JOIN tape_reaction_tallies t ON t.reaction_id = r.reaction_id
JOIN tape_matcher m ON m.name = 'matcher'
CROSS JOIN LATERAL (
  SELECT
    coalesce(min(last_global_seq), 0) AS last_global_seq, coalesce(min(following), 0) AS following,
    coalesce(max(last_processed_at_ms), 0) AS last_processed_at_ms,
    coalesce(sum(matched), 0) AS matched, coalesce(sum(coalesced), 0) AS coalesced,
    coalesce(sum(predicate_errors), 0) AS predicate_errors,
    coalesce((array_agg(last_error ORDER BY last_error_global_seq DESC))[1], '') AS last_error
  FROM tape_reaction_cursors
  WHERE reaction_id = r.reaction_id
) c
WHERE r.deleted = 0
ORDER BY r.reaction_id;
