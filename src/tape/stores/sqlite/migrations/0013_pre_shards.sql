-- Another number of shards makes no second task. Entries up to `resharded_at` may have made tasks
-- under shards of another number; for those a step looks in every shard that a reaction ever had.
-- For all later ones the shard is certain.
ALTER TABLE tape_reaction_book ADD COLUMN resharded_at INTEGER NOT NULL DEFAULT 0;
-- statement
-- Which reactions had other shards before is not known.
UPDATE tape_reaction_book SET resharded_at = coalesce((SELECT max(global_seq) FROM tape_journal), 0)
WHERE EXISTS (SELECT 1 FROM tape_reaction_tallies WHERE shards > 1);
