"""A Postgres database with Tape's schema and nothing in it, again and again.

Emptying the tables takes a tenth of the time that migrating takes. What a test may have done to the
schema itself is noticed, and then it is made anew.
"""

import psycopg

import tape
from tests.servers.postgres import PostgresServer

# What migrations put into the tables is kept aside, to be put there again.
_KEEP = """
DO $$
DECLARE
  name TEXT;
  is_filled BOOLEAN;
BEGIN
  DROP SCHEMA IF EXISTS kept CASCADE;
  CREATE SCHEMA kept;
  FOR name IN SELECT tablename FROM pg_tables WHERE schemaname = 'public' LOOP
    EXECUTE format('SELECT EXISTS (SELECT FROM public.%I)', name) INTO is_filled;
    IF is_filled THEN
      EXECUTE format('CREATE TABLE kept.%I AS TABLE public.%I', name, name);
    END IF;
  END LOOP;
END $$
"""
# Making new files for a table, as TRUNCATE does, takes longer than deleting a few rows.
_EMPTY = """
DO $$
DECLARE
  name TEXT;
  is_filled BOOLEAN;
BEGIN
  FOR name IN SELECT format('%I.%I', schemaname, tablename) FROM pg_tables
      WHERE schemaname IN ('public', 'bus') LOOP
    EXECUTE format('SELECT EXISTS (SELECT FROM %s)', name) INTO is_filled;
    IF NOT is_filled THEN
      CONTINUE;
    ELSIF pg_relation_size(name) < 65536 THEN
      EXECUTE format('DELETE FROM %s', name);
    ELSE
      EXECUTE format('TRUNCATE %s CASCADE', name);
    END IF;
  END LOOP;
  FOR name IN SELECT tablename FROM pg_tables WHERE schemaname = 'kept' LOOP
    EXECUTE format('INSERT INTO public.%I SELECT * FROM kept.%I', name, name);
  END LOOP;
  FOR name IN SELECT format('%I.%I', schemaname, sequencename) FROM pg_sequences
      WHERE schemaname IN ('public', 'bus') LOOP
    EXECUTE format('ALTER SEQUENCE %s RESTART', name);
  END LOOP;
END $$
"""
_SHAPE = """
SELECT md5(string_agg(line, E'\\n' ORDER BY line)) FROM (
  SELECT concat_ws(' ', oid, relname, relkind, relpersistence, reloptions, relacl) AS line
    FROM pg_class WHERE relnamespace IN ('public'::regnamespace, to_regnamespace('bus'))
  UNION ALL SELECT a::text FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
    WHERE c.relnamespace IN ('public'::regnamespace, to_regnamespace('bus'))
  UNION ALL SELECT d::text FROM pg_attrdef d
  UNION ALL SELECT i::text FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid
    WHERE c.relnamespace IN ('public'::regnamespace, to_regnamespace('bus'))
  UNION ALL SELECT c::text FROM pg_constraint c
    WHERE connamespace IN ('public'::regnamespace, to_regnamespace('bus'))
  UNION ALL SELECT p::text FROM pg_proc p WHERE pronamespace = 'public'::regnamespace
  UNION ALL SELECT t::text FROM pg_trigger t
  UNION ALL SELECT r::text FROM pg_rewrite r JOIN pg_class c ON c.oid = r.ev_class
    WHERE c.relnamespace IN ('public'::regnamespace, to_regnamespace('bus'))
) AS told
"""

_ALONE = """
DO $$
BEGIN
  PERFORM pg_terminate_backend(pid, 5000) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid();
  EXECUTE format('ALTER DATABASE %I RESET ALL', current_database());
END $$
"""


class MigratedDatabase:
    def __init__(self, server: PostgresServer, name: str) -> None:
        self._url = server.create_database(name)
        self._connection = psycopg.connect(self._url, autocommit=True)
        self._shape = self._made()

    def emptied(self) -> str:
        """Its URL; as after its first migration, and nobody is connected."""
        try:
            self._empty()
        except psycopg.OperationalError:  # a test has ended our session as well
            self.close()
            self._connection = psycopg.connect(self._url, autocommit=True)
            self._empty()
        return self._url

    def close(self) -> None:
        self._connection.close()

    def _empty(self) -> None:
        database = self._connection
        database.execute(_ALONE)
        if database.execute(_SHAPE).fetchone() == self._shape:
            database.execute(_EMPTY)
        else:
            database.execute("DROP SCHEMA IF EXISTS public, bus CASCADE")
            database.execute("CREATE SCHEMA public")
            self._shape = self._made()

    def _made(self) -> tuple[str] | None:
        with tape.connect(self._url) as client:
            client.info()
        self._connection.execute(_KEEP)
        return self._connection.execute(_SHAPE).fetchone()
