-- Publishing by SQL alone: what publish_within does, for programs in any language and for triggers.
--
-- bus.publish runs with the rights of its owner: a role that may call it writes whole, checked rows
-- and cannot touch what the relay notes in them, which INSERT on the table would allow. So it is
-- not everybody's to call, and its search path is fixed. Everything that promotion would refuse is
-- refused here, by the limits that Tape has unless it is configured otherwise.

-- A ULID: ten characters of milliseconds, two of microseconds, so that the ids of one session go up,
-- and fourteen of randomness (the bytes of a version 4 UUID but for its two fixed ones).
CREATE FUNCTION bus.new_event_id() RETURNS TEXT
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  alphabet CONSTANT TEXT := '0123456789ABCDEFGHJKMNPQRSTVWXYZ';
  now_us CONSTANT BIGINT := floor(extract(epoch FROM clock_timestamp()) * 1000000);
  drawn CONSTANT BYTEA := uuid_send(gen_random_uuid());
  stamp CONSTANT BIGINT := ((now_us / 1000) << 10) + now_us % 1000;
  made TEXT := '';
BEGIN
  FOR bits IN REVERSE 55..0 BY 5 LOOP
    made := made || substr(alphabet, (((stamp >> bits) & 31) + 1)::int, 1);
  END LOOP;
  FOR place IN 0..15 LOOP
    IF place NOT IN (6, 8) THEN
      made := made || substr(alphabet, (get_byte(drawn, place) & 31) + 1, 1);
    END IF;
  END LOOP;
  RETURN made;
END $$;
-- statement
-- How many characters a name has in a subject of the journal, where most others are percent-encoded.
CREATE FUNCTION bus.segment_length(name TEXT) RETURNS INTEGER
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
  SELECT CASE name WHEN '' THEN 1 WHEN '_' THEN 3 ELSE
    3 * octet_length(name)
    - 2 * length(regexp_replace(name, '[^A-Za-z0-9._~-]' COLLATE "C", '', 'g')) END
$$;
-- statement
-- Refuse a payload that the journal would not take.
CREATE FUNCTION bus.check_payload(payload TEXT) RETURNS VOID
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  most CONSTANT INTEGER := 1048576;
  deepest CONSTANT INTEGER := 64;
BEGIN
  IF octet_length(payload) > most THEN
    RAISE EXCEPTION 'payload: % bytes, the limit is %', octet_length(payload), most
      USING ERRCODE = 'invalid_parameter_value';
  END IF;
  -- A text is no deeper than it has brackets; few have so many.
  IF octet_length(payload) - octet_length(replace(replace(payload, '[', ''), '{', '')) > deepest
    AND jsonb_path_exists(
      payload::jsonb, 'strict $.**{64} ? (@.type() == "object" || @.type() == "array")')
  THEN
    RAISE EXCEPTION 'payload: nested deeper than % levels', deepest
      USING ERRCODE = 'invalid_parameter_value';
  END IF;
  IF payload ~ '\\u[dD][89a-fA-F]' THEN
    PERFORM payload::jsonb; -- half of a pair is no character, says the type
  END IF;
  -- Only a number like these can be beyond what a double holds.
  IF payload ~ '[0-9]{150}[0-9]{150}|[eE][+]?[0-9]{3}' AND EXISTS (
    SELECT FROM jsonb_path_query(payload::jsonb, 'strict $.** ? (@.type() == "number")') AS n
    WHERE abs(n::numeric) > 1.7976931348623157e308::numeric)
  THEN
    RAISE EXCEPTION 'payload: a number is larger than any that JSON readers take'
      USING ERRCODE = 'invalid_parameter_value';
  END IF;
END $$;
-- statement
-- Add an event to the transaction that it is called in; the event's id.
CREATE FUNCTION bus.publish(
  subject TEXT,
  payload JSON DEFAULT 'null',
  entity_type TEXT DEFAULT '',
  entity_id TEXT DEFAULT '',
  idempotency_key TEXT DEFAULT '',
  caused_by TEXT DEFAULT '',
  source TEXT DEFAULT '',
  occurred_at_ms BIGINT DEFAULT 0,
  schema_version INTEGER DEFAULT NULL,
  trace_id TEXT DEFAULT '',
  span_id TEXT DEFAULT '',
  parent_span_id TEXT DEFAULT ''
) RETURNS TEXT
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
  bad CONSTANT TEXT := 'invalid_parameter_value';
  body CONSTANT TEXT := coalesce(payload::text, 'null');
  names CONSTANT TEXT[] := ARRAY['entity_type', 'entity_id', 'idempotency_key', 'caused_by', 'source'];
  texts CONSTANT TEXT[] := ARRAY[coalesce(entity_type, ''), coalesce(entity_id, ''),
    coalesce(idempotency_key, ''), coalesce(caused_by, ''), coalesce(source, '')];
  traces CONSTANT TEXT[] := ARRAY[
    coalesce(trace_id, ''), coalesce(span_id, ''), coalesce(parent_span_id, '')];
  happened_ms CONSTANT BIGINT := coalesce(occurred_at_ms, 0);
  told NUMERIC;
  version INTEGER := schema_version;
  event_id TEXT;
