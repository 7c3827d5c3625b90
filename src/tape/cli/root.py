"""The command `tape` itself: finds the commands, and turns every error into one line and a code.

Exit codes: 0 it succeeded, 1 it failed, 2 the input is wrong.
"""

import os
import sys
from collections.abc import Iterator, Mapping, Sequence

import click

from tape.cli.command_tree import LazyGroup
from tape.cli.error_text import describe, exit_code, one_line, silence_stdout
from tape.cli.logs import guard_terminal
from tape.cli.output import printable
from tape.cli.target import Target, target_options
from tape.errors import StoreUnavailable, TapeError
from tape.settings import VERSION

COMMANDS = {
    "serve": "Serve a store to clients, over gRPC and HTTP.",
    "worker": "Handle tasks and drive runs.",
    "record": "Record an event, or many from a file.",
    "tail": "Show entries, the newest or as they come.",
    "show": "Show one entry, what caused it and what it caused.",
    "values": "Read, set, list and watch values.",
    "sessions": "List and show sessions: the state and events of conversations.",
    "subscribe": "Listen for one subscription, and drive its runs, in one process.",
    "subscriptions": "Manage subscriptions: they make runs of a source's messages.",
    "reactions": "List, show, register and deregister reactions.",
    "tasks": "List and show tasks: one per entry that a reaction matched.",
    "dlq": "List, show, replay and drop dead letters.",
    "drain": "Dispatch the events that a drainer has not passed.",
    "drainers": "Manage drainers: they turn events into runs, in strict order.",
    "runs": "List, show, start, signal and cancel runs of apps.",
    "replay": "Replay a run from its journal with the code of its app, offline.",
    "relay": "Send the entries of the journal to a broker, in order.",
    "outbox": "Relay and inspect events that programs wrote in their own transactions.",
    "wallet": "Manage credentials, which are sealed under a key of yours.",
    "pipeline": "Run bulk work on Spark: ingest, archive, backfill, roll up, audit.",
    "prune": "Remove entries from the journal that are archived in a lake.",
    "config": "Show the settings in effect here, or check a settings file.",
    "schema": "Check and record payload types; print the form of a subscription.",
    "migrate": "Create a store, or bring an older one up to date.",
    "doctor": "Check this installation, the store and the server.",
    "demo": "Play a guided tour: a day at a small trading desk.",
    "bench": "Run benchmarks beside their peers.",
}
VARIABLES = (
    "TAPE_BROKER_HOSTS", "TAPE_CONFIG", "TAPE_HEALTH", "TAPE_KAFKA_CONFIG", "TAPE_LEASE_MS",
    "TAPE_LEASE_OWNER", "TAPE_NATS_CREDENTIALS", "TAPE_NATS_PASSWORD", "TAPE_NATS_USER",
    "TAPE_STORE", "TAPE_TOKEN", "TAPE_TOKENS", "TAPE_URL", "TAPE_WALLET_KEY",
    "TAPE_WALLET_KEY_FILE", "TAPE_WALLET_KMS", "TAPE_WALLET_SEAL_WITH", "TAPE_WEBHOOK_SECRET",
)  # fmt: skip


@click.group(
    cls=LazyGroup,
    package="tape.cli",
    summaries=COMMANDS,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(VERSION, prog_name="tape", message="%(prog)s %(version)s")
@target_options
@click.pass_context
def tape(ctx: click.Context) -> None:
    """A durable event bus: one append-only journal, one order, on SQLite or Postgres.

    Commands work on a store in this process (--store, TAPE_STORE) or on a server (--url, TAPE_URL,
    with its token in TAPE_TOKEN). Settings come from a file (--config, TAPE_CONFIG, tape.yaml).
    `tape COMMAND --help` ends with an example.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and end the process with its exit code."""
    # gRPC writes lines of its own to stderr, beside the one error that we print.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    guard_terminal()
    sys.exit(run(sys.argv[1:] if arguments is None else arguments))


def run(arguments: Sequence[str]) -> int:
    target = Target()
    for sentence in misspelled(os.environ):
        click.echo(f"note: {printable(sentence)}", err=True)
    try:
        result = tape.main(list(arguments), prog_name="tape", standalone_mode=False, obj=target)
        sys.stdout.flush()
    except BrokenPipeError:
        silence_stdout()
        return 1
    except (KeyboardInterrupt, click.Abort):
        return 130
    except (TapeError, click.ClickException, OSError) as error:
        if target.verbose:
            raise
        click.echo(describe(error, target.inputs) + _hint(error, target), err=True)
        return exit_code(error)
    except Exception as fault:
        if target.verbose:
            raise
        text = one_line(f"{type(fault).__name__}: {fault}")
        click.echo(f"error: unexpected {text} (--verbose shows where)", err=True)
        return 1
    return result if isinstance(result, int) else 0


def _hint(error: Exception, target: Target) -> str:
    if isinstance(error, StoreUnavailable) and target.unnamed:
        return " (start one with: tape serve; or name a journal with --store sqlite:PATH)"
    return ""


def misspelled(environment: Mapping[str, str]) -> Iterator[str]:
    """A sentence for each variable that has almost the name of one that Tape reads."""
    for name in environment:
        if name.upper().startswith("TAPE") and name not in VARIABLES:
            from difflib import get_close_matches  # rarely needed

            for meant in get_close_matches(name.upper(), VARIABLES, n=1, cutoff=0.8):
                yield f"{name} is set, and Tape does not read it. Did you mean {meant}?"
