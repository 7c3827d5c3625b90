-- Declared subscriptions: documents, listeners, what was accepted, and what could not be.

-- name: load_subscriptions
-- Rows by key, for a batch to decide on.
SELECT
  name, path, state, revision, digest, source, mode, activation, cadence, gateway_path, target,
  listener_pool, created_at_ms, changed_at_ms
FROM tape_subscriptions
WHERE name IN (SELECT value ->> 0 FROM json_each(?));

-- name: save_subscriptions
-- Write one row, new or changed.
INSERT INTO tape_subscriptions (
  name, path, state, revision, digest, source, mode, activation, cadence, gateway_path, target,
  listener_pool, created_at_ms, changed_at_ms)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (name) DO UPDATE SET
  path = excluded.path,
  state = excluded.state,
  revision = excluded.revision,
  digest = excluded.digest,
  source = excluded.source,
  mode = excluded.mode,
  activation = excluded.activation,
  cadence = excluded.cadence,
  gateway_path = excluded.gateway_path,
  target = excluded.target,
  listener_pool = excluded.listener_pool,
  created_at_ms = excluded.created_at_ms,
  changed_at_ms = excluded.changed_at_ms;

-- name: delete_subscriptions
-- Remove rows by key.
DELETE FROM tape_subscriptions
WHERE name IN (SELECT value ->> 0 FROM json_each(?));

-- name: load_subscription_revisions
-- Rows by key, for a batch to decide on.
SELECT name, revision, document_json, created_at_ms
FROM tape_subscription_revisions
WHERE (name, revision) IN (
  SELECT value ->> 0, value ->> 1 FROM json_each(?));

-- name: save_subscription_revisions
-- Write one row, new or changed.
INSERT INTO tape_subscription_revisions (name, revision, document_json, created_at_ms)
VALUES (?, ?, ?, ?)
ON CONFLICT (name, revision) DO UPDATE SET
  document_json = excluded.document_json,
  created_at_ms = excluded.created_at_ms;

-- name: load_gateway_paths
-- Rows by key, for a batch to decide on.
SELECT gateway_path, name
FROM tape_gateway_paths
WHERE gateway_path IN (SELECT value ->> 0 FROM json_each(?));

-- name: save_gateway_paths
-- Write one row, new or changed.
INSERT INTO tape_gateway_paths (gateway_path, name)
VALUES (?, ?)
ON CONFLICT (gateway_path) DO UPDATE SET
  name = excluded.name;

-- name: delete_gateway_paths
-- Remove rows by key.
DELETE FROM tape_gateway_paths
WHERE gateway_path IN (SELECT value ->> 0 FROM json_each(?));

-- name: load_listeners
-- Rows by key, for a batch to decide on.
SELECT
  name, lease_owner, lease_expires_at_ms, fencing_token, revision, fetched, redelivered, accepted,
  deduplicated, dead_lettered, rejected, spooled, replayed, in_flight, backlog,
  last_accepted_at_ms, last_error, due_at_ms, free_at_us, throttled_at_ms
FROM tape_listeners
WHERE name IN (SELECT value ->> 0 FROM json_each(?));

-- name: save_listeners
-- Write one row, new or changed.
INSERT INTO tape_listeners (
  name, lease_owner, lease_expires_at_ms, fencing_token, revision, fetched, redelivered, accepted,
  deduplicated, dead_lettered, rejected, spooled, replayed, in_flight, backlog,
  last_accepted_at_ms, last_error, due_at_ms, free_at_us, throttled_at_ms)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (name) DO UPDATE SET
  lease_owner = excluded.lease_owner,
  lease_expires_at_ms = excluded.lease_expires_at_ms,
  fencing_token = excluded.fencing_token,
  revision = excluded.revision,
  fetched = excluded.fetched,
  redelivered = excluded.redelivered,
  accepted = excluded.accepted,
  deduplicated = excluded.deduplicated,
  dead_lettered = excluded.dead_lettered,
  rejected = excluded.rejected,
  spooled = excluded.spooled,
  replayed = excluded.replayed,
  in_flight = excluded.in_flight,
  backlog = excluded.backlog,
  last_accepted_at_ms = excluded.last_accepted_at_ms,
  last_error = excluded.last_error,
  due_at_ms = excluded.due_at_ms,
  free_at_us = excluded.free_at_us,
  throttled_at_ms = excluded.throttled_at_ms;

