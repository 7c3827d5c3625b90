-- Declared subscriptions: documents, listeners, what was accepted, and what could not be.

-- name: load_subscriptions
-- Rows by key, for a batch to decide on.
SELECT
  name, path, state, revision, digest, source, mode, activation, cadence, gateway_path, target,
  listener_pool, created_at_ms, changed_at_ms
FROM tape_subscriptions
WHERE name = ANY ($1);

-- name: save_subscriptions
-- Write rows, new or changed.
INSERT INTO tape_subscriptions (
  name, path, state, revision, digest, source, mode, activation, cadence, gateway_path, target,
  listener_pool, created_at_ms, changed_at_ms)
SELECT * FROM unnest(
  $1::text[], $2::text[], $3::text[], $4::bigint[], $5::text[], $6::text[], $7::text[],
  $8::text[], $9::text[], $10::text[], $11::text[], $12::text[], $13::bigint[], $14::bigint[])
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
WHERE name = ANY ($1);

-- name: load_subscription_revisions
-- Rows by key, for a batch to decide on.
SELECT name, revision, document_json, created_at_ms
FROM tape_subscription_revisions
JOIN unnest($1::text[], $2::bigint[]) AS wanted (name, revision)
  USING (name, revision);

-- name: save_subscription_revisions
-- Write rows, new or changed.
INSERT INTO tape_subscription_revisions (name, revision, document_json, created_at_ms)
SELECT * FROM unnest($1::text[], $2::bigint[], $3::text[], $4::bigint[])
ON CONFLICT (name, revision) DO UPDATE SET
  document_json = excluded.document_json,
  created_at_ms = excluded.created_at_ms;

-- name: load_gateway_paths
-- Rows by key, for a batch to decide on.
SELECT gateway_path, name
FROM tape_gateway_paths
WHERE gateway_path = ANY ($1);

-- name: save_gateway_paths
-- Write rows, new or changed.
INSERT INTO tape_gateway_paths (gateway_path, name)
SELECT * FROM unnest($1::text[], $2::text[])
ON CONFLICT (gateway_path) DO UPDATE SET
  name = excluded.name;

-- name: delete_gateway_paths
-- Remove rows by key.
DELETE FROM tape_gateway_paths
WHERE gateway_path = ANY ($1);

-- name: load_listeners
-- Rows by key, for a batch to decide on.
SELECT
  name, lease_owner, lease_expires_at_ms, fencing_token, revision, fetched, redelivered, accepted,
  deduplicated, dead_lettered, rejected, spooled, replayed, in_flight, backlog,
  last_accepted_at_ms, last_error, due_at_ms, free_at_us, throttled_at_ms
FROM tape_listeners
WHERE name = ANY ($1);

-- name: save_listeners
-- Write rows, new or changed.
INSERT INTO tape_listeners (
  name, lease_owner, lease_expires_at_ms, fencing_token, revision, fetched, redelivered, accepted,
  deduplicated, dead_lettered, rejected, spooled, replayed, in_flight, backlog,
  last_accepted_at_ms, last_error, due_at_ms, free_at_us, throttled_at_ms)
SELECT * FROM unnest(
  $1::text[], $2::text[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[],
  $8::bigint[], $9::bigint[], $10::bigint[], $11::bigint[], $12::bigint[], $13::bigint[],
  $14::bigint[], $15::bigint[], $16::bigint[], $17::text[], $18::bigint[], $19::bigint[],
  $20::bigint[])
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
JOIN unnest($1::text[], $2::text[]) AS wanted (subscription, place)
  USING (subscription, place);

-- name: save_accepted_places
-- Write rows, new or changed.
INSERT INTO tape_accepted_places (subscription, place, run_id, number, accepted_at_ms)
SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::bigint[])
ON CONFLICT (subscription, place) DO UPDATE SET
  run_id = excluded.run_id,
  number = excluded.number,
  accepted_at_ms = excluded.accepted_at_ms;

-- name: load_passed_positions
-- Rows by key, for a batch to decide on.
SELECT subscription, origin, reader, position, reported_at_ms
FROM tape_passed_positions
JOIN unnest($1::text[], $2::text[]) AS wanted (subscription, origin)
  USING (subscription, origin);

