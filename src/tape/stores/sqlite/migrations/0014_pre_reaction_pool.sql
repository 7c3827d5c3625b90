-- The pool of the runs that an agent reaction begins; empty is the default one.
ALTER TABLE tape_reactions ADD COLUMN pool TEXT NOT NULL DEFAULT '';
