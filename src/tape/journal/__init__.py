"""Writing to the journal in batches, and following it."""
