-- What an operator's commands look at besides the migrations.

-- name: read_sequences
-- What numbers are drawn from, the last one given, and the highest in use.
SELECT
  'tape_journal' AS name,
  coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'tape_journal'), 0) AS given,
  coalesce((SELECT max(global_seq) FROM tape_journal), 0) AS used
UNION ALL
SELECT
  'bus_outbox',
  coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'bus_outbox'), 0),
  coalesce((SELECT max(id) FROM bus_outbox), 0);
