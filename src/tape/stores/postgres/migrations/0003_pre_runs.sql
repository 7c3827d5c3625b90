-- Durable runs and what they write down.
--
-- Everything stays where it is when it is finished, so each list has an index of its own that holds
-- only what the list is about. A run's row is written with every entry of its journal: columns that
-- change that often are in no index, its status only in those of the few runs that are not done,
-- so that most of these writes touch no index (HOT), for which its pages have room.

ALTER TABLE tape_runs ADD COLUMN app_version TEXT NOT NULL DEFAULT '';
-- statement
ALTER TABLE tape_runs ADD COLUMN parent_run_id TEXT COLLATE "C" NOT NULL DEFAULT '';
-- statement
ALTER TABLE tape_runs ADD COLUMN waiting_on TEXT NOT NULL DEFAULT '';
-- statement
ALTER TABLE tape_runs ADD COLUMN cancel_reason TEXT NOT NULL DEFAULT '';
-- statement
ALTER TABLE tape_runs ADD COLUMN top_obligation BIGINT NOT NULL DEFAULT 0;
-- statement
ALTER TABLE tape_runs ADD COLUMN ending SMALLINT NOT NULL DEFAULT 0;
-- statement
ALTER TABLE tape_runs ADD COLUMN outcome_json TEXT NOT NULL DEFAULT '';
-- statement
ALTER TABLE tape_runs SET (fillfactor = 70);
-- statement
UPDATE tape_runs SET pool = 'shared' WHERE pool = '';
-- statement
CREATE INDEX tape_runs_started ON tape_runs (started_at_ms, run_id);
-- statement
CREATE INDEX tape_runs_app ON tape_runs (app_name, started_at_ms, run_id);
-- statement
CREATE INDEX tape_runs_pool ON tape_runs (pool, started_at_ms, run_id);
-- statement
CREATE INDEX tape_runs_session
  ON tape_runs (app_name, user_id, session_id, started_at_ms, run_id);
-- statement
CREATE INDEX tape_runs_parent ON tape_runs (parent_run_id, started_at_ms, run_id)
  WHERE parent_run_id <> '';
-- statement
CREATE INDEX tape_runs_status ON tape_runs (status, started_at_ms, run_id) WHERE status <> 4;
-- statement
CREATE INDEX tape_runs_open ON tape_runs (session_id, user_id, app_name, started_at_ms, run_id)
  WHERE status IN (1, 2, 3);
-- statement
CREATE INDEX tape_runs_due ON tape_runs (pool, app_name, status, started_at_ms, run_id)
  WHERE status IN (1, 2);
-- statement
CREATE TABLE tape_decisions (
  run_id          TEXT COLLATE "C" NOT NULL,
  decision_index  INTEGER NOT NULL,
  seq             BIGINT NOT NULL,
  ts_ms           BIGINT NOT NULL,
  PRIMARY KEY (run_id, decision_index)
);
-- statement
CREATE TABLE tape_effects (
  run_id                        TEXT COLLATE "C" NOT NULL,
  idempotency_key               TEXT COLLATE "C" NOT NULL,
  seq                           BIGINT NOT NULL,
  decision_index                INTEGER NOT NULL,
  tool_name                     TEXT COLLATE "C" NOT NULL,
  call_index                    INTEGER NOT NULL,
  status                        SMALLINT NOT NULL,
  request_json                  TEXT NOT NULL,
  response_json                 TEXT NOT NULL,
  error_json                    TEXT NOT NULL,
  ts_ms                         BIGINT NOT NULL,
  semantics                     SMALLINT NOT NULL,
  dispatch_mode                 SMALLINT NOT NULL,
  business_key                  TEXT COLLATE "C" NOT NULL,
  connector                     TEXT COLLATE "C" NOT NULL,
  scope                         TEXT NOT NULL,
  dispatch_attempts             INTEGER NOT NULL DEFAULT 0,
  next_dispatch_at_ms           BIGINT NOT NULL DEFAULT 0,
  external_ref                  TEXT NOT NULL DEFAULT '',
  dispatch_claimed_by           TEXT NOT NULL DEFAULT '',
  dispatch_claim_expires_at_ms  BIGINT NOT NULL DEFAULT 0,
  last_dispatch_error           TEXT NOT NULL DEFAULT '',
  claim_token                   BIGINT NOT NULL DEFAULT 0,
  PRIMARY KEY (run_id, idempotency_key)
);
-- statement
CREATE INDEX tape_effects_open
  ON tape_effects (status, dispatch_mode, connector, ts_ms, run_id, seq)
  WHERE status IN (1, 4);
