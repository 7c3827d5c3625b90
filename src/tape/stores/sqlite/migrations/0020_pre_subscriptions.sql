-- Declared subscriptions: their documents and states, who listens, and what was accepted.
--
-- tape_listeners is beside tape_subscriptions, so that a lease and counts do not write the row of a
-- lifecycle; it stands until everything of a deleted subscription is gone. tape_accepted_places is
-- what makes a message that is delivered again find its run.

CREATE TABLE tape_subscriptions (
  name           TEXT PRIMARY KEY,
  path           TEXT NOT NULL,
  state          TEXT NOT NULL,
  revision       INTEGER NOT NULL,
  digest         TEXT NOT NULL,
  source         TEXT NOT NULL,
  mode           TEXT NOT NULL,
  activation     TEXT NOT NULL,
  cadence        TEXT NOT NULL,
  gateway_path   TEXT NOT NULL,
  target         TEXT NOT NULL,
  listener_pool  TEXT NOT NULL,
  created_at_ms  INTEGER NOT NULL,
  changed_at_ms  INTEGER NOT NULL
) WITHOUT ROWID;
-- statement
CREATE TABLE tape_subscription_revisions (
  name           TEXT NOT NULL REFERENCES tape_subscriptions (name) ON DELETE CASCADE,
  revision       INTEGER NOT NULL,
  document_json  TEXT NOT NULL,
  created_at_ms  INTEGER NOT NULL,
  PRIMARY KEY (name, revision)
);
-- statement
CREATE TABLE tape_gateway_paths (
  gateway_path  TEXT PRIMARY KEY,
  name          TEXT NOT NULL
) WITHOUT ROWID;
-- statement
CREATE TABLE tape_listeners (
  name                 TEXT PRIMARY KEY,
  lease_owner          TEXT NOT NULL,
  lease_expires_at_ms  INTEGER NOT NULL,
  fencing_token        INTEGER NOT NULL,
  revision             INTEGER NOT NULL,
  fetched              INTEGER NOT NULL,
  redelivered          INTEGER NOT NULL,
  accepted             INTEGER NOT NULL,
  deduplicated         INTEGER NOT NULL,
  dead_lettered        INTEGER NOT NULL,
  rejected             INTEGER NOT NULL,
  spooled              INTEGER NOT NULL,
  replayed             INTEGER NOT NULL,
  in_flight            INTEGER NOT NULL,
  backlog              INTEGER NOT NULL,
  last_accepted_at_ms  INTEGER NOT NULL,
  last_error           TEXT NOT NULL,
  due_at_ms            INTEGER NOT NULL,
  free_at_us           INTEGER NOT NULL,
  throttled_at_ms      INTEGER NOT NULL
) WITHOUT ROWID;
-- statement
CREATE TABLE tape_accepted_places (
  subscription    TEXT NOT NULL,
  place           TEXT NOT NULL,
  run_id          TEXT NOT NULL,
  number          INTEGER NOT NULL,
  accepted_at_ms  INTEGER NOT NULL,
  PRIMARY KEY (subscription, place)
) WITHOUT ROWID;
-- statement
CREATE INDEX tape_accepted_places_age ON tape_accepted_places (subscription, accepted_at_ms);
-- statement
CREATE TABLE tape_passed_positions (
  subscription    TEXT NOT NULL,
  origin          TEXT NOT NULL,
  reader          TEXT NOT NULL,
  position        INTEGER NOT NULL,
  reported_at_ms  INTEGER NOT NULL,
  PRIMARY KEY (subscription, origin)
) WITHOUT ROWID;
-- statement
CREATE TABLE tape_seen_keys (
  subscription  TEXT NOT NULL,
  rule          TEXT NOT NULL,
  key           TEXT NOT NULL,
  run_id        TEXT NOT NULL,
  place         TEXT NOT NULL,
  seen_at_ms    INTEGER NOT NULL,
  until_ms      INTEGER NOT NULL,
  PRIMARY KEY (subscription, rule, key)
) WITHOUT ROWID;
-- statement
CREATE INDEX tape_seen_keys_until ON tape_seen_keys (until_ms);
-- statement
CREATE TABLE tape_subscription_dead_letters (
  subscription    TEXT NOT NULL,
  letter_id       TEXT NOT NULL,
  place           TEXT NOT NULL,
  message_id      TEXT NOT NULL,
  reason          TEXT NOT NULL,
  detail          TEXT NOT NULL,
  attempts        INTEGER NOT NULL,
  at_ms           INTEGER NOT NULL,
  source          TEXT NOT NULL,
  origin          TEXT NOT NULL,
  position        TEXT NOT NULL,
  key             TEXT NOT NULL,
  timestamp_ms    INTEGER NOT NULL,
  source_subject  TEXT NOT NULL,
  headers_json    TEXT NOT NULL,
  body            TEXT NOT NULL,
  PRIMARY KEY (subscription, letter_id)
);
