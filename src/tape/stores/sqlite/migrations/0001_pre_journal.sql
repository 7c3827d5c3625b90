-- The journal and the rows beside it.
--
-- tape_journal is append-only. Entries outside a run have neither run_id nor seq; entries that are
-- not recorded events leave the event columns empty.

CREATE TABLE tape_journal (
  global_seq       INTEGER PRIMARY KEY AUTOINCREMENT,
  run_id           TEXT,
  seq              INTEGER,
  kind             TEXT NOT NULL,
  subject          TEXT NOT NULL,
  payload_json     TEXT NOT NULL,
  schema_version   INTEGER NOT NULL DEFAULT 1,
  trace_id         TEXT NOT NULL DEFAULT '',
  span_id          TEXT NOT NULL DEFAULT '',
  parent_span_id   TEXT NOT NULL DEFAULT '',
  ts_ms            INTEGER NOT NULL,
  event_id         TEXT NOT NULL,
  event_type       TEXT NOT NULL DEFAULT '',
  entity_type      TEXT NOT NULL DEFAULT '',
  entity_id        TEXT NOT NULL DEFAULT '',
  caused_by        TEXT NOT NULL DEFAULT '',
  source           TEXT NOT NULL DEFAULT '',
  occurred_at_ms   INTEGER NOT NULL,
  idempotency_key  TEXT
);
-- statement
CREATE UNIQUE INDEX tape_journal_run ON tape_journal (run_id, seq) WHERE run_id IS NOT NULL;
-- statement
CREATE UNIQUE INDEX tape_journal_key ON tape_journal (idempotency_key)
  WHERE idempotency_key IS NOT NULL;
-- statement
CREATE INDEX tape_journal_value ON tape_journal (subject, global_seq) WHERE kind = 'value';
-- statement
CREATE TABLE tape_values (
  namespace   TEXT NOT NULL,
  key         TEXT NOT NULL,
  value_json  TEXT NOT NULL,
  version     INTEGER NOT NULL,
  ts_ms       INTEGER NOT NULL,
  writer      TEXT NOT NULL DEFAULT '',
  deleted     INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (namespace, key)
) WITHOUT ROWID;
-- statement
CREATE TABLE tape_runs (
  run_id               TEXT PRIMARY KEY,
  app_name             TEXT NOT NULL,
  user_id              TEXT NOT NULL,
  session_id           TEXT NOT NULL,
  invocation_id        TEXT NOT NULL,
  pool                 TEXT NOT NULL DEFAULT '',
  status               INTEGER NOT NULL,
  seq_cursor           INTEGER NOT NULL DEFAULT 0,
  lease_owner          TEXT NOT NULL DEFAULT '',
  reactor_name         TEXT NOT NULL DEFAULT '',
  lease_expires_at_ms  INTEGER NOT NULL DEFAULT 0,
  fencing_token        INTEGER NOT NULL DEFAULT 0,
  started_at_ms        INTEGER NOT NULL,
  ended_at_ms          INTEGER NOT NULL DEFAULT 0,
  UNIQUE (app_name, user_id, session_id, invocation_id)
) WITHOUT ROWID;
-- statement
CREATE TABLE tape_sessions (
  app_name             TEXT NOT NULL,
  user_id              TEXT NOT NULL,
  session_id           TEXT NOT NULL,
  state_json           TEXT NOT NULL,
  event_count          INTEGER NOT NULL,
  created_at_ms        INTEGER NOT NULL,
  last_update_time_ms  INTEGER NOT NULL,
  PRIMARY KEY (app_name, user_id, session_id)
) WITHOUT ROWID;
-- statement
CREATE TABLE tape_session_events (
  app_name       TEXT NOT NULL,
  user_id        TEXT NOT NULL,
  session_id     TEXT NOT NULL,
  id             TEXT NOT NULL,
  position       INTEGER NOT NULL,
  invocation_id  TEXT NOT NULL,
  author         TEXT NOT NULL,
  branch         TEXT NOT NULL,
  content_json   TEXT NOT NULL,
  actions_json   TEXT NOT NULL,
  timestamp_ms   INTEGER NOT NULL,
  PRIMARY KEY (app_name, user_id, session_id, id),
  UNIQUE (app_name, user_id, session_id, position),
  FOREIGN KEY (app_name, user_id, session_id)
    REFERENCES tape_sessions (app_name, user_id, session_id) ON DELETE CASCADE
);
