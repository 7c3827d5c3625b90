"""Documents of subscriptions, as they are given to a command."""

import sys
from pathlib import Path

from tape.errors import InvalidArgument


def read_document(file: Path) -> str:
    """The text of a file; - is standard input."""
    try:
        text = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
        return text.decode()
    except UnicodeDecodeError:
        raise InvalidArgument("is not UTF-8", field=str(file)) from None