-- name: load_accepted_places
-- Rows by key, for a batch to decide on.
SELECT subscription, place, run_id, number, accepted_at_ms
FROM tape_accepted_places
WHERE (subscription, place) IN (
  SELECT value ->> 0, value ->> 1 FROM json_each(?));

-- name: save_accepted_places
-- Write one row, new or changed.
INSERT INTO tape_accepted_places (subscription, place, run_id, number, accepted_at_ms)
VALUES (?, ?, ?, ?, ?)
ON CONFLICT (subscription, place) DO UPDATE SET
  run_id = excluded.run_id,
  number = excluded.number,
  accepted_at_ms = excluded.accepted_at_ms;

-- name: load_passed_positions
-- Rows by key, for a batch to decide on.
SELECT subscription, origin, reader, position, reported_at_ms
FROM tape_passed_positions
WHERE (subscription, origin) IN (
  SELECT value ->> 0, value ->> 1 FROM json_each(?));

-- name: save_passed_positions
-- Write one row, new or changed.
INSERT INTO tape_passed_positions (subscription, origin, reader, position, reported_at_ms)
VALUES (?, ?, ?, ?, ?)
ON CONFLICT (subscription, origin) DO UPDATE SET
  reader = excluded.reader,
  position = excluded.position,
  reported_at_ms = excluded.reported_at_ms;

-- name: load_seen_keys
-- Rows by key, for a batch to decide on.
SELECT subscription, rule, key, run_id, place, seen_at_ms, until_ms
FROM tape_seen_keys
WHERE (subscription, rule, key) IN (
  SELECT value ->> 0, value ->> 1, value ->> 2 FROM json_each(?));

-- name: save_seen_keys
-- Write one row, new or changed.
INSERT INTO tape_seen_keys (subscription, rule, key, run_id, place, seen_at_ms, until_ms)
VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (subscription, rule, key) DO UPDATE SET
  run_id = excluded.run_id,
  place = excluded.place,
  seen_at_ms = excluded.seen_at_ms,
  until_ms = excluded.until_ms;

-- name: load_subscription_dead_letters
-- Rows by key, for a batch to decide on.
SELECT
  subscription, letter_id, place, message_id, reason, detail, attempts, at_ms, source, origin,
  position, key, timestamp_ms, source_subject, headers_json, body
FROM tape_subscription_dead_letters
WHERE (subscription, letter_id) IN (
  SELECT value ->> 0, value ->> 1 FROM json_each(?));

-- name: save_subscription_dead_letters
-- Write one row, new or changed.
INSERT INTO tape_subscription_dead_letters (
  subscription, letter_id, place, message_id, reason, detail, attempts, at_ms, source, origin,
  position, key, timestamp_ms, source_subject, headers_json, body)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (subscription, letter_id) DO UPDATE SET
  place = excluded.place,
  message_id = excluded.message_id,
  reason = excluded.reason,
  detail = excluded.detail,
  attempts = excluded.attempts,
  at_ms = excluded.at_ms,
  source = excluded.source,
  origin = excluded.origin,
  position = excluded.position,
  key = excluded.key,
  timestamp_ms = excluded.timestamp_ms,
  source_subject = excluded.source_subject,
  headers_json = excluded.headers_json,
  body = excluded.body;

-- name: delete_subscription_dead_letters
-- Remove rows by key.
DELETE FROM tape_subscription_dead_letters
WHERE (subscription, letter_id) IN (
  SELECT value ->> 0, value ->> 1 FROM json_each(?));

