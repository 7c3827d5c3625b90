-- Reactions, the matcher and the queue of tasks.
--
-- Tasks that are pending or claimed are rows of tape_task_queue. Ended ones are rows of
-- tape_task_ended, so the queue's indexes hold only what is alive. The view tape_tasks shows both as
-- one, with the entry that made each task.
--
-- A claim finds tasks that never had to wait by tape_task_queue_fresh and those that wait for a time
-- by tape_task_queue_due; neither holds a task that is in hand.

CREATE TABLE tape_reactions (
  reaction_id       TEXT PRIMARY KEY,
  name              TEXT NOT NULL,
  subject_pattern   TEXT NOT NULL,
  predicate_cel     TEXT NOT NULL DEFAULT '',
  handler_kind      INTEGER NOT NULL,
  agent_app         TEXT NOT NULL DEFAULT '',
  publish_target    TEXT NOT NULL DEFAULT '',
  max_concurrency   INTEGER NOT NULL DEFAULT 1,
  rate_limit_per_s  INTEGER NOT NULL DEFAULT 0,
  debounce_ms       INTEGER NOT NULL DEFAULT 0,
  retry_max         INTEGER NOT NULL DEFAULT 5,
  retry_backoff_ms  INTEGER NOT NULL DEFAULT 1000,
  dlq_after_n       INTEGER NOT NULL DEFAULT 5,
  num_shards        INTEGER NOT NULL DEFAULT 1,
  engine            TEXT NOT NULL DEFAULT 'server',
  created_at_ms     INTEGER NOT NULL,
  deleted           INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;
-- statement
CREATE TABLE tape_reaction_cursors (
  reaction_id            TEXT NOT NULL,
  shard                  INTEGER NOT NULL,
  last_global_seq        INTEGER NOT NULL DEFAULT 0,
  last_processed_at_ms   INTEGER NOT NULL DEFAULT 0,
  following              INTEGER NOT NULL,
  matched                INTEGER NOT NULL DEFAULT 0,
  coalesced              INTEGER NOT NULL DEFAULT 0,
  predicate_errors       INTEGER NOT NULL DEFAULT 0,
  last_error             TEXT NOT NULL DEFAULT '',
  last_error_global_seq  INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (reaction_id, shard)
) WITHOUT ROWID;
-- statement
CREATE TABLE tape_reaction_tallies (
  reaction_id   TEXT PRIMARY KEY,
  queued        INTEGER NOT NULL DEFAULT 0,
  in_flight     INTEGER NOT NULL DEFAULT 0,
  dead_letters  INTEGER NOT NULL DEFAULT 0,
  next_free_us  INTEGER NOT NULL DEFAULT 0,
  shards        INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;
-- statement
CREATE TABLE tape_reaction_book (
  name     TEXT PRIMARY KEY,
  version  INTEGER NOT NULL
) WITHOUT ROWID;
-- statement
INSERT INTO tape_reaction_book (name, version) VALUES ('reactions', 0);
-- statement
CREATE TABLE tape_matcher (
  name           TEXT PRIMARY KEY,
  owner          TEXT NOT NULL,
  fencing_token  INTEGER NOT NULL,
  expires_at_ms  INTEGER NOT NULL,
  position       INTEGER NOT NULL
) WITHOUT ROWID;
-- statement
-- Reactions that are older than the matcher there are none: it begins at the end of the journal.
INSERT INTO tape_matcher (name, owner, fencing_token, expires_at_ms, position)
SELECT 'matcher', '', 0, 0, coalesce(max(global_seq), 0) FROM tape_journal;
-- statement
CREATE TABLE tape_task_queue (
  reaction_id          TEXT NOT NULL,
  shard                INTEGER NOT NULL,
  source_global_seq    INTEGER NOT NULL,
  status               INTEGER NOT NULL,
  attempts             INTEGER NOT NULL DEFAULT 0,
  next_attempt_at_ms   INTEGER NOT NULL DEFAULT 0,
  lease_owner          TEXT NOT NULL DEFAULT '',
  lease_expires_at_ms  INTEGER NOT NULL DEFAULT 0,
  claimed_at_ms        INTEGER NOT NULL DEFAULT 0,
  last_error           TEXT NOT NULL DEFAULT '',
  debounce_key         TEXT NOT NULL DEFAULT '',
  debounce_until_ms    INTEGER NOT NULL DEFAULT 0,
  created_at_ms        INTEGER NOT NULL,
  PRIMARY KEY (reaction_id, shard, source_global_seq)
) WITHOUT ROWID;
-- statement
CREATE INDEX tape_task_queue_fresh ON tape_task_queue (reaction_id, shard, source_global_seq)
  WHERE status = 1 AND next_attempt_at_ms = 0;
-- statement
CREATE INDEX tape_task_queue_due ON tape_task_queue (reaction_id, next_attempt_at_ms)
  WHERE next_attempt_at_ms > 0;
-- statement
CREATE INDEX tape_task_queue_lease ON tape_task_queue (lease_expires_at_ms) WHERE status = 2;
-- statement
CREATE INDEX tape_task_queue_debounce ON tape_task_queue (reaction_id, debounce_key)
  WHERE debounce_key <> '';
-- statement
CREATE TABLE tape_task_ended (
  reaction_id        TEXT NOT NULL,
  shard              INTEGER NOT NULL,
  source_global_seq  INTEGER NOT NULL,
  status             INTEGER NOT NULL,
  attempts           INTEGER NOT NULL,
  lease_owner        TEXT NOT NULL,
  last_error         TEXT NOT NULL,
  created_at_ms      INTEGER NOT NULL,
  completed_at_ms    INTEGER NOT NULL,
  PRIMARY KEY (reaction_id, shard, source_global_seq)
) WITHOUT ROWID;
-- statement
CREATE INDEX tape_task_ended_badly ON tape_task_ended (reaction_id, shard, source_global_seq)
  WHERE status > 3;
-- statement
CREATE VIEW tape_tasks AS
SELECT
  t.reaction_id || '/' || t.shard || '/' || t.source_global_seq AS task_id,
  t.reaction_id, t.shard, coalesce(j.run_id, '') AS source_run_id, t.source_global_seq,
  coalesce(j.subject, '') AS subject, coalesce(j.payload_json, '') AS payload_json, t.status,
  t.attempts, t.next_attempt_at_ms, t.lease_owner, t.lease_expires_at_ms, t.last_error,
  t.created_at_ms, t.completed_at_ms, coalesce(j.trace_id, '') AS trace_id,
  coalesce(j.span_id, '') AS span_id
FROM (
  SELECT
    reaction_id, shard, source_global_seq, status, attempts, next_attempt_at_ms, lease_owner,
    lease_expires_at_ms, last_error, created_at_ms, 0 AS completed_at_ms
  FROM tape_task_queue
  UNION ALL
  SELECT
    reaction_id, shard, source_global_seq, status, attempts, 0, lease_owner, 0, last_error,
    created_at_ms, completed_at_ms
  FROM tape_task_ended
) t
LEFT JOIN tape_journal j ON j.global_seq = t.source_global_seq;
