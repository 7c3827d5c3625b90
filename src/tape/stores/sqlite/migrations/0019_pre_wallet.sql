-- The wallet's credentials: sealed values by their aliases.
--
-- tape_credentials has a row for each alias, which stays when the credential is deleted so that its
-- versions go on counting. tape_credential_versions has the versions that are good: the current one
-- and, after a rotation, the one before. ciphertext is the value under a data key, wrapped_key is
-- that key under the key-encryption key key_id, which is in no database. opened counts openings.

CREATE TABLE tape_credentials (
  alias             TEXT PRIMARY KEY,
  version           INTEGER NOT NULL,
  previous_version  INTEGER NOT NULL,
  created_at_ms     INTEGER NOT NULL,
  changed_at_ms     INTEGER NOT NULL,
  deleted           INTEGER NOT NULL,
  opened            INTEGER NOT NULL
) WITHOUT ROWID;
-- statement
CREATE TABLE tape_credential_versions (
  alias          TEXT NOT NULL,
  version        INTEGER NOT NULL,
  form           TEXT NOT NULL,
  key_id         TEXT NOT NULL,
  wrapped_key    BLOB NOT NULL,
  nonce          BLOB NOT NULL,
  ciphertext     BLOB NOT NULL,
  wrapped_at_ms  INTEGER NOT NULL,
  PRIMARY KEY (alias, version)
) WITHOUT ROWID;
