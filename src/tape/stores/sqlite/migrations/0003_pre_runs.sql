-- Durable runs and what they write down.
--
-- Everything stays where it is when it is finished, so each list has an index of its own that holds
-- only what the list is about. A run's row is written with every entry of its journal: columns that
-- change that often are in no index, its status only in those of the few runs that are not done.

ALTER TABLE tape_runs ADD COLUMN app_version TEXT NOT NULL DEFAULT '';
-- statement
ALTER TABLE tape_runs ADD COLUMN parent_run_id TEXT NOT NULL DEFAULT '';
-- statement
ALTER TABLE tape_runs ADD COLUMN waiting_on TEXT NOT NULL DEFAULT '';
-- statement
ALTER TABLE tape_runs ADD COLUMN cancel_reason TEXT NOT NULL DEFAULT '';
-- statement
ALTER TABLE tape_runs ADD COLUMN top_obligation INTEGER NOT NULL DEFAULT 0;
-- statement
ALTER TABLE tape_runs ADD COLUMN ending INTEGER NOT NULL DEFAULT 0;
-- statement
ALTER TABLE tape_runs ADD COLUMN outcome_json TEXT NOT NULL DEFAULT '';
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
  run_id          TEXT NOT NULL,
  decision_index  INTEGER NOT NULL,
  seq             INTEGER NOT NULL,
  ts_ms           INTEGER NOT NULL,
  PRIMARY KEY (run_id, decision_index)
) WITHOUT ROWID;
-- statement
CREATE TABLE tape_effects (
  run_id                        TEXT NOT NULL,
  idempotency_key               TEXT NOT NULL,
  seq                           INTEGER NOT NULL,
  decision_index                INTEGER NOT NULL,
  tool_name                     TEXT NOT NULL,
  call_index                    INTEGER NOT NULL,
  status                        INTEGER NOT NULL,
  request_json                  TEXT NOT NULL,
  response_json                 TEXT NOT NULL,
  error_json                    TEXT NOT NULL,
  ts_ms                         INTEGER NOT NULL,
  semantics                     INTEGER NOT NULL,
  dispatch_mode                 INTEGER NOT NULL,
  business_key                  TEXT NOT NULL,
  connector                     TEXT NOT NULL,
  scope                         TEXT NOT NULL,
  dispatch_attempts             INTEGER NOT NULL DEFAULT 0,
  next_dispatch_at_ms           INTEGER NOT NULL DEFAULT 0,
  external_ref                  TEXT NOT NULL DEFAULT '',
  dispatch_claimed_by           TEXT NOT NULL DEFAULT '',
  dispatch_claim_expires_at_ms  INTEGER NOT NULL DEFAULT 0,
  last_dispatch_error           TEXT NOT NULL DEFAULT '',
  claim_token                   INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (run_id, idempotency_key)
);
-- statement
CREATE INDEX tape_effects_open
  ON tape_effects (status, dispatch_mode, connector, ts_ms, run_id, seq)
  WHERE status IN (1, 4);
-- statement
CREATE TABLE tape_business_keys (
  connector        TEXT NOT NULL,
  business_key     TEXT NOT NULL,
  run_id           TEXT NOT NULL,
  idempotency_key  TEXT NOT NULL,
  PRIMARY KEY (connector, business_key)
) WITHOUT ROWID;
-- statement
CREATE TABLE tape_obligations (
  run_id               TEXT NOT NULL,
  effect_key           TEXT NOT NULL,
  kind                 TEXT NOT NULL,
  seq                  INTEGER NOT NULL,
  payload_json         TEXT NOT NULL,
  status               INTEGER NOT NULL,
  ts_ms                INTEGER NOT NULL,
  compensator_ref      TEXT NOT NULL,
  attempts             INTEGER NOT NULL DEFAULT 0,
  max_attempts         INTEGER NOT NULL,
  next_attempt_at_ms   INTEGER NOT NULL DEFAULT 0,
  last_error           TEXT NOT NULL DEFAULT '',
  claimed_by           TEXT NOT NULL DEFAULT '',
  claim_expires_at_ms  INTEGER NOT NULL DEFAULT 0,
  claim_token          INTEGER NOT NULL DEFAULT 0,
  result_json          TEXT NOT NULL DEFAULT 'null',
  below                INTEGER NOT NULL DEFAULT 0,
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
  run_id           TEXT NOT NULL,
  gate_name        TEXT NOT NULL,
  awaited          INTEGER NOT NULL,
  released         INTEGER NOT NULL,
  payload_json     TEXT NOT NULL,
  resolution_json  TEXT NOT NULL,
  PRIMARY KEY (run_id, gate_name)
);
-- statement
CREATE TABLE tape_timers (
  run_id         TEXT NOT NULL,
  timer_id       TEXT NOT NULL,
  fire_at_ms     INTEGER NOT NULL,
  kind           TEXT NOT NULL,
  payload_json   TEXT NOT NULL,
  fired          INTEGER NOT NULL DEFAULT 0,
  cancelled      INTEGER NOT NULL DEFAULT 0,
  created_at_ms  INTEGER NOT NULL,
  PRIMARY KEY (run_id, timer_id)
);
-- statement
CREATE INDEX tape_timers_due ON tape_timers (fire_at_ms, run_id, timer_id)
  WHERE fired = 0 AND cancelled = 0;
-- statement
CREATE TABLE tape_budgets (
  run_id        TEXT PRIMARY KEY,
  usd_cap       REAL NOT NULL DEFAULT 0,
  token_cap     INTEGER NOT NULL DEFAULT 0,
  usd_spent     REAL NOT NULL DEFAULT 0,
  tokens_spent  INTEGER NOT NULL DEFAULT 0,
  last_charge   TEXT NOT NULL DEFAULT ''
) WITHOUT ROWID;
