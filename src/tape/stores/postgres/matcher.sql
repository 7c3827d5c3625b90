-- The matcher's lease and its steps.

-- name: acquire_matcher
-- Take the lease if it is free, has run out or is the owner's own; a new holder, a new token.
UPDATE tape_matcher SET
  owner = $1,
  fencing_token = fencing_token + CASE WHEN owner = $1 THEN 0 ELSE 1 END,
  expires_at_ms = tape_now_us() / 1000 + $2
WHERE name = 'matcher' AND (owner = $1 OR expires_at_ms <= tape_now_us() / 1000)
RETURNING owner, fencing_token, position;

-- name: release_matcher
-- Let another begin at once.
UPDATE tape_matcher SET expires_at_ms = 0, owner = ''
WHERE name = 'matcher' AND fencing_token = $1;

-- name: make_step
-- Queue tasks and advance cursors, if the token, the position and the book are as the step says.
SELECT tape_make_step(
  $1, $2, $3, $4, $5, $6::text[], $7::integer[], $8::bigint[], $9::integer[], $10::bigint[],
  $11::bigint[], $12::bigint[], $13::text[], $14::bigint[], $15::text[], $16::integer[],
  $17::bigint[], $18::bigint[], $19::text[], $20::bigint[]);

-- name: put_off_reactions
-- Have reactions follow no longer, but catch up from where their cursors are.
UPDATE tape_reaction_cursors SET following = 0 WHERE reaction_id = ANY ($1::text[]);

-- name: queue_tasks
-- Queue tasks that were decided elsewhere and move the cursors that these pass, or nothing.
SELECT result, made_reaction, made_count FROM tape_queue_tasks(
  $1, $2::text[], $3::integer[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[],
  $8::bigint[], $9::text[], $10::bigint[], $11::text[], $12::integer[], $13::bigint[],
  $14::bigint[], $15::text[], $16::bigint[]);
