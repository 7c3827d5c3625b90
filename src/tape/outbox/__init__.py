"""What leaves Tape: the relay of the journal to sinks."""
