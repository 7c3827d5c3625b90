"""What pydantic found wrong with a document, in plain English: one fault, its field and line."""

import re
from collections.abc import Iterator
from typing import Any, Final, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from tape.errors import InvalidArgument
from tape.settings.located import LocatedDocument, NodePath
from tape.settings.yaml_nodes import abridged, did_you_mean
from tape.subscriptions.document import SubscriptionDocument

_WANTED: Final = {
    "string_type": "a text",
    "int_type": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": "a block of keys",
    "model_type": "a block of keys",
}
_WORDS = re.compile(r"'([^']*)'")
_HIDDEN: Final = ("secret", "auth")  # who mistakes these for the secret must not find it in a log


def first_fault(error: ValidationError, document: LocatedDocument) -> InvalidArgument:
    """The fault to begin with: another kind of document; an unknown key, which may be why another
    one is missing; else the first of the document."""
    faults = error.errors(include_url=False)
    fault = min(faults, key=lambda each: _rank(each, document))
    path = _path(fault)
    return document.refusal(_said(fault, path), path)


def _rank(fault: ErrorDetails, document: LocatedDocument) -> tuple[bool, bool, int]:
    path, kind = _path(fault), fault["type"]
    is_other_kind = path == ("kind",) and kind == "literal_error"
    return not is_other_kind, kind != "extra_forbidden", document.line(path) or 0


def _path(fault: ErrorDetails) -> NodePath:
    """Without what pydantic adds where a key of the one mapping of a document is wrong. It may be
    the name of a key, too."""
    path = fault["loc"]
    return path[:-1] if path[-1] == "[key]" and path[-3:-2] == ("map",) else path


def _said(fault: ErrorDetails, path: NodePath) -> str:
    kind, given = fault["type"], fault["input"]
    match kind:
        case "missing":
            said = f"is required: {_description(path)}"
        case "extra_forbidden":
            known = list(_keys(_block(path[:-1])))
            meant = did_you_mean(str(path[-1]), known)
            said = f"there is no such key; {meant}known here: {', '.join(known)}"
        case "said":
            said = str(fault["ctx"]["said"])
        case "enum" | "literal_error":
            said = _no_word(given, path, _WORDS.findall(str(fault["ctx"]["expected"])))
        case "too_short":
            said = "must not be empty"
        case _ if kind in _WANTED:
            said = f"{_shown(given, path)} is not {_WANTED[kind]}{_remedy(kind, given)}"
        case _:
            said = fault["msg"]
    return said


def _no_word(given: Any, path: NodePath, words: list[str]) -> str:
    listed = ", ".join(words)
    if path[-2:] == ("verify", "type") and given == "none":
        return f"none is refused: every push is verified. Use one of {listed}"
    meant = did_you_mean(given, words) if isinstance(given, str) else ""
    return f"{_shown(given, path)} is not known here; {meant}use one of {listed}"


def _remedy(kind: str, given: Any) -> str:
    if kind == "string_type" and isinstance(given, bool | int | float):
        return "; write it in quotes"
    if kind in ("int_type", "float_type") and isinstance(given, str) and given.isdecimal():
        return "; leave out the quotes"
    return ""


def _shown(given: Any, path: NodePath) -> str:
    if path[-1] in _HIDDEN:
        return "the value"
    match given:
        case None:
            return "an empty value"
        case bool():
            return str(given).lower()
        case dict():
            return "a mapping"
        case list():
            return "a list"
    return abridged(str(given)) or "an empty text"


def _block(path: NodePath) -> type[BaseModel]:
    """The type of the block at a path."""
    block: type[BaseModel] = SubscriptionDocument
    for step in path:
        if isinstance(step, str):
            block = _inner(_keys(block)[step])
    return block


def _inner(annotation: Any) -> type[BaseModel]:
    return next(kind for kind in _types(annotation) if issubclass(kind, BaseModel))


def _types(annotation: Any) -> Iterator[type]:
    inside = get_args(annotation)
    if not inside and isinstance(annotation, type):
        yield annotation
    for each in inside:
        yield from _types(each)


def _keys(block: type[BaseModel]) -> dict[str, Any]:
    """The types of its keys, by the name that a document has for them."""
    return {field.alias or name: field.annotation for name, field in block.model_fields.items()}


def _description(path: NodePath) -> str:
    fields = _block(path[:-1]).model_fields
    (found,) = (field for name, field in fields.items() if (field.alias or name) == path[-1])
    said = (found.description or "").rstrip(".")
    return said[:1].lower() + said[1:]
