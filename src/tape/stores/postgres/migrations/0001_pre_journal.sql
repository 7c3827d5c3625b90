-- The journal and the rows beside it.
--
-- tape_journal is append-only. Entries outside a run have neither run_id nor seq; entries that are
-- not recorded events leave the event columns empty. Text compares by code point (COLLATE "C"), as
-- it does in Python and SQLite.
--
-- The order. A sequence alone is not an order: a transaction that drew 9 may commit after the one
-- that drew 10. So global_seq is drawn only by who holds one advisory lock until its commit is
-- visible: tape_take_turn and tape_append take it. The sequence only remembers the last number,
-- outside of any transaction and with no dead rows; an aborted turn may leave a gap, never a late
-- lower number.

CREATE SEQUENCE tape_global_seq;
-- statement
CREATE TABLE tape_journal (
  global_seq       BIGINT PRIMARY KEY,
  run_id           TEXT COLLATE "C",
  seq              BIGINT,
  kind             TEXT COLLATE "C" NOT NULL,
  subject          TEXT COLLATE "C" NOT NULL,
  payload_json     TEXT NOT NULL,
  schema_version   SMALLINT NOT NULL DEFAULT 1,
  trace_id         TEXT COLLATE "C" NOT NULL DEFAULT '',
  span_id          TEXT COLLATE "C" NOT NULL DEFAULT '',
  parent_span_id   TEXT COLLATE "C" NOT NULL DEFAULT '',
  ts_ms            BIGINT NOT NULL,
  event_id         TEXT COLLATE "C" NOT NULL,
  event_type       TEXT COLLATE "C" NOT NULL DEFAULT '',
  entity_type      TEXT COLLATE "C" NOT NULL DEFAULT '',
  entity_id        TEXT COLLATE "C" NOT NULL DEFAULT '',
  caused_by        TEXT COLLATE "C" NOT NULL DEFAULT '',
  source           TEXT COLLATE "C" NOT NULL DEFAULT '',
  occurred_at_ms   BIGINT NOT NULL,
  idempotency_key  TEXT COLLATE "C"
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
  namespace   TEXT COLLATE "C" NOT NULL,
  key         TEXT COLLATE "C" NOT NULL,
  value_json  TEXT NOT NULL,
  version     BIGINT NOT NULL,
  ts_ms       BIGINT NOT NULL,
  writer      TEXT NOT NULL DEFAULT '',
  deleted     BOOLEAN NOT NULL DEFAULT FALSE,
  PRIMARY KEY (namespace, key)
);
-- statement
CREATE TABLE tape_runs (
  run_id               TEXT COLLATE "C" PRIMARY KEY,
  app_name             TEXT COLLATE "C" NOT NULL,
  user_id              TEXT COLLATE "C" NOT NULL,
  session_id           TEXT COLLATE "C" NOT NULL,
  invocation_id        TEXT COLLATE "C" NOT NULL,
  pool                 TEXT COLLATE "C" NOT NULL DEFAULT '',
  status               SMALLINT NOT NULL,
  seq_cursor           BIGINT NOT NULL DEFAULT 0,
  lease_owner          TEXT NOT NULL DEFAULT '',
  reactor_name         TEXT NOT NULL DEFAULT '',
  lease_expires_at_ms  BIGINT NOT NULL DEFAULT 0,
  fencing_token        BIGINT NOT NULL DEFAULT 0,
  started_at_ms        BIGINT NOT NULL,
  ended_at_ms          BIGINT NOT NULL DEFAULT 0,
  UNIQUE (app_name, user_id, session_id, invocation_id)
);
-- statement
CREATE TABLE tape_sessions (
  app_name             TEXT COLLATE "C" NOT NULL,
  user_id              TEXT COLLATE "C" NOT NULL,
  session_id           TEXT COLLATE "C" NOT NULL,
  state_json           TEXT NOT NULL,
  event_count          BIGINT NOT NULL,
  created_at_ms        BIGINT NOT NULL,
  last_update_time_ms  BIGINT NOT NULL,
  PRIMARY KEY (app_name, user_id, session_id)
);
-- statement
CREATE TABLE tape_session_events (
  app_name       TEXT COLLATE "C" NOT NULL,
  user_id        TEXT COLLATE "C" NOT NULL,
  session_id     TEXT COLLATE "C" NOT NULL,
  id             TEXT COLLATE "C" NOT NULL,
  position       BIGINT NOT NULL,
  invocation_id  TEXT NOT NULL,
  author         TEXT NOT NULL,
  branch         TEXT NOT NULL,
  content_json   TEXT NOT NULL,
  actions_json   TEXT NOT NULL,
  timestamp_ms   BIGINT NOT NULL,
  PRIMARY KEY (app_name, user_id, session_id, id),
  UNIQUE (app_name, user_id, session_id, position),
  FOREIGN KEY (app_name, user_id, session_id)
    REFERENCES tape_sessions (app_name, user_id, session_id) ON DELETE CASCADE
);
-- statement
-- Wait for the turn to write. The lock goes with the transaction, after its commit is visible.
CREATE FUNCTION tape_take_turn(OUT head BIGINT, OUT now_ms BIGINT) LANGUAGE plpgsql AS $$
BEGIN
  PERFORM pg_advisory_xact_lock(7878, 'tape_journal'::regclass::oid::int);
  SELECT CASE WHEN is_called THEN last_value ELSE 0 END INTO head FROM tape_global_seq;
  now_ms := floor(extract(epoch FROM clock_timestamp()) * 1000);
