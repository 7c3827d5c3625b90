-- Writes for runs whose rows this process remembers.

-- name: extend_runs
-- A whole turn in one round trip, refused with TG001 if a run is not as it was remembered.
SELECT tape_extend($1, $2, $3, $4, $5, $6, $7, $8);
