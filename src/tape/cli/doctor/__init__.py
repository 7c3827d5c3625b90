"""`tape doctor`: is everything in place, and what to do where it is not."""

from tape.cli.doctor.command import doctor

__all__ = ["doctor"]