-- statement
CREATE TABLE tape_business_keys (
  connector        TEXT COLLATE "C" NOT NULL,
  business_key     TEXT COLLATE "C" NOT NULL,
  run_id           TEXT COLLATE "C" NOT NULL,
  idempotency_key  TEXT COLLATE "C" NOT NULL,
  PRIMARY KEY (connector, business_key)
);
-- statement
CREATE TABLE tape_obligations (
  run_id               TEXT COLLATE "C" NOT NULL,
  effect_key           TEXT COLLATE "C" NOT NULL,
  kind                 TEXT COLLATE "C" NOT NULL,
  seq                  BIGINT NOT NULL,
  payload_json         TEXT NOT NULL,
  status               SMALLINT NOT NULL,
  ts_ms                BIGINT NOT NULL,
  compensator_ref      TEXT NOT NULL,
  attempts             INTEGER NOT NULL DEFAULT 0,
  max_attempts         INTEGER NOT NULL,
  next_attempt_at_ms   BIGINT NOT NULL DEFAULT 0,
  last_error           TEXT NOT NULL DEFAULT '',
  claimed_by           TEXT NOT NULL DEFAULT '',
  claim_expires_at_ms  BIGINT NOT NULL DEFAULT 0,
  claim_token          BIGINT NOT NULL DEFAULT 0,
  result_json          TEXT NOT NULL DEFAULT 'null',
  below                BIGINT NOT NULL DEFAULT 0,
  PRIMARY KEY (run_id, effect_key, kind)
);
-- statement
CREATE UNIQUE INDEX tape_obligations_seq ON tape_obligations (seq, run_id);
-- statement
CREATE INDEX tape_obligations_alone ON tape_obligations (ts_ms, run_id, seq)
  WHERE below = -1 AND status IN (1, 2);
-- statement
CREATE INDEX tape_obligations_stuck ON tape_obligations (ts_ms, run_id, seq) WHERE status = 4;
-- statement
CREATE TABLE tape_gates (
  run_id           TEXT COLLATE "C" NOT NULL,
  gate_name        TEXT COLLATE "C" NOT NULL,
  awaited          BOOLEAN NOT NULL,
  released         BOOLEAN NOT NULL,
  payload_json     TEXT NOT NULL,
  resolution_json  TEXT NOT NULL,
  PRIMARY KEY (run_id, gate_name)
);
-- statement
CREATE TABLE tape_timers (
  run_id         TEXT COLLATE "C" NOT NULL,
  timer_id       TEXT COLLATE "C" NOT NULL,
  fire_at_ms     BIGINT NOT NULL,
  kind           TEXT COLLATE "C" NOT NULL,
  payload_json   TEXT NOT NULL,
  fired          BOOLEAN NOT NULL DEFAULT FALSE,
  cancelled      BOOLEAN NOT NULL DEFAULT FALSE,
  created_at_ms  BIGINT NOT NULL,
  PRIMARY KEY (run_id, timer_id)
);
-- statement
CREATE INDEX tape_timers_due ON tape_timers (fire_at_ms, run_id, timer_id)
  WHERE NOT fired AND NOT cancelled;
