-- The pool of the runs that an event subscription begins; empty is the default one.
ALTER TABLE tape_event_subscriptions ADD COLUMN pool TEXT NOT NULL DEFAULT '';