-- name: get_subscription
-- One subscription, its listener and its document.
SELECT
  s.name, s.path, s.state, s.revision, s.digest, s.source, s.mode, s.activation, s.cadence,
  s.gateway_path, s.target, s.listener_pool, s.created_at_ms, s.changed_at_ms,
  l.name, l.lease_owner, l.lease_expires_at_ms, l.fencing_token, l.revision, l.fetched,
  l.redelivered, l.accepted, l.deduplicated, l.dead_lettered, l.rejected, l.spooled, l.replayed,
  l.in_flight, l.backlog, l.last_accepted_at_ms, l.last_error, l.due_at_ms, l.free_at_us,
  l.throttled_at_ms,
  r.document_json,
  CASE WHEN l.dead_lettered = 0 THEN 0 ELSE (
    SELECT count(*) FROM (
      SELECT 1 FROM tape_subscription_dead_letters d
      WHERE d.subscription = s.name
      LIMIT 10000) AS kept)
  END
FROM tape_subscriptions s
JOIN tape_listeners l ON l.name = s.name
JOIN tape_subscription_revisions r ON r.name = s.name AND r.revision = s.revision
WHERE s.name = ?;

-- name: list_subscriptions
-- All, by name.
SELECT
  s.name, s.path, s.state, s.revision, s.digest, s.source, s.mode, s.activation, s.cadence,
  s.gateway_path, s.target, s.listener_pool, s.created_at_ms, s.changed_at_ms,
  l.name, l.lease_owner, l.lease_expires_at_ms, l.fencing_token, l.revision, l.fetched,
  l.redelivered, l.accepted, l.deduplicated, l.dead_lettered, l.rejected, l.spooled, l.replayed,
  l.in_flight, l.backlog, l.last_accepted_at_ms, l.last_error, l.due_at_ms, l.free_at_us,
  l.throttled_at_ms,
  r.document_json,
  CASE WHEN l.dead_lettered = 0 THEN 0 ELSE (
    SELECT count(*) FROM (
      SELECT 1 FROM tape_subscription_dead_letters d
      WHERE d.subscription = s.name
      LIMIT 10000) AS kept)
  END
FROM tape_subscriptions s
JOIN tape_listeners l ON l.name = s.name
JOIN tape_subscription_revisions r ON r.name = s.name AND r.revision = s.revision
ORDER BY s.name;

-- name: get_subscription_revision
-- One revision of a document.
SELECT name, revision, document_json, created_at_ms
FROM tape_subscription_revisions
WHERE name = ? AND revision = ?;

-- name: list_subscription_dead_letters
-- Dead letters after one, by id; the caller stops reading when it has enough bytes.
SELECT
  subscription, letter_id, place, message_id, reason, detail, attempts, at_ms, source, origin,
  position, key, timestamp_ms, source_subject, headers_json, body
FROM tape_subscription_dead_letters
WHERE subscription = ? AND letter_id > ?
ORDER BY letter_id
LIMIT ?;

-- name: get_subscription_dead_letter
-- One dead letter.
SELECT
  subscription, letter_id, place, message_id, reason, detail, attempts, at_ms, source, origin,
  position, key, timestamp_ms, source_subject, headers_json, body
FROM tape_subscription_dead_letters
WHERE subscription = ? AND letter_id = ?;

-- name: has_passed_positions
-- Whether a source has told how far it has come.
SELECT EXISTS (SELECT 1 FROM tape_passed_positions WHERE subscription = ?);

-- name: prune_passed_places
-- Remove some places up to which a reader has come with their origins, from before a moment.
DELETE FROM tape_accepted_places
WHERE subscription = ?1 AND place IN (
  SELECT a.place
  FROM tape_accepted_places a INDEXED BY tape_accepted_places_age
  JOIN tape_passed_positions p
    ON p.subscription = a.subscription
    AND p.origin = substr(a.place, 1, length(a.place) - length(a.number) - 1)
    AND p.reader = ?3
  WHERE a.subscription = ?1 AND a.accepted_at_ms <= ?2
    AND a.number >= 0 AND a.number <= p.position AND a.place = p.origin || '/' || a.number
  ORDER BY a.accepted_at_ms
  LIMIT ?4);