-- name: save_passed_positions
-- Write rows, new or changed.
INSERT INTO tape_passed_positions (subscription, origin, reader, position, reported_at_ms)
SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::bigint[])
ON CONFLICT (subscription, origin) DO UPDATE SET
  reader = excluded.reader,
  position = excluded.position,
  reported_at_ms = excluded.reported_at_ms;

-- name: load_seen_keys
-- Rows by key, for a batch to decide on.
SELECT subscription, rule, key, run_id, place, seen_at_ms, until_ms
FROM tape_seen_keys
JOIN unnest($1::text[], $2::text[], $3::text[]) AS wanted (subscription, rule, key)
  USING (subscription, rule, key);

-- name: save_seen_keys
-- Write rows, new or changed.
INSERT INTO tape_seen_keys (subscription, rule, key, run_id, place, seen_at_ms, until_ms)
SELECT * FROM unnest(
  $1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::bigint[], $7::bigint[])
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
JOIN unnest($1::text[], $2::text[]) AS wanted (subscription, letter_id)
  USING (subscription, letter_id);

-- name: save_subscription_dead_letters
-- Write rows, new or changed.
INSERT INTO tape_subscription_dead_letters (
  subscription, letter_id, place, message_id, reason, detail, attempts, at_ms, source, origin,
  position, key, timestamp_ms, source_subject, headers_json, body)
SELECT * FROM unnest(
  $1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::bigint[],
  $8::bigint[], $9::text[], $10::text[], $11::text[], $12::text[], $13::bigint[], $14::text[],
  $15::text[], $16::text[])
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
DELETE FROM tape_subscription_dead_letters d
USING unnest($1::text[], $2::text[]) AS gone (subscription, letter_id)
WHERE d.subscription = gone.subscription AND d.letter_id = gone.letter_id;

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
WHERE s.name = $1;

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
WHERE name = $1 AND revision = $2;

-- name: list_subscription_dead_letters
-- Dead letters after one, by id, up to the one that reaches the budget of characters.
SELECT
  subscription, letter_id, place, message_id, reason, detail, attempts, at_ms, source, origin,
  position, key, timestamp_ms, source_subject, headers_json, body
FROM (
  SELECT *, sum(length(headers_json) + length(body)) OVER (ORDER BY letter_id)
    - length(headers_json) - length(body) AS length_before
  FROM tape_subscription_dead_letters
  WHERE subscription = $1 AND letter_id > $2
  ORDER BY letter_id
  LIMIT $3
) page
WHERE length_before < $4
ORDER BY page.letter_id;

-- name: get_subscription_dead_letter
-- One dead letter.
SELECT
  subscription, letter_id, place, message_id, reason, detail, attempts, at_ms, source, origin,
  position, key, timestamp_ms, source_subject, headers_json, body
FROM tape_subscription_dead_letters
WHERE subscription = $1 AND letter_id = $2;

-- name: has_passed_positions
-- Whether a source has told how far it has come.
SELECT EXISTS (SELECT FROM tape_passed_positions WHERE subscription = $1);

-- name: prune_passed_places
-- Remove some places up to which a reader has come with their origins, of a certain age.
DELETE FROM tape_accepted_places
WHERE ctid = ANY (ARRAY(
  SELECT a.ctid
  FROM tape_accepted_places a
  JOIN tape_passed_positions p
    ON p.subscription = a.subscription
    AND p.origin = left(a.place, -(length(a.number::text) + 1))
    AND p.reader = $3
  WHERE a.subscription = $1 AND a.accepted_at_ms <= tape_now_us() / 1000 - $2::bigint
    AND a.number >= 0 AND a.number <= p.position AND a.place = p.origin || '/' || a.number
  ORDER BY a.accepted_at_ms
  LIMIT $4
  FOR UPDATE OF a SKIP LOCKED));

