"""The reactors of runs and the journal relay, for programs."""

from tape.programs.journal_relay import *  # noqa: F403 - all of it, by its documented name
from tape.programs.journal_relay import relay_journal, run_journal_relay
from tape.programs.run_reactors import *  # noqa: F403 - all of it, by its documented name

run_outbox_relay = run_journal_relay
"""The former name: it relays the journal, and not the outbox."""
relay_outbox = relay_journal
