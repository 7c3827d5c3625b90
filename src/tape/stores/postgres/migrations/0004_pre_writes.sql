-- Writes in bulk: what executors have staged, which of it is an epoch, how far that is recorded.

CREATE TABLE tape_writes (
  write_id       TEXT COLLATE "C" PRIMARY KEY,
  epoch          BIGINT NOT NULL,
  origin         TEXT NOT NULL,
  chunks         INTEGER NOT NULL,
  recorded       INTEGER NOT NULL,
  rows           BIGINT NOT NULL,
  duplicates     BIGINT NOT NULL,
  updated_at_ms  BIGINT NOT NULL
);

CREATE TABLE tape_write_lists (
  write_id    TEXT COLLATE "C" NOT NULL,
  epoch       BIGINT NOT NULL,
  parts_json  TEXT NOT NULL,
  PRIMARY KEY (write_id, epoch)
);

CREATE TABLE tape_write_chunks (
  write_id      TEXT COLLATE "C" NOT NULL,
  epoch         BIGINT NOT NULL,
  part          TEXT COLLATE "C" NOT NULL,
  number        INTEGER NOT NULL,
  rows          INTEGER NOT NULL,
  staged_at_ms  BIGINT NOT NULL,
  body          BYTEA NOT NULL,
  PRIMARY KEY (write_id, epoch, part, number)
);
-- Bodies come compressed.
ALTER TABLE tape_write_chunks ALTER COLUMN body SET STORAGE EXTERNAL;