-- name: prune_old_places
-- Remove some places from before a moment whose source says no more how far it has come with them.
DELETE FROM tape_accepted_places
WHERE subscription = ?1 AND place IN (
  SELECT a.place
  FROM tape_accepted_places a INDEXED BY tape_accepted_places_age
  WHERE a.subscription = ?1 AND a.accepted_at_ms <= ?2
    AND (?3 = '' OR (a.place >= ?3 AND a.place < ?4))
    AND NOT EXISTS (
      SELECT 1 FROM tape_passed_positions p
      WHERE p.subscription = a.subscription
        AND p.origin = substr(a.place, 1, length(a.place) - length(a.number) - 1)
        AND a.number >= 0 AND a.place = p.origin || '/' || a.number AND p.reported_at_ms > ?2)
  ORDER BY a.accepted_at_ms
  LIMIT ?5);

-- name: prune_passed_positions
-- Remove what was last reported before a moment.
DELETE FROM tape_passed_positions
WHERE subscription = ?1 AND reported_at_ms <= ?2 AND origin IN (
  SELECT origin FROM tape_passed_positions
  WHERE subscription = ?1 AND reported_at_ms <= ?2
  LIMIT ?3);

-- name: prune_keys
-- Remove some keys whose window has passed.
DELETE FROM tape_seen_keys
WHERE (subscription, rule, key) IN (
  SELECT subscription, rule, key FROM tape_seen_keys WHERE until_ms <= ? ORDER BY until_ms LIMIT ?);

-- name: list_deleted_subscriptions
-- Those that were deleted, and of which something is left.
SELECT name FROM tape_listeners
WHERE name NOT IN (SELECT name FROM tape_subscriptions)
ORDER BY name;

-- name: purge_places
-- Remove some places of a subscription that is not there.
DELETE FROM tape_accepted_places
WHERE subscription = ?1 AND NOT EXISTS (SELECT 1 FROM tape_subscriptions WHERE name = ?1)
  AND place IN (SELECT place FROM tape_accepted_places WHERE subscription = ?1 LIMIT ?2);

-- name: purge_keys
-- Remove some keys of a subscription that is not there.
DELETE FROM tape_seen_keys
WHERE subscription = ?1 AND NOT EXISTS (SELECT 1 FROM tape_subscriptions WHERE name = ?1)
  AND (rule, key) IN (
    SELECT rule, key FROM tape_seen_keys WHERE subscription = ?1 LIMIT ?2);

-- name: purge_positions
-- Remove some reported positions of a subscription that is not there.
DELETE FROM tape_passed_positions
WHERE subscription = ?1 AND NOT EXISTS (SELECT 1 FROM tape_subscriptions WHERE name = ?1)
  AND origin IN (SELECT origin FROM tape_passed_positions WHERE subscription = ?1 LIMIT ?2);

-- name: purge_letters
-- Remove some dead letters of a subscription that is not there.
DELETE FROM tape_subscription_dead_letters
WHERE subscription = ?1 AND NOT EXISTS (SELECT 1 FROM tape_subscriptions WHERE name = ?1)
  AND letter_id IN (
    SELECT letter_id FROM tape_subscription_dead_letters WHERE subscription = ?1 LIMIT ?2);

-- name: purge_listener
-- Remove the listener of a subscription that is not there, once nothing else is left of it.
DELETE FROM tape_listeners
WHERE name = ?1
  AND NOT EXISTS (SELECT 1 FROM tape_subscriptions WHERE name = ?1)
  AND NOT EXISTS (SELECT 1 FROM tape_accepted_places WHERE subscription = ?1)
  AND NOT EXISTS (SELECT 1 FROM tape_seen_keys WHERE subscription = ?1)
  AND NOT EXISTS (SELECT 1 FROM tape_passed_positions WHERE subscription = ?1)
  AND NOT EXISTS (SELECT 1 FROM tape_subscription_dead_letters WHERE subscription = ?1);
