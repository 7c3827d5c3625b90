-- Obligations: what must be undone if a run does not succeed.

-- name: load_obligations
-- Rows by key, for a batch to decide on.
SELECT
  run_id, effect_key, kind, seq, payload_json, status, ts_ms, compensator_ref, attempts,
  max_attempts, next_attempt_at_ms, last_error, claimed_by, claim_expires_at_ms, claim_token,
  result_json, below
FROM tape_obligations
JOIN unnest($1::text[], $2::text[], $3::text[]) AS wanted (run_id, effect_key, kind)
  USING (run_id, effect_key, kind);

-- name: save_obligations
-- Write rows, new or changed. What was registered never changes.
INSERT INTO tape_obligations (
  run_id, effect_key, kind, seq, payload_json, status, ts_ms, compensator_ref, attempts,
  max_attempts, next_attempt_at_ms, last_error, claimed_by, claim_expires_at_ms, claim_token,
  result_json, below)
SELECT * FROM unnest(
  $1::text[], $2::text[], $3::text[], $4::bigint[], $5::text[], $6::smallint[], $7::bigint[],
  $8::text[], $9::bigint[], $10::bigint[], $11::bigint[], $12::text[], $13::text[], $14::bigint[],
  $15::bigint[], $16::text[], $17::bigint[])
ON CONFLICT (run_id, effect_key, kind) DO UPDATE SET
  status = excluded.status,
  attempts = excluded.attempts,
  max_attempts = excluded.max_attempts,
  next_attempt_at_ms = excluded.next_attempt_at_ms,
  last_error = excluded.last_error,
  claimed_by = excluded.claimed_by,
  claim_expires_at_ms = excluded.claim_expires_at_ms,
  claim_token = excluded.claim_token,
  result_json = excluded.result_json;

-- name: list_obligations
-- All of a run, newest first; found by their key and only then put in order.
WITH found AS MATERIALIZED (SELECT * FROM tape_obligations WHERE run_id = $1)
SELECT
  run_id, effect_key, kind, seq, payload_json, status, ts_ms, compensator_ref, attempts,
  max_attempts, next_attempt_at_ms, last_error, claimed_by, claim_expires_at_ms, claim_token,
  result_json, below
FROM found
ORDER BY seq DESC;

-- name: list_top_obligations
-- The top of each run that unwinds, if it is due and under no living claim.
SELECT
  o.run_id, o.effect_key, o.kind, o.seq, o.payload_json, o.status, o.ts_ms, o.compensator_ref,
  o.attempts, o.max_attempts, o.next_attempt_at_ms, o.last_error, o.claimed_by,
  o.claim_expires_at_ms, o.claim_token, o.result_json, o.below
FROM tape_runs r
JOIN tape_obligations o
  ON o.run_id = r.run_id AND o.seq = r.top_obligation
WHERE r.status = 6 AND r.status <> 4
  AND o.status <> 3 AND o.next_attempt_at_ms <= (SELECT tape_now_us() / 1000)
  AND (o.status <> 2 OR o.claim_expires_at_ms <= (SELECT tape_now_us() / 1000))
ORDER BY r.started_at_ms, r.run_id
LIMIT $1;

-- name: list_lone_obligations
-- Those that stand alone, if they are due and under no living claim, oldest first.
SELECT
  run_id, effect_key, kind, seq, payload_json, status, ts_ms, compensator_ref, attempts,
  max_attempts, next_attempt_at_ms, last_error, claimed_by, claim_expires_at_ms, claim_token,
  result_json, below
FROM tape_obligations
WHERE below = -1 AND status IN (1, 2) AND next_attempt_at_ms <= (SELECT tape_now_us() / 1000)
  AND (status <> 2 OR claim_expires_at_ms <= (SELECT tape_now_us() / 1000))
ORDER BY ts_ms, run_id, seq
LIMIT $1;

-- name: list_stuck_obligations
-- Those that only an operator takes up again, oldest first.
SELECT
  run_id, effect_key, kind, seq, payload_json, status, ts_ms, compensator_ref, attempts,
  max_attempts, next_attempt_at_ms, last_error, claimed_by, claim_expires_at_ms, claim_token,
  result_json, below
FROM tape_obligations
WHERE status = 4
ORDER BY ts_ms, run_id, seq
LIMIT $1;
