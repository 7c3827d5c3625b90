-- The wallet: credentials by alias, and their sealed versions.

-- name: load_credentials
-- Rows by key, for a batch to decide on.
SELECT alias, version, previous_version, created_at_ms, changed_at_ms, deleted, opened
FROM tape_credentials
WHERE alias IN (SELECT value ->> 0 FROM json_each(?));

-- name: save_credentials
-- Write one row, new or changed.
INSERT INTO tape_credentials (
  alias, version, previous_version, created_at_ms, changed_at_ms, deleted, opened)
VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (alias) DO UPDATE SET
  version = excluded.version,
  previous_version = excluded.previous_version,
  created_at_ms = excluded.created_at_ms,
  changed_at_ms = excluded.changed_at_ms,
  deleted = excluded.deleted,
  opened = excluded.opened;

-- name: load_credential_versions
-- Rows by key, for a batch to decide on.
SELECT alias, version, form, key_id, wrapped_key, nonce, ciphertext, wrapped_at_ms
FROM tape_credential_versions
WHERE (alias, version) IN (SELECT value ->> 0, value ->> 1 FROM json_each(?));

-- name: save_credential_versions
-- Write one row, new or changed.
INSERT INTO tape_credential_versions (
  alias, version, form, key_id, wrapped_key, nonce, ciphertext, wrapped_at_ms)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (alias, version) DO UPDATE SET
  form = excluded.form,
  key_id = excluded.key_id,
  wrapped_key = excluded.wrapped_key,
  nonce = excluded.nonce,
  ciphertext = excluded.ciphertext,
  wrapped_at_ms = excluded.wrapped_at_ms;

-- name: delete_credential_versions
-- Remove rows by key.
DELETE FROM tape_credential_versions
WHERE (alias, version) IN (SELECT value ->> 0, value ->> 1 FROM json_each(?));

-- name: get_credential
-- One credential, deleted or not.
SELECT alias, version, previous_version, created_at_ms, changed_at_ms, deleted, opened
FROM tape_credentials
WHERE alias = ?;

-- name: get_credential_versions
-- The versions of one alias that are good, the current one first.
SELECT alias, version, form, key_id, wrapped_key, nonce, ciphertext, wrapped_at_ms
FROM tape_credential_versions
WHERE alias = ?
ORDER BY version DESC;

-- name: list_credentials
-- What may be known of each credential that is not deleted, by alias.
SELECT
  c.alias, c.version, c.previous_version, coalesce(current.form, '') AS form,
  coalesce(current.key_id, '') AS key_id, c.created_at_ms, c.changed_at_ms, c.opened,
  coalesce(previous.key_id, '') AS previous_key_id
FROM tape_credentials AS c
LEFT JOIN tape_credential_versions AS current
  ON current.alias = c.alias AND current.version = c.version
LEFT JOIN tape_credential_versions AS previous
  ON previous.alias = c.alias AND previous.version = c.previous_version
WHERE NOT c.deleted
ORDER BY c.alias;

-- name: list_versions_under_other_keys
-- Versions after a place whose data key is not under one key-encryption key, in order.
SELECT alias, version, form, key_id, wrapped_key, nonce, ciphertext, wrapped_at_ms
FROM tape_credential_versions
WHERE key_id <> ?1 AND (alias, version) > (?2, ?3)
ORDER BY alias, version
LIMIT ?4;
