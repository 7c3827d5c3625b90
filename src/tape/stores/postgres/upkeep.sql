-- What an operator's commands look at besides the migrations.

-- name: read_sequences
-- What numbers are drawn from, the last one given, and the highest in use.
SELECT
  'tape_global_seq' AS name,
  (SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM tape_global_seq) AS given,
  coalesce((SELECT max(global_seq) FROM tape_journal), 0) AS used
UNION ALL
SELECT
  'bus.outbox_id_seq',
  (SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM bus.outbox_id_seq),
  coalesce((SELECT max(id) FROM bus.outbox), 0);
