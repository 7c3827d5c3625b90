"""Aggregates over the journal: counts, latencies, and bars made of klines.

Each is a function from entries to rows, and a table that grows by what is new. What an increment
changes and how far it came are published in one step (`tables`), so a job that is killed and run
again ends with what one run would have made.
"""
