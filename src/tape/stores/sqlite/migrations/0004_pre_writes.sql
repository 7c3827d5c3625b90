-- Writes in bulk: what executors have staged, which of it is an epoch, how far that is recorded.

CREATE TABLE tape_writes (
  write_id       TEXT PRIMARY KEY,
  epoch          INTEGER NOT NULL,
  origin         TEXT NOT NULL,
  chunks         INTEGER NOT NULL,
  recorded       INTEGER NOT NULL,
  rows           INTEGER NOT NULL,
  duplicates     INTEGER NOT NULL,
  updated_at_ms  INTEGER NOT NULL
) WITHOUT ROWID;
-- statement
CREATE TABLE tape_write_lists (
  write_id    TEXT NOT NULL,
  epoch       INTEGER NOT NULL,
  parts_json  TEXT NOT NULL,
  PRIMARY KEY (write_id, epoch)
);
-- statement
CREATE TABLE tape_write_chunks (
  write_id      TEXT NOT NULL,
  epoch         INTEGER NOT NULL,
  part          TEXT NOT NULL,
  number        INTEGER NOT NULL,
  rows          INTEGER NOT NULL,
  staged_at_ms  INTEGER NOT NULL,
  body          BLOB NOT NULL,
  PRIMARY KEY (write_id, epoch, part, number)
);
