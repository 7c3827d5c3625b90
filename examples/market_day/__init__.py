"""A day on a market, from the journal to pictures."""
