"""An entry as a line of JSON, as `tape tail --json` prints it and files of entries hold it."""

from typing import Any

import orjson

from tape.model.entry import Entry
from tape.model.json_text import terminal_safe

_ONE_LINE = str.maketrans("\r\n", "  ")


def raw_json(text: str) -> orjson.Fragment | None:
    """JSON text to be put into an object as it stands, on one line; empty text is null.

    Valid JSON has line breaks only between its tokens, where a space does as well.
    """
    return orjson.Fragment(text.translate(_ONE_LINE)) if text else None


def entry_record(entry: Entry) -> dict[str, Any]:
    """For orjson: the payload as JSON and not as text."""
    record = entry._asdict()
    record["payload"] = raw_json(record.pop("payload_json"))
    return record


def entry_line(entry: Entry) -> bytes:
    """With the line break at its end, and none before."""
    return terminal_safe(orjson.dumps(entry_record(entry)).decode()).encode() + b"\n"
