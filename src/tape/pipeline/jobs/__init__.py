"""The jobs, each a folder of its own: plain functions DataFrame → DataFrame, and a `Job` on top."""
