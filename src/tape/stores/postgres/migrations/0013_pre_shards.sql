-- Another number of shards makes no second task. Entries up to `resharded_at` may have made tasks
-- under shards of another number; for those a step looks in every shard that a reaction ever had.
-- For all later ones the shard is certain.
ALTER TABLE tape_reaction_book ADD COLUMN resharded_at BIGINT NOT NULL DEFAULT 0;
-- statement
-- Which reactions had other shards before is not known.
UPDATE tape_reaction_book SET resharded_at = coalesce((SELECT max(global_seq) FROM tape_journal), 0)
WHERE EXISTS (SELECT FROM tape_reaction_tallies WHERE shards > 1);
-- statement
-- `tape_claim` of 0007, with one difference: who asks for a shard is given the tasks of shards that are
-- gone, too, if their number leaves the same remainder.
CREATE OR REPLACE FUNCTION tape_claim(
  p_owner TEXT, p_lease_ms BIGINT, p_reaction TEXT[], p_shard INTEGER[], p_most INTEGER[],
  p_total INTEGER, p_after JSONB
) RETURNS TABLE (
  waited BOOLEAN,
  t_reaction_id TEXT, t_shard INTEGER, t_source_global_seq BIGINT, t_status SMALLINT,
  t_attempts INTEGER, t_next_attempt_at_ms BIGINT, t_lease_owner TEXT,
  t_lease_expires_at_ms BIGINT, t_claimed_at_ms BIGINT, t_last_error TEXT, t_created_at_ms BIGINT,
  t_completed_at_ms BIGINT,
  e_global_seq BIGINT, e_run_id TEXT, e_seq BIGINT, e_kind TEXT, e_subject TEXT,
  e_payload_json TEXT, e_schema_version SMALLINT, e_trace_id TEXT, e_span_id TEXT,
  e_parent_span_id TEXT, e_ts_ms BIGINT, e_event_id TEXT, e_event_type TEXT, e_entity_type TEXT,
  e_entity_id TEXT, e_caused_by TEXT, e_source TEXT, e_occurred_at_ms BIGINT,
  e_idempotency_key TEXT
) LANGUAGE plpgsql AS $$
DECLARE
  wants CONSTANT INTEGER := cardinality(p_reaction);
  todo INTEGER[];
  at INTEGER := 1;
  i INTEGER;
  first INTEGER;
  reaction RECORD;
  tally RECORD;
  shards INTEGER[];
  one_shard INTEGER;
  any_due BOOLEAN;
  places TID[];
  sources BIGINT[];
  total BIGINT := 0;
  holds BOOLEAN := FALSE;
  room BIGINT;
  taken BIGINT;
  rows BIGINT;
  now_us BIGINT;
  now_ms BIGINT;
  pause_us DOUBLE PRECISION;
  base_us DOUBLE PRECISION;