-- name: prune_old_places
-- Remove some places of a certain age whose source says no more how far it has come with them.
DELETE FROM tape_accepted_places
WHERE ctid = ANY (ARRAY(
  SELECT a.ctid
  FROM tape_accepted_places a
  WHERE a.subscription = $1 AND a.accepted_at_ms <= tape_now_us() / 1000 - $2::bigint
    AND ($3 = '' OR (a.place >= $3 AND a.place < $4))
    AND NOT EXISTS (
      SELECT FROM tape_passed_positions p
      WHERE p.subscription = a.subscription
        AND p.origin = left(a.place, -(length(a.number::text) + 1))
        AND a.number >= 0 AND a.place = p.origin || '/' || a.number
        AND p.reported_at_ms > tape_now_us() / 1000 - $2::bigint)
  ORDER BY a.accepted_at_ms
  LIMIT $5
  FOR UPDATE SKIP LOCKED));

-- name: prune_passed_positions
-- Remove what was last reported a certain time ago.
DELETE FROM tape_passed_positions
WHERE ctid = ANY (ARRAY(
  SELECT ctid FROM tape_passed_positions
  WHERE subscription = $1 AND reported_at_ms <= tape_now_us() / 1000 - $2::bigint
  LIMIT $3
  FOR UPDATE SKIP LOCKED));

-- name: prune_keys
-- Remove some keys whose window has passed.
DELETE FROM tape_seen_keys
WHERE ctid = ANY (ARRAY(
  SELECT ctid FROM tape_seen_keys
  WHERE until_ms <= tape_now_us() / 1000
  ORDER BY until_ms
  LIMIT $1
  FOR UPDATE SKIP LOCKED));

-- name: list_deleted_subscriptions
-- Those that were deleted, and of which something is left.
SELECT l.name FROM tape_listeners l
WHERE NOT EXISTS (SELECT FROM tape_subscriptions s WHERE s.name = l.name)
ORDER BY l.name;

-- name: purge_places
-- Remove some places of a subscription that is not there.
DELETE FROM tape_accepted_places
WHERE NOT EXISTS (SELECT FROM tape_subscriptions WHERE name = $1)
  AND ctid = ANY (ARRAY(
    SELECT ctid FROM tape_accepted_places WHERE subscription = $1 LIMIT $2
    FOR UPDATE SKIP LOCKED));

-- name: purge_keys
-- Remove some keys of a subscription that is not there.
DELETE FROM tape_seen_keys
WHERE NOT EXISTS (SELECT FROM tape_subscriptions WHERE name = $1)
  AND ctid = ANY (ARRAY(
    SELECT ctid FROM tape_seen_keys WHERE subscription = $1 LIMIT $2
    FOR UPDATE SKIP LOCKED));

-- name: purge_positions
-- Remove some reported positions of a subscription that is not there.
DELETE FROM tape_passed_positions
WHERE NOT EXISTS (SELECT FROM tape_subscriptions WHERE name = $1)
  AND ctid = ANY (ARRAY(
    SELECT ctid FROM tape_passed_positions WHERE subscription = $1 LIMIT $2
    FOR UPDATE SKIP LOCKED));

-- name: purge_letters
-- Remove some dead letters of a subscription that is not there.
DELETE FROM tape_subscription_dead_letters
WHERE NOT EXISTS (SELECT FROM tape_subscriptions WHERE name = $1)
  AND ctid = ANY (ARRAY(
    SELECT ctid FROM tape_subscription_dead_letters WHERE subscription = $1 LIMIT $2
    FOR UPDATE SKIP LOCKED));

-- name: purge_listener
-- Remove the listener of a subscription that is not there, once nothing else is left of it.
DELETE FROM tape_listeners
WHERE name = $1
  AND NOT EXISTS (SELECT FROM tape_subscriptions WHERE name = $1)
  AND NOT EXISTS (SELECT FROM tape_accepted_places WHERE subscription = $1)
  AND NOT EXISTS (SELECT FROM tape_seen_keys WHERE subscription = $1)
  AND NOT EXISTS (SELECT FROM tape_passed_positions WHERE subscription = $1)
  AND NOT EXISTS (SELECT FROM tape_subscription_dead_letters WHERE subscription = $1);

-- name: accept_remembered
-- A whole turn of acceptance in one round trip, refused with TG001 if it is not as remembered.
SELECT tape_accept($1, $2, $3, $4, $5, $6);
