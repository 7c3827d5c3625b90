"""Generated from wire/tape.proto."""
