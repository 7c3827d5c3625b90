-- The ledger's event subscriptions, and how far each drainer has come.
--
-- Events are entries of the journal. A drainer's cursor is last_global_seq; last_event_id names the
-- same event for people. A lease on the row lets one instance drain at a time. While a drainer is
-- halted, halted_on_event_id is the event that failed, and attempts_json says for each subscription
-- how often it was tried for that event.

CREATE TABLE tape_event_subscriptions (
  subscription_id  TEXT COLLATE "C" PRIMARY KEY,
  drainer_id       TEXT COLLATE "C" NOT NULL,
  event_type_glob  TEXT COLLATE "C" NOT NULL,
  workflow_type    TEXT COLLATE "C" NOT NULL,
  input_mapper     TEXT NOT NULL,
  filter_expr      TEXT NOT NULL,
  enabled          BOOLEAN NOT NULL,
  awaits_end       BOOLEAN NOT NULL,
  created_at_ms    BIGINT NOT NULL
);
-- statement
CREATE INDEX tape_event_subscriptions_drainer ON tape_event_subscriptions (drainer_id);
-- statement
CREATE TABLE tape_event_drain_state (
  drainer_id              TEXT COLLATE "C" PRIMARY KEY,
  last_global_seq         BIGINT NOT NULL,
  last_event_id           TEXT NOT NULL,
  last_drained_at_ms      BIGINT NOT NULL,
  events_processed_total  BIGINT NOT NULL,
  dispatched_total        BIGINT NOT NULL,
  failed_total            BIGINT NOT NULL,
  skipped_total           BIGINT NOT NULL,
  halted_on_event_id      TEXT NOT NULL,
  halted_on_global_seq    BIGINT NOT NULL,
  halted_at_ms            BIGINT NOT NULL,
  last_error              TEXT NOT NULL,
  attempts_json           TEXT NOT NULL,
  lease_owner             TEXT NOT NULL,
  lease_expires_at_ms     BIGINT NOT NULL,
  fencing_token           BIGINT NOT NULL
) WITH (fillfactor = 50);
