"""Durable runs: driving an app so that it goes on after a crash as if there had been none."""
