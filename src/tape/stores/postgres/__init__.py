"""Postgres: any number of servers on one journal."""
