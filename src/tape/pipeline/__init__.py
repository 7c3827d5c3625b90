"""Bulk work on Apache Spark: the data source `tape`, and the jobs that use it."""
