"""The name of `tape.settings` in programs that were written before it."""

from tape.settings import *  # noqa: F403 - all of it, under its former name
