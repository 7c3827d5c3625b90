"""Names, ids and keys that a caller chose: bounded, and without NUL."""

from collections.abc import Sequence

from tape.errors import InvalidArgument, TooLarge
from tape.model.json_text import utf8_length
from tape.settings import Limits


def check_names(texts: Sequence[str], limits: Limits, *, fields: Sequence[str]) -> None:
    """Several at once, each under the name of its field."""
    together = "".join(texts)
    if together.isascii() and "\0" not in together and len(together) <= limits.name_bytes:
        return  # then so is each of them
    for text, field in zip(texts, fields, strict=True):
        check_name(text, limits, field=field)


def check_name(text: str, limits: Limits, *, field: str, required: bool = False) -> str:
    if required and not text:
        raise InvalidArgument("must not be empty", field=field)
    if "\0" in text:
        raise InvalidArgument("NUL is not allowed", field=field, position=text.index("\0"))
    size = len(text) if text.isascii() else utf8_length(text, field)
    if size > limits.name_bytes:
        raise TooLarge(f"{size} bytes, the limit is {limits.name_bytes}", field=field)
    return text
