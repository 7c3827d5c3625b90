-- What a drainer that does not go on waits for.
--
-- A halted one is tried again at next_try_at_ms. One that has begun a run and waits for its end names
-- the run and the event, since when; this counts while that event is after last_global_seq.

ALTER TABLE tape_event_drain_state ADD COLUMN next_try_at_ms INTEGER NOT NULL DEFAULT 0;
-- statement
ALTER TABLE tape_event_drain_state ADD COLUMN waiting_on_run_id TEXT NOT NULL DEFAULT '';
-- statement
ALTER TABLE tape_event_drain_state ADD COLUMN waiting_on_event_id TEXT NOT NULL DEFAULT '';
-- statement
ALTER TABLE tape_event_drain_state ADD COLUMN waiting_on_global_seq INTEGER NOT NULL DEFAULT 0;
-- statement
ALTER TABLE tape_event_drain_state ADD COLUMN waiting_since_ms INTEGER NOT NULL DEFAULT 0;
