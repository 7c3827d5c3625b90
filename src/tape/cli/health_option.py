"""`--health`, of each command that keeps working until it is told to stop."""

from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

VARIABLE: Final = "TAPE_HEALTH"
F = TypeVar("F", bound=Callable[..., Any])


def health_option(command: F) -> F:
    return click.option(
        "--health",
        envvar=VARIABLE,
        metavar="HOST:PORT",
        help="Answer probes here, /healthz and /readyz alone, on any address and without a token. "
        f"Or {VARIABLE}.",
    )(command)
