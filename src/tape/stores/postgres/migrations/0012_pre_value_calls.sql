-- Values: the call that made a version, so that the same call sent again is known for what it is.

ALTER TABLE tape_values ADD COLUMN request_id TEXT NOT NULL DEFAULT '';
