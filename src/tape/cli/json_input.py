"""JSON that is typed, or read from a file or standard input."""

import sys
from pathlib import Path

import orjson

from tape.cli.target import Target
from tape.errors import InvalidArgument
from tape.model.json_text import UNLIMITED, check_json


def read_json(target: Target, text: str, *, field: str) -> orjson.Fragment:
    """`text`, the file that `@FILE` names, or for `-` standard input; refused if it is not JSON."""
    if text == "-":
        text = sys.stdin.read()
    elif text.startswith("@"):
        text = Path(text[1:]).read_text("utf-8")
    if not text.strip():
        raise InvalidArgument("is empty; nothing at all is null", field=field)
    target.inputs[field] = text
    return orjson.Fragment(check_json(text, UNLIMITED, field=field))