BEGIN
  IF coalesce(subject, '') = '' THEN
    RAISE EXCEPTION 'subject: must not be empty' USING ERRCODE = bad;
  ELSIF length(subject) > 255 THEN
    RAISE EXCEPTION 'subject: % characters, the limit is 255', length(subject) USING ERRCODE = bad;
  ELSIF subject !~ '^[a-z0-9_-]+([.][a-z0-9_-]+)*$' COLLATE "C" THEN
    RAISE EXCEPTION 'subject: % is not one', quote_literal(subject) USING ERRCODE = bad,
      HINT = 'A subject is tokens of lower-case letters, digits, - and _ with dots between.';
  ELSIF subject LIKE 'workflow.%' THEN
    RAISE EXCEPTION 'subject: those that begin with workflow. are Tape''s own; choose another'
      USING ERRCODE = bad;
  END IF;
  FOR n IN 1..cardinality(names) LOOP
    IF octet_length(texts[n]) > 512 THEN
      RAISE EXCEPTION '%: % bytes, the limit is 512', names[n], octet_length(texts[n])
        USING ERRCODE = bad;
    END IF;
  END LOOP;
  IF starts_with(texts[3], 'bus.outbox/') THEN
    RAISE EXCEPTION 'idempotency_key: bus.outbox/ is how keys of the outbox begin on the journal'
      USING ERRCODE = bad, HINT = 'Begin this one otherwise.';
  ELSIF length('/tape/event/recorded/') + length(subject) + 2 + bus.segment_length(texts[1])
    + bus.segment_length(texts[2]) > 2048
  THEN
    RAISE EXCEPTION 'entity_id: with the other names it makes a subject of more than 2048 bytes'
      USING ERRCODE = bad;
  ELSIF happened_ms < 0 THEN
    RAISE EXCEPTION 'occurred_at_ms: must not be negative' USING ERRCODE = bad;
  ELSIF traces[1] !~ '^([0-9a-f]{32})?$' OR traces[2] !~ '^([0-9a-f]{16})?$'
    OR traces[3] !~ '^([0-9a-f]{16})?$'
  THEN
    RAISE EXCEPTION 'trace_id, span_id, parent_span_id: must be 32, 16 and 16 lower-case hexadecimal digits'
      USING ERRCODE = bad;
  END IF;
  PERFORM bus.check_payload(body);
  IF json_typeof(body::json) = 'object' AND json_typeof(body::json -> 'schema_version') = 'number' THEN
    told := body::json ->> 'schema_version';
    version := coalesce(version, CASE WHEN told % 1 = 0 AND told BETWEEN 1 AND 32767 THEN told END);
  END IF;
  version := coalesce(version, 1);
  IF version NOT BETWEEN 1 AND 32767 THEN
    RAISE EXCEPTION 'schema_version: % is not in 1..32767', version USING ERRCODE = bad;
  ELSIF told <> version THEN
    RAISE EXCEPTION 'schema_version: the payload says %, the event %', told, version
      USING ERRCODE = bad, HINT = 'Leave it out: it is that of the payload.';
  END IF;
  event_id := bus.new_event_id();
  INSERT INTO bus.outbox (
    event_id, subject, payload_json, schema_version, entity_type, entity_id, idempotency_key,
    caused_by, source, occurred_at_ms, trace_id, span_id, parent_span_id)
  VALUES (
    event_id, subject, body, version, texts[1], texts[2], nullif(texts[3], ''), texts[4],
    texts[5], happened_ms, traces[1], traces[2], traces[3]);
  PERFORM pg_notify('bus_outbox_appended', '');
  RETURN event_id;
END $$;
-- statement
REVOKE EXECUTE ON FUNCTION
  bus.new_event_id(), bus.segment_length(TEXT), bus.check_payload(TEXT),
  bus.publish(TEXT, JSON, TEXT, TEXT, TEXT, TEXT, TEXT, BIGINT, INTEGER, TEXT, TEXT, TEXT)
FROM PUBLIC;
