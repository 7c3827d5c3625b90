"""Payload types that evolve by addition alone: a consumer of any version reads any other.

A consumer of an older version ignores fields that it does not know, and one of a newer version has
defaults for fields that are not there. So fields may be added, under a higher version, and nothing
else may change: not a name, not a type (a wider one would be read by new consumers and refused by
old ones), not a default (old and new would read one payload differently), not the subject.

A type is described by its JSON Schema with references resolved; `default` is part of it.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal, NamedTuple

VERSION_FIELD = "schema_version"
MAX_VERSION = 65_535

Fields = Mapping[str, Mapping[str, Any]]
"""JSON Schema by the name of the field, in the order of the fields."""
What = Literal[
    "removed", "renamed", "type", "default", "added", "version", "subject", "undeclared",
    "unrecorded",
]  # fmt: skip

_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
_SINGLE = ("items", "additionalProperties")


class PayloadSchema(NamedTuple):
    """One version of a type."""

    name: str
    subject: str
    version: int
    fields: Fields


class SchemaBreak(NamedTuple):
    """Why a type is refused. `field` is a path into it, empty where the type itself is meant."""

    name: str
    field: str
    what: What
    message: str

    def __str__(self) -> str:
        return f"{self.name}.{self.field}: {self.message}" if self.field else (
            f"{self.name}: {self.message}"
        )  # fmt: skip


def find_breaks(recorded: Iterable[PayloadSchema], declared: PayloadSchema) -> list[SchemaBreak]:
    """What in a type breaks with its history: versions in order, none where there is none."""
    found: dict[tuple[str, str], SchemaBreak] = {}
    newest: PayloadSchema | None = None
    for version in recorded:
        newest = version
        for finding in _breaks(version, declared):
            found.setdefault((finding.field, finding.what), finding)
    if newest is None:
        return []
    return [*_about_the_whole(newest, declared), *found.values()]


def _about_the_whole(newest: PayloadSchema, declared: PayloadSchema) -> Iterator[SchemaBreak]:
    def finding(what: What, message: str) -> SchemaBreak:
        field = VERSION_FIELD if what == "version" else ""
        return SchemaBreak(declared.name, field, what, message)

    if declared.version < newest.version:
        yield finding(
            "version",
            f"{declared.version} is lower than the recorded {newest.version}; versions only rise",
        )
    if declared.subject != newest.subject:
        yield finding(
            "subject",
            f"is for {declared.subject}, and was for {newest.subject}, which its consumers read; "
            "declare another type for the new subject",
        )


def _breaks(recorded: PayloadSchema, declared: PayloadSchema) -> Iterator[SchemaBreak]:
    same = recorded.version == declared.version
    for field, what, message in _compare_fields(recorded.fields, declared.fields, ""):
        if what != "added":
            yield SchemaBreak(declared.name, field, what, message)
        elif same:
            raised = f"{message} without raising {VERSION_FIELD}: make it {declared.version + 1}"
            yield SchemaBreak(declared.name, field, what, raised)


_Break = tuple[str, What, str]


def _compare_fields(old: Fields, new: Fields, path: str) -> Iterator[_Break]:
    gone = [name for name in old if name not in new]
    come = [name for name in new if name not in old]
    for name in gone:
        successor = next((n for n in come if _type(new[n]) == _type(old[name])), None)
        if successor is None:
            yield f"{path}{name}", "removed", "was removed; keep it, consumers may read it"
            continue
        come.remove(successor)
        advice = f"keep {name} and add {successor} beside it"
        said = f"seems to be renamed to {successor}; {advice}"
        yield f"{path}{name}", "renamed", said
    for name in come:
        yield f"{path}{name}", "added", "was added"
    for name, schema in old.items():
        if name in new:
            yield from _compare_field(schema, new[name], f"{path}{name}")


def _compare_field(old: Mapping[str, Any], new: Mapping[str, Any], path: str) -> Iterator[_Break]:
    is_version = path.rpartition(".")[2] == VERSION_FIELD
    if not is_version and not _same_default(old.get("default"), new.get("default")):
        changed = f"has the default {new.get('default')!r}, and had {old.get('default')!r}"
        advice = "a payload without the field would be read in two ways"
        yield path, "default", f"{changed}; {advice}"
    yield from _compare_types(_type(old), _type(new), path)


def _same_default(old: Any, new: Any) -> bool:
    """But for fields that were added to the types within it, which are judged there."""
    if isinstance(old, dict) and isinstance(new, dict):
        return all(
            name == VERSION_FIELD or (name in new and _same_default(value, new[name]))
            for name, value in old.items()
        )
    if isinstance(old, list) and isinstance(new, list):
        return len(old) == len(new) and all(map(_same_default, old, new))
    return bool(old == new)


def _compare_types(old: Mapping[str, Any], new: Mapping[str, Any], path: str) -> Iterator[_Break]:
    within: list[Iterator[_Break]] = []
    rest = dict.fromkeys([*old, *new])
    for key in list(rest):
        ours, theirs = old.get(key), new.get(key)
        if key == "properties" and ours is not None and theirs is not None:
            within.append(_compare_fields(ours, theirs, f"{path}."))
        elif key in _SINGLE and isinstance(ours, dict) and isinstance(theirs, dict):
            within.append(_compare_types(_type(ours), _type(theirs), f"{path}[]"))
        elif key in _LISTS and ours and theirs and len(ours) == len(theirs):
            within += [
                _compare_types(_type(a), _type(b), path) for a, b in zip(ours, theirs, strict=True)
            ]
        else:
            continue
        del rest[key]
    if any(old.get(key) != new.get(key) for key in rest):
        changed = f"changed its type from {_type_text(old)} to {_type_text(new)}"
        yield path, "type", f"{changed}; add a field of the new type beside it"
        return
    for breaks in within:
        yield from breaks


def _type(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in schema.items() if key != "default"}


def _type_text(schema: Mapping[str, Any]) -> str:
    """A schema in a few words."""
    if "anyOf" in schema:
        return " or ".join(_type_text(part) for part in schema["anyOf"])
    if "items" in schema:
        return f"array of {_type_text(schema['items'])}"
    more = {k: v for k, v in schema.items() if k not in ("type", "properties", *_SINGLE, *_LISTS)}
    kind = str(schema.get("type", "any"))
    return f"{kind} {more}" if more else kind
