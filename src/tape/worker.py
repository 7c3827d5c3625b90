"""Workers, for programs: see `tape.programs.worker`."""

from tape.programs.worker import *  # noqa: F403 - all of it, by its documented name
