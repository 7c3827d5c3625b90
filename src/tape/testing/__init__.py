"""For tests of programs that use Tape: effects without a run, and apps with a moved clock."""

from tape.testing.without_run import effects

__all__ = ["effects"]
