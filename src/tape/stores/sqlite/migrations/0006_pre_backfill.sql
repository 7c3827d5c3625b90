-- Tasks that were decided outside of the server; see ports/matching.py, `queue_tasks`. In Postgres
-- this is a function. Here the statements are in matcher.sql, and the number is taken all the same.
SELECT 1;
