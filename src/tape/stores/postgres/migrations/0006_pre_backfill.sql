-- Tasks that were decided outside of the server; see ports/matching.py, `queue_tasks`.
--
-- Locks are taken in the order of 0002: the book, the matcher's row (if no cursors move, so that the
-- matcher's position and its tasks stay as they are until the end), cursors, tasks, tallies. Whoever
-- makes tasks of these reactions waits meanwhile, so what is in neither table now is nowhere. Each
-- task is looked up by its key whatever the statistics say, in every shard that its reaction ever
-- had: an entry makes one task though its shard may be another today.
CREATE FUNCTION tape_queue_tasks(
  p_version BIGINT,
  c_reaction TEXT[], c_shard INTEGER[], c_after BIGINT[], c_last BIGINT[], c_matched BIGINT[],
  c_coalesced BIGINT[], c_errors BIGINT[], c_error TEXT[], c_error_seq BIGINT[],
  t_reaction TEXT[], t_shard INTEGER[], t_source BIGINT[], t_ts_ms BIGINT[], t_subject TEXT[],
  t_debounce_ms BIGINT[],
  OUT result TEXT, OUT made_reaction TEXT[], OUT made_count BIGINT[]
) LANGUAGE plpgsql SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
  moving CONSTANT BOOLEAN := cardinality(c_reaction) > 0;
  now_ms BIGINT;
  known INTEGER[];
  overtaken INTEGER[] := '{}';
