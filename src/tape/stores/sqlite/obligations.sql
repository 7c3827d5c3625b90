-- Obligations: what must be undone if a run does not succeed.

-- name: load_obligations
-- Rows by key, for a batch to decide on.
SELECT
  run_id, effect_key, kind, seq, payload_json, status, ts_ms, compensator_ref, attempts,
  max_attempts, next_attempt_at_ms, last_error, claimed_by, claim_expires_at_ms, claim_token,
  result_json, below
FROM tape_obligations
WHERE (run_id, effect_key, kind) IN (
  SELECT value ->> 0, value ->> 1, value ->> 2 FROM json_each(?));

-- name: save_obligations
-- Write one row, new or changed. What was registered never changes.
INSERT INTO tape_obligations (
  run_id, effect_key, kind, seq, payload_json, status, ts_ms, compensator_ref, attempts,
  max_attempts, next_attempt_at_ms, last_error, claimed_by, claim_expires_at_ms, claim_token,
  result_json, below)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
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
-- All of a run, newest first.
SELECT
  run_id, effect_key, kind, seq, payload_json, status, ts_ms, compensator_ref, attempts,
  max_attempts, next_attempt_at_ms, last_error, claimed_by, claim_expires_at_ms, claim_token,
  result_json, below
FROM tape_obligations
WHERE run_id = ?
ORDER BY seq DESC;

-- name: list_top_obligations
-- The top of each run that unwinds, if it is due and under no living claim.
SELECT
  o.run_id, o.effect_key, o.kind, o.seq, o.payload_json, o.status, o.ts_ms, o.compensator_ref,
  o.attempts, o.max_attempts, o.next_attempt_at_ms, o.last_error, o.claimed_by,
  o.claim_expires_at_ms, o.claim_token, o.result_json, o.below
FROM tape_runs r INDEXED BY tape_runs_status
CROSS JOIN tape_obligations o INDEXED BY tape_obligations_seq
  ON o.run_id = r.run_id AND o.seq = r.top_obligation
WHERE r.status = 6 AND r.status <> 4
  AND o.status <> 3 AND o.next_attempt_at_ms <= ?1
  AND (o.status <> 2 OR o.claim_expires_at_ms <= ?1)
ORDER BY r.started_at_ms, r.run_id
LIMIT ?2;

-- name: list_lone_obligations
-- Those that stand alone, if they are due and under no living claim, oldest first.
SELECT
  run_id, effect_key, kind, seq, payload_json, status, ts_ms, compensator_ref, attempts,
  max_attempts, next_attempt_at_ms, last_error, claimed_by, claim_expires_at_ms, claim_token,
  result_json, below
FROM tape_obligations INDEXED BY tape_obligations_alone
WHERE below = -1 AND status IN (1, 2) AND next_attempt_at_ms <= ?1
  AND (status <> 2 OR claim_expires_at_ms <= ?1)
ORDER BY ts_ms, run_id, seq
LIMIT ?2;

-- name: list_stuck_obligations
-- Those that only an operator takes up again, oldest first.
SELECT
  run_id, effect_key, kind, seq, payload_json, status, ts_ms, compensator_ref, attempts,
  max_attempts, next_attempt_at_ms, last_error, claimed_by, claim_expires_at_ms, claim_token,
  result_json, below
FROM tape_obligations INDEXED BY tape_obligations_stuck
WHERE status = 4
ORDER BY ts_ms, run_id, seq
LIMIT ?;
