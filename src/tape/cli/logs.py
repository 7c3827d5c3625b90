"""Log lines of the command line. Whatever a name or an error holds, a line stays one line and sends
nothing to the terminal; the lines of a traceback are indented, so that none passes for another."""

import copy
import logging
import sys
import traceback
from types import TracebackType

from tape.cli.output import printable

_INDENT = "    "


class PlainLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        from tape.ports.user_traceback import TracebackBlock  # loaded where something is logged

        own = copy.copy(record)
        own.exc_text = None  # another handler's, as it may be
        args = own.args if isinstance(own.args, tuple) else ()
        blocks = [arg.text for arg in args if isinstance(arg, TracebackBlock)]
        if blocks:
            own.args = tuple("" if isinstance(arg, TracebackBlock) else arg for arg in args)
        return "\n".join([super().format(own), *(_indented(text) for text in blocks if text)])

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's own name
        return printable(super().formatMessage(record))

    def formatException(self, ei: object) -> str:  # noqa: N802 - likewise
        return _indented(super().formatException(ei))  # type: ignore[arg-type]

    def formatStack(self, stack_info: str) -> str:  # noqa: N802 - likewise
        return _indented(super().formatStack(stack_info))


def start_logging(*, verbose: bool, form: str = logging.BASIC_FORMAT) -> None:
    """Log to standard error, for as long as this process lives."""
    handler = logging.StreamHandler()
    handler.setFormatter(PlainLines(form))
    logging.basicConfig(level=logging.INFO if verbose else logging.WARNING, handlers=[handler])


def guard_terminal() -> None:
    """Keep what is printed without a handler of ours, warnings and tracebacks, just as plain."""
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(PlainLines("%(message)s"))
    sys.excepthook = _print_traceback


def _print_traceback(
    kind: type[BaseException], error: BaseException, at: TracebackType | None
) -> None:
    lines = "".join(traceback.format_exception(kind, error, at)).rstrip("\n").split("\n")
    print("\n".join(map(printable, lines)), file=sys.stderr)


def _indented(text: str) -> str:
    return "\n".join(_INDENT + printable(line) for line in text.split("\n"))
