-- Effects, and whose a business key is.

-- name: load_effects
-- Rows by key, for a batch to decide on.
SELECT
  run_id, idempotency_key, seq, decision_index, tool_name, call_index, status, request_json,
  response_json, error_json, ts_ms, semantics, dispatch_mode, business_key, connector, scope,
  dispatch_attempts, next_dispatch_at_ms, external_ref, dispatch_claimed_by,
  dispatch_claim_expires_at_ms, last_dispatch_error, claim_token
FROM tape_effects
JOIN unnest($1::text[], $2::text[]) AS wanted (run_id, idempotency_key)
  USING (run_id, idempotency_key);

-- name: save_effects
-- Write rows, new or changed. What an effect was begun with never changes.
INSERT INTO tape_effects (
  run_id, idempotency_key, seq, decision_index, tool_name, call_index, status, request_json,
  response_json, error_json, ts_ms, semantics, dispatch_mode, business_key, connector, scope,
  dispatch_attempts, next_dispatch_at_ms, external_ref, dispatch_claimed_by,
  dispatch_claim_expires_at_ms, last_dispatch_error, claim_token)
SELECT * FROM unnest(
  $1::text[], $2::text[], $3::bigint[], $4::integer[], $5::text[], $6::integer[], $7::smallint[],
  $8::text[], $9::text[], $10::text[], $11::bigint[], $12::smallint[], $13::smallint[],
  $14::text[], $15::text[], $16::text[], $17::bigint[], $18::bigint[], $19::text[], $20::text[],
  $21::bigint[], $22::text[], $23::bigint[])
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
JOIN unnest($1::text[], $2::text[]) AS wanted (connector, business_key)
  USING (connector, business_key);

-- name: save_business_keys
-- Write rows, new or changed.
INSERT INTO tape_business_keys (
  connector, business_key, run_id, idempotency_key)
SELECT * FROM unnest(
  $1::text[], $2::text[], $3::text[], $4::text[])
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
WHERE run_id = $1 AND idempotency_key = $2;

-- name: read_open_connectors
-- Connectors with effects of a status and way that have no outcome, one found from another.
WITH RECURSIVE found (name) AS (
  SELECT min(connector) FROM tape_effects
  WHERE status = $1 AND status IN (1, 4) AND dispatch_mode = $2
  UNION ALL
  SELECT (
    SELECT min(connector) FROM tape_effects
    WHERE status = $1 AND status IN (1, 4) AND dispatch_mode = $2 AND connector > found.name)
  FROM found
  WHERE found.name IS NOT NULL
)
SELECT name FROM found WHERE name IS NOT NULL;

-- name: list_claimable_effects
-- Effects of these groups that are due and under no living claim, oldest first.
SELECT
  run_id, idempotency_key, seq, decision_index, tool_name, call_index, status, request_json,
  response_json, error_json, ts_ms, semantics, dispatch_mode, business_key, connector, scope,
  dispatch_attempts, next_dispatch_at_ms, external_ref, dispatch_claimed_by,
  dispatch_claim_expires_at_ms, last_dispatch_error, claim_token
FROM unnest($1::smallint[], $2::smallint[], $3::text[]) AS wanted (at_status, by_mode, of_connector)
CROSS JOIN LATERAL (
  SELECT * FROM tape_effects
  WHERE status = at_status AND status IN (1, 4) AND dispatch_mode = by_mode
    AND connector = of_connector
    AND next_dispatch_at_ms <= (SELECT tape_now_us() / 1000)
    AND dispatch_claim_expires_at_ms <= (SELECT tape_now_us() / 1000)
  ORDER BY ts_ms, run_id, seq
  LIMIT $4) page
ORDER BY ts_ms, run_id, seq
LIMIT $4;

-- name: list_old_effects
-- Effects of these groups that were begun so long ago, oldest first.
SELECT
  run_id, idempotency_key, seq, decision_index, tool_name, call_index, status, request_json,
  response_json, error_json, ts_ms, semantics, dispatch_mode, business_key, connector, scope,
  dispatch_attempts, next_dispatch_at_ms, external_ref, dispatch_claimed_by,
  dispatch_claim_expires_at_ms, last_dispatch_error, claim_token
FROM unnest($1::smallint[], $2::smallint[], $3::text[]) AS wanted (at_status, by_mode, of_connector)
CROSS JOIN LATERAL (
  SELECT * FROM tape_effects
  WHERE status = at_status AND status IN (1, 4) AND dispatch_mode = by_mode
    AND connector = of_connector
    AND ts_ms <= (SELECT tape_now_us() / 1000) - $4::bigint
  ORDER BY ts_ms, run_id, seq
  LIMIT $5) page
ORDER BY ts_ms, run_id, seq
LIMIT $5;
