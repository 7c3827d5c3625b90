-- How far the journal has been pruned. Entries up to pruned_through were removed but for a few that
-- runs or tasks still need, so no reader may take what is left there for the whole.
--
-- It moves in the transaction that removes entries: a reader that finds it at or below where it
-- begins, in the same snapshot, has seen all there ever was from there on.

CREATE TABLE tape_retention (
  name            TEXT PRIMARY KEY,
  pruned_through  INTEGER NOT NULL
) WITHOUT ROWID;
-- statement
INSERT INTO tape_retention (name, pruned_through) VALUES ('journal', 0);