BEGIN
  first := floor(random() * wants);
  todo := ARRAY(SELECT (n + first) % wants + 1 FROM generate_series(0, wants - 1) AS n);
  WHILE at <= cardinality(todo) AND total < p_total AND (at <= wants OR NOT holds) LOOP
    i := todo[at];
    at := at + 1;
    SELECT
      r.reaction_id, r.max_concurrency, r.rate_limit_per_s, r.num_shards, t.shards, t.in_flight,
      t.next_free_us
    INTO reaction
    FROM tape_reactions r JOIN tape_reaction_tallies t USING (reaction_id)
    WHERE r.reaction_id = p_reaction[i] AND r.deleted = 0;
    CONTINUE WHEN NOT FOUND OR reaction.in_flight >= reaction.max_concurrency
      OR (reaction.rate_limit_per_s > 0 AND reaction.next_free_us > tape_now_us());
    IF p_shard[i] >= reaction.num_shards OR (p_shard[i] >= 0 AND reaction.shards <= reaction.num_shards)
    THEN
      shards := ARRAY[p_shard[i]];
    ELSIF p_shard[i] >= 0 THEN
      shards := ARRAY(
        SELECT s FROM generate_series(p_shard[i], reaction.shards - 1, reaction.num_shards) AS s
        ORDER BY random());
    ELSIF reaction.shards = 1 THEN
      shards := ARRAY[0];
    ELSE
      first := floor(random() * reaction.shards);
      shards := ARRAY(
        SELECT (n + first) % reaction.shards FROM generate_series(0, reaction.shards - 1) AS n);
    END IF;
    now_ms := tape_now_us() / 1000;
    any_due := EXISTS (
      SELECT FROM tape_task_queue q
      WHERE q.reaction_id = reaction.reaction_id AND q.next_attempt_at_ms > 0
        AND q.next_attempt_at_ms <= now_ms AND q.status = 1
        AND (p_shard[i] < 0 OR q.shard = ANY (shards)));
    CONTINUE WHEN NOT any_due AND NOT EXISTS (
      SELECT FROM unnest(shards) AS s (shard)
      CROSS JOIN LATERAL (
        SELECT FROM tape_task_queue q
        WHERE q.reaction_id = reaction.reaction_id AND q.shard = s.shard
          AND q.source_global_seq
            > coalesce((p_after ->> (reaction.reaction_id || '/' || s.shard))::bigint, 0)
          AND q.status = 1 AND q.next_attempt_at_ms = 0
        LIMIT 1
      ) fresh
    );
    IF at <= wants + 1 THEN
      SELECT t.in_flight, t.next_free_us INTO tally
      FROM tape_reaction_tallies t
      WHERE t.reaction_id = reaction.reaction_id FOR UPDATE SKIP LOCKED;
      IF NOT FOUND THEN
        todo := todo || i;
        CONTINUE;
      END IF;
    ELSE
      SELECT t.in_flight, t.next_free_us INTO tally
      FROM tape_reaction_tallies t WHERE t.reaction_id = reaction.reaction_id FOR UPDATE;
    END IF;
    holds := TRUE;
    now_us := tape_now_us();
    now_ms := now_us / 1000;
    room := least(p_most[i], p_total - total, reaction.max_concurrency - tally.in_flight);
    IF reaction.rate_limit_per_s > 0 THEN
      -- Starts are pause_us apart; what was not used in the last tenth of a second may be caught up.
      pause_us := 1000000.0 / reaction.rate_limit_per_s;
      base_us := greatest(tally.next_free_us, now_us - 100000);
      room := least(room, floor((now_us - base_us) / pause_us)::bigint + 1);
    END IF;
    CONTINUE WHEN room <= 0;
    taken := 0;
    IF any_due THEN
      SELECT array_agg(due.place), array_agg(due.source_global_seq) INTO places, sources
      FROM (
        SELECT q.ctid AS place, q.source_global_seq FROM tape_task_queue q
        WHERE q.reaction_id = reaction.reaction_id AND q.next_attempt_at_ms > 0
          AND q.next_attempt_at_ms <= now_ms AND q.status = 1
          AND (p_shard[i] < 0 OR q.shard = ANY (shards))
        ORDER BY q.next_attempt_at_ms, q.source_global_seq
        LIMIT room
        FOR UPDATE SKIP LOCKED
      ) due;
      RETURN QUERY
      WITH given AS (
        UPDATE tape_task_queue AS u SET
          status = 2, attempts = attempts + 1, next_attempt_at_ms = 0, lease_owner = p_owner,
          lease_expires_at_ms = now_ms + p_lease_ms, claimed_at_ms = now_ms
        WHERE ctid = ANY (places)
        RETURNING u.*
      )
      SELECT
        TRUE, g.reaction_id, g.shard, g.source_global_seq, g.status, g.attempts, g.next_attempt_at_ms,
        g.lease_owner, g.lease_expires_at_ms, g.claimed_at_ms, g.last_error, g.created_at_ms,
        0::bigint,
        j.global_seq, coalesce(j.run_id, ''), coalesce(j.seq, 0), j.kind, j.subject, j.payload_json,
        j.schema_version, j.trace_id, j.span_id, j.parent_span_id, j.ts_ms, j.event_id, j.event_type,
        j.entity_type, j.entity_id, j.caused_by, j.source, j.occurred_at_ms,
        coalesce(j.idempotency_key, '')
      FROM given g LEFT JOIN tape_journal j ON j.global_seq = g.source_global_seq
      ORDER BY array_position(sources, g.source_global_seq);
      GET DIAGNOSTICS taken = ROW_COUNT;
    END IF;
    FOREACH one_shard IN ARRAY shards LOOP
      EXIT WHEN taken >= room;
      RETURN QUERY
      WITH given AS (
        UPDATE tape_task_queue AS u SET
          status = 2, attempts = attempts + 1, lease_owner = p_owner,
          lease_expires_at_ms = now_ms + p_lease_ms, claimed_at_ms = now_ms
        WHERE ctid = ANY (ARRAY(
          SELECT q.ctid FROM tape_task_queue q
          WHERE q.reaction_id = reaction.reaction_id AND q.shard = one_shard
            AND q.source_global_seq
              > coalesce((p_after ->> (reaction.reaction_id || '/' || one_shard))::bigint, 0)
            AND q.status = 1 AND q.next_attempt_at_ms = 0
          ORDER BY q.source_global_seq
          LIMIT room - taken
          FOR UPDATE SKIP LOCKED))
        RETURNING u.*
      )
      SELECT
        FALSE, g.reaction_id, g.shard, g.source_global_seq, g.status, g.attempts, g.next_attempt_at_ms,
        g.lease_owner, g.lease_expires_at_ms, g.claimed_at_ms, g.last_error, g.created_at_ms,
        0::bigint,
        j.global_seq, coalesce(j.run_id, ''), coalesce(j.seq, 0), j.kind, j.subject, j.payload_json,
        j.schema_version, j.trace_id, j.span_id, j.parent_span_id, j.ts_ms, j.event_id, j.event_type,
        j.entity_type, j.entity_id, j.caused_by, j.source, j.occurred_at_ms,
        coalesce(j.idempotency_key, '')
      FROM given g LEFT JOIN tape_journal j ON j.global_seq = g.source_global_seq;
      GET DIAGNOSTICS rows = ROW_COUNT;
      taken := taken + rows;
    END LOOP;
    CONTINUE WHEN taken = 0;
    total := total + taken;
    UPDATE tape_reaction_tallies t SET
      in_flight = t.in_flight + taken,
      next_free_us = CASE
        WHEN reaction.rate_limit_per_s > 0 THEN (base_us + taken * pause_us)::bigint
        ELSE t.next_free_us END
    WHERE t.reaction_id = reaction.reaction_id;
  END LOOP;
