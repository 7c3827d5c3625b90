-- Effects, and whose a business key is.

-- name: load_effects
-- Rows by key, for a batch to decide on.
SELECT
  run_id, idempotency_key, seq, decision_index, tool_name, call_index, status, request_json,
  response_json, error_json, ts_ms, semantics, dispatch_mode, business_key, connector, scope,
  dispatch_attempts, next_dispatch_at_ms, external_ref, dispatch_claimed_by,
  dispatch_claim_expires_at_ms, last_dispatch_error, claim_token
FROM tape_effects
WHERE (run_id, idempotency_key) IN (
  SELECT value ->> 0, value ->> 1 FROM json_each(?));

-- name: save_effects
-- Write one row, new or changed. What an effect was begun with never changes.
INSERT INTO tape_effects (
  run_id, idempotency_key, seq, decision_index, tool_name, call_index, status, request_json,
  response_json, error_json, ts_ms, semantics, dispatch_mode, business_key, connector, scope,
  dispatch_attempts, next_dispatch_at_ms, external_ref, dispatch_claimed_by,
  dispatch_claim_expires_at_ms, last_dispatch_error, claim_token)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (run_id, idempotency_key) DO UPDATE SET
  status = excluded.status,
  response_json = excluded.response_json,
  error_json = excluded.error_json,
  dispatch_attempts = excluded.dispatch_attempts,
  next_dispatch_at_ms = excluded.next_dispatch_at_ms,
  external_ref = excluded.external_ref,
  dispatch_claimed_by = excluded.dispatch_claimed_by,
  dispatch_claim_expires_at_ms = excluded.dispatch_claim_expires_at_ms,
  last_dispatch_error = excluded.last_dispatch_error,
  claim_token = excluded.claim_token;

-- name: load_business_keys
-- Rows by key, for a batch to decide on.
SELECT
  connector, business_key, run_id, idempotency_key
FROM tape_business_keys
WHERE (connector, business_key) IN (
  SELECT value ->> 0, value ->> 1 FROM json_each(?));

-- name: save_business_keys
-- Write one row, new or changed.
INSERT INTO tape_business_keys (
  connector, business_key, run_id, idempotency_key)
VALUES (?, ?, ?, ?)
ON CONFLICT (connector, business_key) DO UPDATE SET
  run_id = excluded.run_id,
  idempotency_key = excluded.idempotency_key;

-- name: get_effect
-- One effect.
SELECT
  run_id, idempotency_key, seq, decision_index, tool_name, call_index, status, request_json,
  response_json, error_json, ts_ms, semantics, dispatch_mode, business_key, connector, scope,
  dispatch_attempts, next_dispatch_at_ms, external_ref, dispatch_claimed_by,
  dispatch_claim_expires_at_ms, last_dispatch_error, claim_token
FROM tape_effects
WHERE run_id = ? AND idempotency_key = ?;

-- name: read_open_connectors
-- Connectors with effects of a status and way that have no outcome, one found from another.
WITH RECURSIVE found (name) AS (
  SELECT min(connector) FROM tape_effects INDEXED BY tape_effects_open
  WHERE status = ?1 AND status IN (1, 4) AND dispatch_mode = ?2
  UNION ALL
  SELECT (
    SELECT min(connector) FROM tape_effects INDEXED BY tape_effects_open
    WHERE status = ?1 AND status IN (1, 4) AND dispatch_mode = ?2 AND connector > found.name)
  FROM found
  WHERE found.name IS NOT NULL
)
SELECT name FROM found WHERE name IS NOT NULL;

-- name: list_claimable_effects
-- Effects of one group that are due and under no living claim, oldest first.
SELECT
  run_id, idempotency_key, seq, decision_index, tool_name, call_index, status, request_json,
  response_json, error_json, ts_ms, semantics, dispatch_mode, business_key, connector, scope,
  dispatch_attempts, next_dispatch_at_ms, external_ref, dispatch_claimed_by,
  dispatch_claim_expires_at_ms, last_dispatch_error, claim_token
FROM tape_effects INDEXED BY tape_effects_open
WHERE status = ?1 AND status IN (1, 4) AND dispatch_mode = ?2 AND connector = ?3
  AND next_dispatch_at_ms <= ?4 AND dispatch_claim_expires_at_ms <= ?4
ORDER BY ts_ms, run_id, seq
LIMIT ?5;

-- name: list_old_effects
-- Effects of one group that were begun by then, oldest first.
SELECT
  run_id, idempotency_key, seq, decision_index, tool_name, call_index, status, request_json,
  response_json, error_json, ts_ms, semantics, dispatch_mode, business_key, connector, scope,
  dispatch_attempts, next_dispatch_at_ms, external_ref, dispatch_claimed_by,
  dispatch_claim_expires_at_ms, last_dispatch_error, claim_token
FROM tape_effects INDEXED BY tape_effects_open
WHERE status = ?1 AND status IN (1, 4) AND dispatch_mode = ?2 AND connector = ?3 AND ts_ms <= ?4
ORDER BY ts_ms, run_id, seq
LIMIT ?5;
