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
-- for what it has written down as well. Returns the first number and the turn's time.
--
-- Rows come one after the other in a flat array for each table, whose values are cast here: an array
-- for each column would cost more than all that is written. A statement for each row that is changed
-- and one for all that are new: neither can be planned in a wrong way.
CREATE FUNCTION tape_extend(
  p_now_ms BIGINT,
  p_seen TEXT[],             -- run_id, seq_cursor, fencing_token, lease_expires_at_ms
  p_changed_runs TEXT[],     -- the same of it as it was; then of it as it is: see below
  p_new_runs TEXT[],         -- all columns
  p_changed_effects TEXT[],  -- run_id, idempotency_key, status, response_json, error_json
  p_new_effects TEXT[],      -- all columns but those of a claim
  p_decisions TEXT[],        -- all columns
  p_entries TEXT[]           -- as tape_append takes them
) RETURNS BIGINT[] LANGUAGE plpgsql AS $$
DECLARE
  turn RECORD;
BEGIN
  turn := tape_take_turn();
  IF abs(turn.now_ms - p_now_ms) > 250 THEN
    RAISE EXCEPTION 'not as it was remembered' USING ERRCODE = 'TG001';
  END IF;
  FOR o IN 0 .. cardinality(p_seen) - 1 BY 4 LOOP
    PERFORM FROM tape_runs
    WHERE run_id = p_seen[o + 1] AND seq_cursor = p_seen[o + 2]::bigint
      AND fencing_token = p_seen[o + 3]::bigint AND lease_expires_at_ms = p_seen[o + 4]::bigint;
    IF NOT FOUND THEN
      RAISE EXCEPTION 'not as it was remembered' USING ERRCODE = 'TG001';
    END IF;
  END LOOP;
  FOR o IN 0 .. cardinality(p_changed_runs) - 1 BY 16 LOOP
    UPDATE tape_runs SET
      status = p_changed_runs[o + 5]::smallint,
      seq_cursor = p_changed_runs[o + 6]::bigint,
      lease_owner = p_changed_runs[o + 7],
      reactor_name = p_changed_runs[o + 8],
      lease_expires_at_ms = p_changed_runs[o + 9]::bigint,
      fencing_token = p_changed_runs[o + 10]::bigint,
      ended_at_ms = p_changed_runs[o + 11]::bigint,
      waiting_on = p_changed_runs[o + 12],
      cancel_reason = p_changed_runs[o + 13],
      top_obligation = p_changed_runs[o + 14]::bigint,
      ending = p_changed_runs[o + 15]::smallint,
      outcome_json = p_changed_runs[o + 16]
    WHERE run_id = p_changed_runs[o + 1] AND seq_cursor = p_changed_runs[o + 2]::bigint
      AND fencing_token = p_changed_runs[o + 3]::bigint
      AND lease_expires_at_ms = p_changed_runs[o + 4]::bigint;
    IF NOT FOUND THEN
      RAISE EXCEPTION 'not as it was remembered' USING ERRCODE = 'TG001';
    END IF;
  END LOOP;
  IF cardinality(p_new_runs) > 0 THEN
    INSERT INTO tape_runs (
      run_id, app_name, user_id, session_id, invocation_id, pool, status, seq_cursor, lease_owner,
      reactor_name, lease_expires_at_ms, fencing_token, started_at_ms, ended_at_ms, app_version,
      parent_run_id, waiting_on, cancel_reason, top_obligation, ending, outcome_json)
    SELECT
      p_new_runs[o + 1], p_new_runs[o + 2], p_new_runs[o + 3], p_new_runs[o + 4],
      p_new_runs[o + 5], p_new_runs[o + 6], p_new_runs[o + 7]::smallint,
      p_new_runs[o + 8]::bigint, p_new_runs[o + 9], p_new_runs[o + 10],
      p_new_runs[o + 11]::bigint, p_new_runs[o + 12]::bigint, p_new_runs[o + 13]::bigint,
      p_new_runs[o + 14]::bigint, p_new_runs[o + 15], p_new_runs[o + 16], p_new_runs[o + 17],
      p_new_runs[o + 18], p_new_runs[o + 19]::bigint, p_new_runs[o + 20]::smallint,
      p_new_runs[o + 21]
    FROM generate_series(0, cardinality(p_new_runs) - 1, 21) AS o;
  END IF;
  FOR o IN 0 .. cardinality(p_changed_effects) - 1 BY 5 LOOP
    UPDATE tape_effects SET
      status = p_changed_effects[o + 3]::smallint,
      response_json = p_changed_effects[o + 4],
      error_json = p_changed_effects[o + 5]
    WHERE run_id = p_changed_effects[o + 1] AND idempotency_key = p_changed_effects[o + 2]
      AND status = 1 AND claim_token = 0;
    IF NOT FOUND THEN
      RAISE EXCEPTION 'not as it was remembered' USING ERRCODE = 'TG001';
    END IF;
  END LOOP;
  IF cardinality(p_new_effects) > 0 THEN
    INSERT INTO tape_effects (
      run_id, idempotency_key, seq, decision_index, tool_name, call_index, status, request_json,
      response_json, error_json, ts_ms, semantics, dispatch_mode, business_key, connector, scope)
    SELECT
      p_new_effects[o + 1], p_new_effects[o + 2], p_new_effects[o + 3]::bigint,
      p_new_effects[o + 4]::integer, p_new_effects[o + 5], p_new_effects[o + 6]::integer,
      p_new_effects[o + 7]::smallint, p_new_effects[o + 8], p_new_effects[o + 9],
      p_new_effects[o + 10], p_new_effects[o + 11]::bigint, p_new_effects[o + 12]::smallint,
      p_new_effects[o + 13]::smallint, p_new_effects[o + 14], p_new_effects[o + 15],
      p_new_effects[o + 16]
    FROM generate_series(0, cardinality(p_new_effects) - 1, 16) AS o;
  END IF;
  IF cardinality(p_decisions) > 0 THEN
    INSERT INTO tape_decisions (run_id, decision_index, seq, ts_ms)
    SELECT
      p_decisions[o + 1], p_decisions[o + 2]::integer, p_decisions[o + 3]::bigint,
      p_decisions[o + 4]::bigint
    FROM generate_series(0, cardinality(p_decisions) - 1, 4) AS o;
  END IF;
  INSERT INTO tape_journal (
    global_seq, ts_ms, event_id, kind, subject, payload_json, run_id, seq, schema_version, trace_id,
    span_id, parent_span_id, event_type, entity_type, entity_id, caused_by, source, occurred_at_ms,
    idempotency_key)
  SELECT
    turn.head + 1 + o / 17, p_now_ms, p_entries[o + 1], p_entries[o + 2], p_entries[o + 3],
    p_entries[o + 4], p_entries[o + 5], p_entries[o + 6]::bigint, p_entries[o + 7]::smallint,
    p_entries[o + 8], p_entries[o + 9], p_entries[o + 10], p_entries[o + 11], p_entries[o + 12],
    p_entries[o + 13], p_entries[o + 14], p_entries[o + 15],
    coalesce(nullif(p_entries[o + 16]::bigint, 0), p_now_ms), p_entries[o + 17]
  FROM generate_series(0, cardinality(p_entries) - 1, 17) AS o;
  PERFORM tape_announce(turn.head + cardinality(p_entries) / 17);
  RETURN ARRAY[turn.head + 1, turn.now_ms];
END $$;
