-- The order of claimed tasks in Postgres is mended. Here it was right, and the number is taken all the
-- same.
SELECT 1;
