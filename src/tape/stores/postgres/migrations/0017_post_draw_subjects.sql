-- From here on draws and failed decisions have subjects of their own. Version 0.1.0 takes a journal
-- that ends in them for one that ends before them, so it must not be left. No table changes.
SELECT 1
