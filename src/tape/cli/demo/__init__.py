"""`tape demo`: a day at a small trading desk, one module per act."""

from tape.cli.demo.command import demo

__all__ = ["demo"]
