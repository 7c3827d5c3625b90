-- Publishing by SQL alone. In Postgres this is a function, bus.publish. SQLite has none of its own, so
-- a program inserts into bus_outbox; and since a column there takes a value of any type, who writes
-- bytes or a word for a number is refused at once, and not when the row is promoted.
CREATE TRIGGER bus_outbox_types AFTER INSERT ON bus_outbox
WHEN typeof(NEW.event_id) <> 'text' OR typeof(NEW.subject) <> 'text'
  OR typeof(NEW.payload_json) <> 'text' OR typeof(NEW.schema_version) <> 'integer'
  OR typeof(NEW.entity_type) <> 'text' OR typeof(NEW.entity_id) <> 'text'
  OR typeof(NEW.idempotency_key) NOT IN ('text', 'null') OR typeof(NEW.caused_by) <> 'text'
  OR typeof(NEW.source) <> 'text' OR typeof(NEW.occurred_at_ms) <> 'integer'
  OR typeof(NEW.trace_id) <> 'text' OR typeof(NEW.span_id) <> 'text'
  OR typeof(NEW.parent_span_id) <> 'text' OR typeof(NEW.created_at_ms) <> 'integer'
BEGIN
  SELECT RAISE(ABORT,
    'bus_outbox: schema_version, occurred_at_ms and created_at_ms are integers, all else is text');
END;
