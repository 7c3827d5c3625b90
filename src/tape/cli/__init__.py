"""The command line `tape`: one module per command."""

from tape.cli.root import main

__all__ = ["main"]
