-- `tape_claim` of 0002, with one difference: tasks that waited come out in the order of their time.
-- There they came as the table holds them, since an update by `ctid` reads its rows in that order.
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
      r.reaction_id, r.max_concurrency, r.rate_limit_per_s, t.shards, t.in_flight, t.next_free_us
    INTO reaction
    FROM tape_reactions r JOIN tape_reaction_tallies t USING (reaction_id)
    WHERE r.reaction_id = p_reaction[i] AND r.deleted = 0;
    CONTINUE WHEN NOT FOUND OR reaction.in_flight >= reaction.max_concurrency
      OR (reaction.rate_limit_per_s > 0 AND reaction.next_free_us > tape_now_us());
    IF p_shard[i] >= 0 THEN
      shards := ARRAY[p_shard[i]];
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
        AND (p_shard[i] < 0 OR q.shard = p_shard[i]));
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
          AND (p_shard[i] < 0 OR q.shard = p_shard[i])
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
