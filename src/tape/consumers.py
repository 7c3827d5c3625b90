"""Durable consumers, for programs: see `tape.programs.consumers`."""

from tape.programs.consumers import *  # noqa: F403 - all of it, by its documented name
