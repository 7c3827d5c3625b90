"""Reactions over history, or over what comes: the matcher's decisions, made on Spark."""

from tape.pipeline.jobs.backfill.matching import matches

__all__ = ["matches"]
