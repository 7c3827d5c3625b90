"""The outbox relay, for programs: see `tape.programs.outbox_relay`."""

from tape.programs.outbox_relay import *  # noqa: F403 - all of it, by its documented name