END $$;
-- statement
-- Close a turn that wrote entries up to `last`: remember the number, wake who listens.
CREATE FUNCTION tape_announce(last BIGINT) RETURNS VOID LANGUAGE plpgsql AS $$
BEGIN
  PERFORM setval('tape_global_seq', last);
  PERFORM pg_notify('tape_journal_' || 'tape_journal'::regclass::oid, last::text);
END $$;
-- statement
-- Append entries as the next ones and announce them. Alone it is a whole turn in one round trip; in
-- a turn already taken, p_now_ms is that turn's time and the lock is simply held once more.
CREATE FUNCTION tape_append(
  p_now_ms BIGINT,
  p_event_id TEXT[], p_kind TEXT[], p_subject TEXT[], p_payload_json TEXT[], p_run_id TEXT[],
  p_seq BIGINT[], p_schema_version SMALLINT[], p_trace_id TEXT[], p_span_id TEXT[],
  p_parent_span_id TEXT[], p_event_type TEXT[], p_entity_type TEXT[], p_entity_id TEXT[],
  p_caused_by TEXT[], p_source TEXT[], p_occurred_at_ms BIGINT[], p_idempotency_key TEXT[],
  OUT first_global_seq BIGINT, OUT recorded_ms BIGINT
) LANGUAGE plpgsql AS $$
DECLARE
  turn RECORD;
BEGIN
  SELECT * INTO turn FROM tape_take_turn();
  first_global_seq := turn.head + 1;
  recorded_ms := coalesce(p_now_ms, turn.now_ms);
  INSERT INTO tape_journal (
    global_seq, run_id, seq, kind, subject, payload_json, schema_version, trace_id, span_id,
    parent_span_id, ts_ms, event_id, event_type, entity_type, entity_id, caused_by, source,
    occurred_at_ms, idempotency_key)
  SELECT
    turn.head + d.n, d.run_id, d.seq, d.kind, d.subject, d.payload_json,
    d.schema_version, d.trace_id, d.span_id, d.parent_span_id, recorded_ms, d.event_id,
    d.event_type, d.entity_type, d.entity_id, d.caused_by, d.source,
    coalesce(nullif(d.occurred_at_ms, 0), recorded_ms), d.idempotency_key
  FROM unnest(
    p_event_id, p_kind, p_subject, p_payload_json, p_run_id, p_seq, p_schema_version, p_trace_id,
    p_span_id, p_parent_span_id, p_event_type, p_entity_type, p_entity_id, p_caused_by, p_source,
    p_occurred_at_ms, p_idempotency_key
  ) WITH ORDINALITY AS d (
    event_id, kind, subject, payload_json, run_id, seq, schema_version, trace_id, span_id,
    parent_span_id, event_type, entity_type, entity_id, caused_by, source, occurred_at_ms,
    idempotency_key, n);
  PERFORM tape_announce(turn.head + cardinality(p_event_id));
END $$;
-- statement
-- Append what the session has copied into its tape_incoming, and announce it. No time-out of Postgres
-- ends a session that waits for the rest of a COPY, so nobody may copy while it holds the turn.
CREATE FUNCTION tape_append_incoming(OUT first_global_seq BIGINT, OUT recorded_ms BIGINT)
LANGUAGE plpgsql AS $$
DECLARE
  turn RECORD;
  written BIGINT;
BEGIN
  SELECT * INTO turn FROM tape_take_turn();
  first_global_seq := turn.head + 1;
  recorded_ms := turn.now_ms;
  INSERT INTO tape_journal (
    global_seq, run_id, seq, kind, subject, payload_json, schema_version, trace_id, span_id,
    parent_span_id, ts_ms, event_id, event_type, entity_type, entity_id, caused_by, source,
    occurred_at_ms, idempotency_key)
  SELECT
    turn.head + d.n, d.run_id, d.seq, d.kind, d.subject, d.payload_json, d.schema_version,
    d.trace_id, d.span_id, d.parent_span_id, recorded_ms, d.event_id, d.event_type,
    d.entity_type, d.entity_id, d.caused_by, d.source,
    coalesce(nullif(d.occurred_at_ms, 0), recorded_ms), d.idempotency_key
  FROM tape_incoming AS d;
  GET DIAGNOSTICS written = ROW_COUNT;
  PERFORM tape_announce(turn.head + written);
END $$;