END $$;
-- statement
-- `tape_make_step` of 0002, with one difference: the look into other shards.
CREATE OR REPLACE FUNCTION tape_make_step(
  p_token BIGINT, p_from BIGINT, p_to BIGINT, p_ttl_ms BIGINT, p_version BIGINT,
  c_reaction TEXT[], c_shard INTEGER[], c_last BIGINT[], c_following INTEGER[], c_matched BIGINT[],
  c_coalesced BIGINT[], c_errors BIGINT[], c_error TEXT[], c_error_seq BIGINT[],
  t_reaction TEXT[], t_shard INTEGER[], t_source BIGINT[], t_ts_ms BIGINT[], t_subject TEXT[],
  t_debounce_ms BIGINT[]
) RETURNS TEXT LANGUAGE plpgsql AS $$
DECLARE
  now_ms BIGINT;
  resharded BIGINT;
BEGIN
  SELECT resharded_at INTO resharded
  FROM tape_reaction_book WHERE name = 'reactions' AND version = p_version FOR SHARE;
  IF NOT FOUND THEN RETURN 'outdated'; END IF;
  now_ms := tape_now_us() / 1000;
  UPDATE tape_matcher SET position = p_to, expires_at_ms = now_ms + p_ttl_ms
  WHERE name = 'matcher' AND fencing_token = p_token AND position = p_from;
  IF NOT FOUND THEN RETURN 'lost'; END IF;
  UPDATE tape_reaction_cursors c SET
    last_global_seq = greatest(c.last_global_seq, d.last),
    last_processed_at_ms = now_ms,
    following = greatest(c.following, d.following),
    matched = c.matched + d.matched,
    coalesced = c.coalesced + d.coalesced,
    predicate_errors = c.predicate_errors + d.errors,
    last_error = CASE WHEN d.errors > 0 THEN d.error ELSE c.last_error END,
    last_error_global_seq =
      CASE WHEN d.errors > 0 THEN d.error_seq ELSE c.last_error_global_seq END
  FROM unnest(
    c_reaction, c_shard, c_last, c_following, c_matched, c_coalesced, c_errors, c_error,
    c_error_seq
  ) AS d (reaction_id, shard, last, following, matched, coalesced, errors, error, error_seq)
  WHERE c.reaction_id = d.reaction_id AND c.shard = d.shard;
  IF cardinality(t_reaction) = 0 THEN RETURN 'made'; END IF;
  IF resharded >= ANY (t_source) THEN
    SELECT
      array_agg(d.reaction_id ORDER BY d.n), array_agg(d.shard ORDER BY d.n),
      array_agg(d.source ORDER BY d.n), array_agg(d.ts_ms ORDER BY d.n),
      array_agg(d.subject ORDER BY d.n), array_agg(d.debounce_ms ORDER BY d.n)
    INTO t_reaction, t_shard, t_source, t_ts_ms, t_subject, t_debounce_ms
    FROM unnest(t_reaction, t_shard, t_source, t_ts_ms, t_subject, t_debounce_ms) WITH ORDINALITY
      AS d (reaction_id, shard, source, ts_ms, subject, debounce_ms, n)
    JOIN tape_reaction_tallies a ON a.reaction_id = d.reaction_id
    LEFT JOIN LATERAL (
      SELECT s.shard FROM generate_series(0, a.shards - 1) AS s (shard)
      CROSS JOIN LATERAL (
        (SELECT FROM tape_task_queue q
         WHERE q.reaction_id = d.reaction_id AND q.shard = s.shard
           AND q.source_global_seq = d.source LIMIT 1)
        UNION ALL
        (SELECT FROM tape_task_ended e
         WHERE e.reaction_id = d.reaction_id AND e.shard = s.shard
           AND e.source_global_seq = d.source LIMIT 1)
      ) there
      WHERE d.source <= resharded LIMIT 1
    ) known ON TRUE
    WHERE known.shard IS NULL;
    IF t_reaction IS NULL THEN RETURN 'made'; END IF;
  END IF;
  IF 0 < ANY (t_debounce_ms) THEN
    WITH gone AS (
      DELETE FROM tape_task_queue q
      USING unnest(t_reaction, t_shard, t_source, t_ts_ms, t_subject, t_debounce_ms)
        AS d (reaction_id, shard, source, ts_ms, subject, debounce_ms)
      WHERE d.debounce_ms > 0 AND q.reaction_id = d.reaction_id AND q.debounce_key = d.subject
        AND q.debounce_key <> '' AND q.status = 1 AND d.ts_ms < q.debounce_until_ms
        -- One that is there already, queued or ended, is not made again and takes nobody's place.
        AND NOT EXISTS (
          SELECT FROM tape_task_queue k WHERE k.reaction_id = d.reaction_id
            AND k.shard = d.shard AND k.source_global_seq = d.source)
        AND NOT EXISTS (
          SELECT FROM tape_task_ended k WHERE k.reaction_id = d.reaction_id
            AND k.shard = d.shard AND k.source_global_seq = d.source)
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
  WITH new AS (
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
      AS d (reaction_id, shard, source, ts_ms, subject, debounce_ms)
    ON CONFLICT DO NOTHING
    RETURNING reaction_id
  )
  UPDATE tape_reaction_tallies t SET queued = t.queued + g.n
  FROM (SELECT reaction_id, count(*) AS n FROM new GROUP BY 1 ORDER BY 1) g
  WHERE t.reaction_id = g.reaction_id;
  -- After the insert and with a fresh look, or a task that ended just now would be made again.
  WITH gone AS (
    DELETE FROM tape_task_queue q
    USING unnest(t_reaction, t_shard, t_source) AS d (reaction_id, shard, source)
    JOIN tape_task_ended e
      ON e.reaction_id = d.reaction_id AND e.shard = d.shard AND e.source_global_seq = d.source
    WHERE q.reaction_id = d.reaction_id AND q.shard = d.shard AND q.source_global_seq = d.source
    RETURNING q.reaction_id
  )
  UPDATE tape_reaction_tallies t SET queued = t.queued - g.n
  FROM (SELECT reaction_id, count(*) AS n FROM gone GROUP BY 1 ORDER BY 1) g
  WHERE t.reaction_id = g.reaction_id;
  PERFORM pg_notify('tape_tasks_' || 'tape_journal'::regclass::oid, '');
  RETURN 'made';
END $$;
