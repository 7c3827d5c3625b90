"""Sinks of the journal relay, for programs: see `tape.programs.sinks`."""

from tape.programs.sinks import *  # noqa: F403 - all of it, by its documented name
