-- The wallet's credentials: sealed values by their aliases.
--
-- tape_credentials has a row for each alias, which stays when the credential is deleted so that its
-- versions go on counting. tape_credential_versions has the versions that are good: the current one
-- and, after a rotation, the one before. ciphertext is the value under a data key, wrapped_key is
-- that key under the key-encryption key key_id, which is in no database. opened counts openings.

CREATE TABLE tape_credentials (
  alias             TEXT COLLATE "C" PRIMARY KEY,
  version           BIGINT NOT NULL,
  previous_version  BIGINT NOT NULL,
  created_at_ms     BIGINT NOT NULL,
  changed_at_ms     BIGINT NOT NULL,
  deleted           BOOLEAN NOT NULL,
  opened            BIGINT NOT NULL
) WITH (fillfactor = 50);
-- statement
CREATE TABLE tape_credential_versions (
  alias          TEXT COLLATE "C" NOT NULL,
  version        BIGINT NOT NULL,
  form           TEXT NOT NULL,
  key_id         TEXT NOT NULL,
  wrapped_key    BYTEA NOT NULL,
  nonce          BYTEA NOT NULL,
  ciphertext     BYTEA NOT NULL,
  wrapped_at_ms  BIGINT NOT NULL,
  PRIMARY KEY (alias, version)
);