-- statement
CREATE TABLE tape_budgets (
  run_id        TEXT COLLATE "C" PRIMARY KEY,
  usd_cap       DOUBLE PRECISION NOT NULL DEFAULT 0,
  token_cap     BIGINT NOT NULL DEFAULT 0,
  usd_spent     DOUBLE PRECISION NOT NULL DEFAULT 0,
  tokens_spent  BIGINT NOT NULL DEFAULT 0,
  last_charge   TEXT NOT NULL DEFAULT ''
);
-- statement
-- A whole turn of writes for runs in one round trip, decided on rows as they were remembered. It is
-- refused with TG001, and writes nothing, unless the runs are still as they were thought to be. A
-- run's number on its own journal moves with everything that is written for it, so that is enough
-- for what it has written down as well.
CREATE FUNCTION tape_extend(
  p_now_ms BIGINT,
  p_known_run TEXT[], p_known_seq BIGINT[], p_known_token BIGINT[], p_known_expiry BIGINT[],
  p_new_run TEXT[],
  r_run_id TEXT[], r_app_name TEXT[], r_user_id TEXT[], r_session_id TEXT[],
  r_invocation_id TEXT[], r_pool TEXT[], r_status SMALLINT[], r_seq_cursor BIGINT[],
  r_lease_owner TEXT[], r_reactor_name TEXT[], r_lease_expires_at_ms BIGINT[],
  r_fencing_token BIGINT[], r_started_at_ms BIGINT[], r_ended_at_ms BIGINT[],
  r_app_version TEXT[], r_parent_run_id TEXT[], r_waiting_on TEXT[], r_cancel_reason TEXT[],
  r_top_obligation BIGINT[], r_ending SMALLINT[], r_outcome_json TEXT[],
  e_is_new BOOLEAN[], e_run_id TEXT[], e_idempotency_key TEXT[], e_seq BIGINT[],
  e_decision_index INTEGER[], e_tool_name TEXT[], e_call_index INTEGER[], e_status SMALLINT[],
  e_request_json TEXT[], e_response_json TEXT[], e_error_json TEXT[], e_ts_ms BIGINT[],
  e_semantics SMALLINT[], e_dispatch_mode SMALLINT[], e_business_key TEXT[], e_connector TEXT[],
  e_scope TEXT[],
  d_run_id TEXT[], d_decision_index INTEGER[], d_seq BIGINT[], d_ts_ms BIGINT[],
  p_event_id TEXT[], p_kind TEXT[], p_subject TEXT[], p_payload_json TEXT[], p_run_id TEXT[],
  p_seq BIGINT[], p_schema_version SMALLINT[], p_trace_id TEXT[], p_span_id TEXT[],
  p_parent_span_id TEXT[], p_event_type TEXT[], p_entity_type TEXT[], p_entity_id TEXT[],
  p_caused_by TEXT[], p_source TEXT[], p_occurred_at_ms BIGINT[], p_idempotency_key TEXT[],
  OUT first_global_seq BIGINT, OUT turn_ms BIGINT
) LANGUAGE plpgsql AS $$
DECLARE
  turn RECORD;
  found_runs BIGINT;
