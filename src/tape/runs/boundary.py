"""Where a run can be cut off: before and after each write and each act.

A test sets a hook here and ends the process at every one of these places in turn. Without a hook
it costs a comparison.
"""

from collections.abc import Callable

Hook = Callable[[str], None]

_hook: Hook | None = None


def set_boundary_hook(hook: Hook | None) -> None:
    """Have `hook` called with the name of each boundary that this process comes to."""
    global _hook  # noqa: PLW0603 - one per process, as a process is what ends here
    _hook = hook


def boundary(name: str) -> None:
    if _hook is not None:
        _hook(name)
