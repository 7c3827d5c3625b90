-- Declared subscriptions: their documents and states, who listens, and what was accepted.
--
-- tape_listeners is beside tape_subscriptions, so that a lease and counts do not write the row of a
-- lifecycle; it stands until everything of a deleted subscription is gone. tape_accepted_places is
-- what makes a message that is delivered again find its run.
--
-- A listener's row is written with each batch that it accepts, and no index has what changes: with a
-- page nearly to itself, a new version of it takes the place of one that nobody needs.

CREATE TABLE tape_subscriptions (
  name           TEXT COLLATE "C" PRIMARY KEY,
  path           TEXT NOT NULL,
  state          TEXT NOT NULL,
  revision       BIGINT NOT NULL,
  digest         TEXT NOT NULL,
  source         TEXT NOT NULL,
  mode           TEXT NOT NULL,
  activation     TEXT NOT NULL,
  cadence        TEXT NOT NULL,
  gateway_path   TEXT NOT NULL,
  target         TEXT NOT NULL,
  listener_pool  TEXT NOT NULL,
  created_at_ms  BIGINT NOT NULL,
  changed_at_ms  BIGINT NOT NULL
) WITH (fillfactor = 70);
-- statement
CREATE TABLE tape_subscription_revisions (
  name           TEXT COLLATE "C" NOT NULL REFERENCES tape_subscriptions (name) ON DELETE CASCADE,
  revision       BIGINT NOT NULL,
  document_json  TEXT NOT NULL,
  created_at_ms  BIGINT NOT NULL,
  PRIMARY KEY (name, revision)
);
-- statement
CREATE TABLE tape_gateway_paths (
  gateway_path  TEXT COLLATE "C" PRIMARY KEY,
  name          TEXT NOT NULL
);
-- statement
CREATE TABLE tape_listeners (
  name                 TEXT COLLATE "C" PRIMARY KEY,
  lease_owner          TEXT NOT NULL,
  lease_expires_at_ms  BIGINT NOT NULL,
  fencing_token        BIGINT NOT NULL,
  revision             BIGINT NOT NULL,
  fetched              BIGINT NOT NULL,
  redelivered          BIGINT NOT NULL,
  accepted             BIGINT NOT NULL,
  deduplicated         BIGINT NOT NULL,
  dead_lettered        BIGINT NOT NULL,
  rejected             BIGINT NOT NULL,
  spooled              BIGINT NOT NULL,
  replayed             BIGINT NOT NULL,
  in_flight            BIGINT NOT NULL,
  backlog              BIGINT NOT NULL,
  last_accepted_at_ms  BIGINT NOT NULL,
  last_error           TEXT NOT NULL,
  due_at_ms            BIGINT NOT NULL,
  free_at_us           BIGINT NOT NULL,
  throttled_at_ms      BIGINT NOT NULL
) WITH (fillfactor = 10);
-- statement
CREATE TABLE tape_accepted_places (
  subscription    TEXT COLLATE "C" NOT NULL,
  place           TEXT COLLATE "C" NOT NULL,
  run_id          TEXT NOT NULL,
  number          BIGINT NOT NULL,
  accepted_at_ms  BIGINT NOT NULL,
  PRIMARY KEY (subscription, place)
);
-- statement
CREATE INDEX tape_accepted_places_age ON tape_accepted_places (subscription, accepted_at_ms);
-- statement
CREATE TABLE tape_passed_positions (
  subscription    TEXT COLLATE "C" NOT NULL,
  origin          TEXT COLLATE "C" NOT NULL,
  reader          TEXT NOT NULL,
  position        BIGINT NOT NULL,
  reported_at_ms  BIGINT NOT NULL,
  PRIMARY KEY (subscription, origin)
) WITH (fillfactor = 50);
-- statement
CREATE TABLE tape_seen_keys (
  subscription  TEXT COLLATE "C" NOT NULL,
  rule          TEXT COLLATE "C" NOT NULL,
  key           TEXT COLLATE "C" NOT NULL,
  run_id        TEXT NOT NULL,
  place         TEXT NOT NULL,
  seen_at_ms    BIGINT NOT NULL,
  until_ms      BIGINT NOT NULL,
  PRIMARY KEY (subscription, rule, key)
);
-- statement
CREATE INDEX tape_seen_keys_until ON tape_seen_keys (until_ms);
-- statement
CREATE TABLE tape_subscription_dead_letters (
  subscription    TEXT COLLATE "C" NOT NULL,
  letter_id       TEXT COLLATE "C" NOT NULL,
  place           TEXT NOT NULL,
  message_id      TEXT NOT NULL,
  reason          TEXT NOT NULL,
  detail          TEXT NOT NULL,
  attempts        BIGINT NOT NULL,
  at_ms           BIGINT NOT NULL,
  source          TEXT NOT NULL,
  origin          TEXT NOT NULL,
  position        TEXT NOT NULL,
  key             TEXT NOT NULL,
  timestamp_ms    BIGINT NOT NULL,
  source_subject  TEXT NOT NULL,
  headers_json    TEXT NOT NULL,
  body            TEXT NOT NULL,
  PRIMARY KEY (subscription, letter_id)
);
-- statement
-- A whole turn of acceptance in one round trip, refused with TG001 if a subscription or its listener
-- is not as it was remembered. A place or a run that is there after all makes the insert fail.
CREATE FUNCTION tape_accept(
  p_now_ms BIGINT,
  p_subscriptions TEXT[],  -- name, state, revision, changed_at_ms as remembered
  p_listeners TEXT[],      -- all columns as remembered; then all as they are now
  p_places TEXT[],         -- all columns
  p_new_runs TEXT[],       -- this and the entries as tape_extend takes them
  p_entries TEXT[]
) RETURNS BIGINT[] LANGUAGE plpgsql AS $$
BEGIN
  PERFORM tape_take_turn();
  FOR o IN 0 .. cardinality(p_subscriptions) - 1 BY 4 LOOP
    PERFORM FROM tape_subscriptions
    WHERE name = p_subscriptions[o + 1] AND state = p_subscriptions[o + 2]
      AND revision = p_subscriptions[o + 3]::bigint
      AND changed_at_ms = p_subscriptions[o + 4]::bigint;
    IF NOT FOUND THEN
      RAISE EXCEPTION 'not as it was remembered' USING ERRCODE = 'TG001';
    END IF;
  END LOOP;
  FOR o IN 0 .. cardinality(p_listeners) - 1 BY 40 LOOP
    UPDATE tape_listeners SET
      lease_owner = p_listeners[o + 22],
      lease_expires_at_ms = p_listeners[o + 23]::bigint,
      fencing_token = p_listeners[o + 24]::bigint,
      revision = p_listeners[o + 25]::bigint,
      fetched = p_listeners[o + 26]::bigint,
      redelivered = p_listeners[o + 27]::bigint,
      accepted = p_listeners[o + 28]::bigint,
      deduplicated = p_listeners[o + 29]::bigint,
      dead_lettered = p_listeners[o + 30]::bigint,
      rejected = p_listeners[o + 31]::bigint,
      spooled = p_listeners[o + 32]::bigint,
      replayed = p_listeners[o + 33]::bigint,
      in_flight = p_listeners[o + 34]::bigint,
      backlog = p_listeners[o + 35]::bigint,
      last_accepted_at_ms = p_listeners[o + 36]::bigint,
      last_error = p_listeners[o + 37],
      due_at_ms = p_listeners[o + 38]::bigint,
      free_at_us = p_listeners[o + 39]::bigint,
      throttled_at_ms = p_listeners[o + 40]::bigint
    WHERE name = p_listeners[o + 1]
      AND lease_owner = p_listeners[o + 2]
      AND lease_expires_at_ms = p_listeners[o + 3]::bigint
      AND fencing_token = p_listeners[o + 4]::bigint
      AND revision = p_listeners[o + 5]::bigint
      AND fetched = p_listeners[o + 6]::bigint
      AND redelivered = p_listeners[o + 7]::bigint
      AND accepted = p_listeners[o + 8]::bigint
      AND deduplicated = p_listeners[o + 9]::bigint
      AND dead_lettered = p_listeners[o + 10]::bigint
      AND rejected = p_listeners[o + 11]::bigint
      AND spooled = p_listeners[o + 12]::bigint
      AND replayed = p_listeners[o + 13]::bigint
      AND in_flight = p_listeners[o + 14]::bigint
      AND backlog = p_listeners[o + 15]::bigint
      AND last_accepted_at_ms = p_listeners[o + 16]::bigint
      AND last_error = p_listeners[o + 17]
      AND due_at_ms = p_listeners[o + 18]::bigint
      AND free_at_us = p_listeners[o + 19]::bigint
      AND throttled_at_ms = p_listeners[o + 20]::bigint;
    IF NOT FOUND THEN
      RAISE EXCEPTION 'not as it was remembered' USING ERRCODE = 'TG001';
    END IF;
  END LOOP;
  INSERT INTO tape_accepted_places (subscription, place, run_id, number, accepted_at_ms)
  SELECT
    p_places[o + 1], p_places[o + 2], p_places[o + 3], p_places[o + 4]::bigint,
    p_places[o + 5]::bigint
  FROM generate_series(0, cardinality(p_places) - 1, 5) AS o;
  RETURN tape_extend(p_now_ms, '{}', '{}', p_new_runs, '{}', '{}', '{}', p_entries);
END $$;
