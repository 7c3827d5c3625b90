"""What tests of Tape, and of programs that use it, are made with."""

from tape.testing.without_run import effects

__all__ = ["effects"]