BEGIN
  PERFORM FROM tape_reaction_book WHERE name = 'reactions' AND version = p_version FOR SHARE;
  IF NOT FOUND THEN result := 'outdated'; RETURN; END IF;
  IF NOT moving THEN
    PERFORM FROM tape_matcher WHERE name = 'matcher' FOR UPDATE;
  END IF;
  PERFORM FROM tape_reaction_cursors
  WHERE reaction_id = ANY (c_reaction) OR reaction_id = ANY (t_reaction)
  ORDER BY reaction_id, shard FOR UPDATE;
  PERFORM FROM unnest(c_reaction, c_shard, c_after) AS d (reaction_id, shard, after)
  LEFT JOIN tape_reaction_cursors c USING (reaction_id, shard)
  WHERE c.last_global_seq IS DISTINCT FROM d.after;
  IF FOUND THEN result := 'lost'; RETURN; END IF;
  result := 'made';
  now_ms := tape_now_us() / 1000;
  UPDATE tape_reaction_cursors c SET
    last_global_seq = greatest(c.last_global_seq, d.last),
    last_processed_at_ms = now_ms,
    matched = c.matched + d.matched,
    coalesced = c.coalesced + d.coalesced,
    predicate_errors = c.predicate_errors + d.errors,
    last_error = CASE WHEN d.errors > 0 THEN d.error ELSE c.last_error END,
    last_error_global_seq =
      CASE WHEN d.errors > 0 THEN d.error_seq ELSE c.last_error_global_seq END
  FROM unnest(
    c_reaction, c_shard, c_last, c_matched, c_coalesced, c_errors, c_error, c_error_seq
  ) AS d (reaction_id, shard, last, matched, coalesced, errors, error, error_seq)
  WHERE c.reaction_id = d.reaction_id AND c.shard = d.shard;
  IF cardinality(t_reaction) = 0 THEN RETURN; END IF;

  known := ARRAY(
    SELECT d.n
    FROM unnest(t_reaction, t_source) WITH ORDINALITY AS d (reaction_id, source, n)
    JOIN tape_reaction_tallies a ON a.reaction_id = d.reaction_id
    CROSS JOIN LATERAL generate_series(0, a.shards - 1) AS s (shard)
    LEFT JOIN tape_task_queue q ON q.reaction_id = d.reaction_id AND q.shard = s.shard
      AND q.source_global_seq = d.source
    LEFT JOIN tape_task_ended e ON e.reaction_id = d.reaction_id AND e.shard = s.shard
      AND e.source_global_seq = d.source
    WHERE q.status IS NOT NULL OR e.status IS NOT NULL);
  IF 0 < ANY (t_debounce_ms) THEN
    -- What waits for a later entry of the same burst is enough.
    overtaken := ARRAY(
      SELECT DISTINCT d.n
      FROM unnest(t_reaction, t_source, t_ts_ms, t_subject, t_debounce_ms) WITH ORDINALITY
        AS d (reaction_id, source, ts_ms, subject, debounce_ms, n)
      JOIN tape_task_queue q ON q.reaction_id = d.reaction_id AND q.debounce_key = d.subject
        AND q.debounce_key <> ''
      WHERE d.debounce_ms > 0 AND q.status = 1 AND q.source_global_seq > d.source
        AND q.debounce_until_ms < d.ts_ms + 2 * d.debounce_ms AND d.n <> ALL (known));
    IF moving THEN
      UPDATE tape_reaction_cursors c SET coalesced = c.coalesced + g.n
      FROM (
        SELECT t_reaction[o.n] AS reaction_id, t_shard[o.n] AS shard, count(*) AS n
        FROM unnest(overtaken) AS o (n) GROUP BY 1, 2
      ) g
      WHERE c.reaction_id = g.reaction_id AND c.shard = g.shard;
    END IF;
  END IF;
  SELECT
    array_agg(d.reaction_id), array_agg(d.shard), array_agg(d.source), array_agg(d.ts_ms),
    array_agg(d.subject), array_agg(d.debounce_ms)
  INTO t_reaction, t_shard, t_source, t_ts_ms, t_subject, t_debounce_ms
  FROM (
    SELECT DISTINCT ON (u.reaction_id, u.source) u.*
    FROM unnest(t_reaction, t_shard, t_source, t_ts_ms, t_subject, t_debounce_ms) WITH ORDINALITY
      AS u (reaction_id, shard, source, ts_ms, subject, debounce_ms, n)
    WHERE u.n <> ALL (known || overtaken)
    ORDER BY u.reaction_id, u.source
  ) d;
  IF t_reaction IS NULL THEN RETURN; END IF;

  IF 0 < ANY (t_debounce_ms) THEN
    WITH gone AS (
      DELETE FROM tape_task_queue q
      USING unnest(t_reaction, t_shard, t_source, t_ts_ms, t_subject, t_debounce_ms)
        AS d (reaction_id, shard, source, ts_ms, subject, debounce_ms)
      WHERE d.debounce_ms > 0 AND q.reaction_id = d.reaction_id AND q.debounce_key = d.subject
        AND q.debounce_key <> '' AND q.status = 1 AND q.source_global_seq < d.source
        AND d.ts_ms < q.debounce_until_ms
      RETURNING d.reaction_id, d.shard
    ), counted AS (
      SELECT reaction_id, shard, count(*) AS n FROM gone GROUP BY reaction_id, shard
    ), noted AS (
      UPDATE tape_reaction_cursors c SET coalesced = c.coalesced + g.n
      FROM counted g WHERE c.reaction_id = g.reaction_id AND c.shard = g.shard
    )
    UPDATE tape_reaction_tallies t SET queued = t.queued - g.n
    FROM (SELECT reaction_id, sum(n) AS n FROM counted GROUP BY 1 ORDER BY 1) g
    WHERE t.reaction_id = g.reaction_id;
  END IF;
  INSERT INTO tape_task_queue (
    reaction_id, shard, source_global_seq, status, next_attempt_at_ms, debounce_key,
    debounce_until_ms, created_at_ms)
  SELECT
    d.reaction_id, d.shard, d.source, 1,
    CASE WHEN d.debounce_ms > 0 THEN now_ms + d.debounce_ms ELSE 0 END,
    CASE WHEN d.debounce_ms > 0 THEN d.subject ELSE '' END,
    CASE WHEN d.debounce_ms > 0 THEN d.ts_ms + d.debounce_ms ELSE 0 END,
    now_ms
  FROM unnest(t_reaction, t_shard, t_source, t_ts_ms, t_subject, t_debounce_ms)
    AS d (reaction_id, shard, source, ts_ms, subject, debounce_ms);
  IF NOT moving THEN
    UPDATE tape_reaction_cursors c SET matched = c.matched + g.n
    FROM (
      SELECT d.reaction_id, d.shard, count(*) AS n
      FROM unnest(t_reaction, t_shard, t_source) AS d (reaction_id, shard, source)
      JOIN tape_reaction_cursors p ON p.reaction_id = d.reaction_id AND p.shard = d.shard
      JOIN tape_matcher m ON m.name = 'matcher'
      WHERE d.source <= CASE WHEN p.following = 1 THEN greatest(p.last_global_seq, m.position)
        ELSE p.last_global_seq END
      GROUP BY 1, 2
    ) g
    WHERE c.reaction_id = g.reaction_id AND c.shard = g.shard;
  END IF;
  SELECT array_agg(g.reaction_id), array_agg(g.n) INTO made_reaction, made_count
  FROM (SELECT r AS reaction_id, count(*) AS n FROM unnest(t_reaction) AS r GROUP BY 1 ORDER BY 1) g;
  UPDATE tape_reaction_tallies t SET queued = t.queued + g.n
  FROM (SELECT * FROM unnest(made_reaction, made_count) AS u (reaction_id, n) ORDER BY 1) g
  WHERE t.reaction_id = g.reaction_id;
  PERFORM pg_notify('tape_tasks_' || 'tape_journal'::regclass::oid, '');
END $$;