BEGIN
  SELECT * INTO turn FROM tape_take_turn();
  turn_ms := turn.now_ms;
  SELECT count(*) INTO found_runs
  FROM unnest(p_known_run, p_known_seq, p_known_token, p_known_expiry)
    AS k (run_id, seq_cursor, fencing_token, lease_expires_at_ms)
  JOIN tape_runs USING (run_id, seq_cursor, fencing_token, lease_expires_at_ms);
  IF found_runs <> cardinality(p_known_run) OR abs(turn.now_ms - p_now_ms) > 250 THEN
    RAISE EXCEPTION 'not as it was remembered' USING ERRCODE = 'TG001';
  END IF;
  IF cardinality(p_new_run) > 0 THEN
    INSERT INTO tape_runs
    SELECT *
    FROM unnest(
      r_run_id, r_app_name, r_user_id, r_session_id, r_invocation_id, r_pool, r_status,
      r_seq_cursor, r_lease_owner, r_reactor_name, r_lease_expires_at_ms, r_fencing_token,
      r_started_at_ms, r_ended_at_ms, r_app_version, r_parent_run_id, r_waiting_on,
      r_cancel_reason, r_top_obligation, r_ending, r_outcome_json) AS n (run_id)
    WHERE n.run_id = ANY (p_new_run);
  END IF;
  UPDATE tape_runs SET
    status = n.status,
    seq_cursor = n.seq_cursor,
    lease_owner = n.lease_owner,
    reactor_name = n.reactor_name,
    lease_expires_at_ms = n.lease_expires_at_ms,
    fencing_token = n.fencing_token,
    ended_at_ms = n.ended_at_ms,
    waiting_on = n.waiting_on,
    cancel_reason = n.cancel_reason,
    top_obligation = n.top_obligation,
    ending = n.ending,
    outcome_json = n.outcome_json
  FROM unnest(
    r_run_id, r_status, r_seq_cursor, r_lease_owner, r_reactor_name, r_lease_expires_at_ms,
    r_fencing_token, r_ended_at_ms, r_waiting_on, r_cancel_reason, r_top_obligation, r_ending,
    r_outcome_json
  ) AS n (
    run_id, status, seq_cursor, lease_owner, reactor_name, lease_expires_at_ms, fencing_token,
    ended_at_ms, waiting_on, cancel_reason, top_obligation, ending, outcome_json)
  WHERE tape_runs.run_id = n.run_id AND n.run_id <> ALL (p_new_run);
  IF TRUE = ANY (e_is_new) THEN
    INSERT INTO tape_effects (
      run_id, idempotency_key, seq, decision_index, tool_name, call_index, status, request_json,
      response_json, error_json, ts_ms, semantics, dispatch_mode, business_key, connector, scope)
    SELECT
      n.run_id, n.idempotency_key, n.seq, n.decision_index, n.tool_name, n.call_index, n.status,
      n.request_json, n.response_json, n.error_json, n.ts_ms, n.semantics, n.dispatch_mode,
      n.business_key, n.connector, n.scope
    FROM unnest(
      e_is_new, e_run_id, e_idempotency_key, e_seq, e_decision_index, e_tool_name, e_call_index,
      e_status, e_request_json, e_response_json, e_error_json, e_ts_ms, e_semantics,
      e_dispatch_mode, e_business_key, e_connector, e_scope
    ) AS n (
      is_new, run_id, idempotency_key, seq, decision_index, tool_name, call_index, status,
      request_json, response_json, error_json, ts_ms, semantics, dispatch_mode, business_key,
      connector, scope)
    WHERE n.is_new;
  END IF;
  IF FALSE = ANY (e_is_new) THEN
    UPDATE tape_effects SET
      status = n.status, response_json = n.response_json, error_json = n.error_json
    FROM unnest(e_is_new, e_run_id, e_idempotency_key, e_status, e_response_json, e_error_json)
      AS n (is_new, run_id, idempotency_key, status, response_json, error_json)
    WHERE tape_effects.run_id = n.run_id AND tape_effects.idempotency_key = n.idempotency_key
      AND NOT n.is_new;
  END IF;
  IF cardinality(d_run_id) > 0 THEN
    INSERT INTO tape_decisions (run_id, decision_index, seq, ts_ms)
    SELECT * FROM unnest(d_run_id, d_decision_index, d_seq, d_ts_ms);
  END IF;
  SELECT a.first_global_seq INTO first_global_seq
  FROM tape_append(
    p_now_ms, p_event_id, p_kind, p_subject, p_payload_json, p_run_id, p_seq, p_schema_version,
    p_trace_id, p_span_id, p_parent_span_id, p_event_type, p_entity_type, p_entity_id, p_caused_by,
    p_source, p_occurred_at_ms, p_idempotency_key) AS a;
END $$;
