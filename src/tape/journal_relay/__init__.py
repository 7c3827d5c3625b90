"""The relay of the journal to sinks, from a durable cursor."""
