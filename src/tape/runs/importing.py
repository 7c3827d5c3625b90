"""Modules that are imported for what they declare, by `tape worker` and its like.

A module that begins a run at its top level is a program as well. Each worker that starts would run
that program too, and whatever the run does would be done once for each of them.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from tape.errors import InvalidArgument

_imported: list[str] = []


@contextmanager
def importing(module: str) -> Iterator[None]:
    _imported.append(module)
    try:
        yield
    finally:
        _imported.pop()


def refuse_while_importing() -> None:
    """No run begins where a module is imported for its declarations."""
    if _imported:
        raise InvalidArgument(
            f"module {_imported[-1]!r} starts a run when it is imported, so every worker "
            'would start one: put that below `if __name__ == "__main__":`'
        )
