"""The recorded history of payload types: a folder with one JSON file a type, every version kept."""

import json
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from tape.errors import InvalidArgument
from tape.model.payload_schema import PayloadSchema, SchemaBreak, find_breaks
from tape.payloads.payload import Payload
from tape.payloads.shape import schema_of

ENDING = ".json"


class CheckedType(NamedTuple):
    """A declared type beside its history. `recorded` is the newest version there, 0 for none."""

    declared: PayloadSchema
    recorded: int
    findings: list[SchemaBreak]


class HistoryCheck(NamedTuple):
    """`undeclared`: types that have a history and are declared nowhere any more."""

    types: list[CheckedType]
    undeclared: list[SchemaBreak]

    @property
    def findings(self) -> list[SchemaBreak]:
        return [*(f for checked in self.types for f in checked.findings), *self.undeclared]


def declared_in(modules: Iterable[ModuleType]) -> list[PayloadSchema]:
    """The payload types that modules name, by name; two of one name are refused."""
    found: dict[str, type[Payload]] = {}
    for module in modules:
        for kind in vars(module).values():
            if not (isinstance(kind, type) and issubclass(kind, Payload) and kind is not Payload):
                continue
            if found.setdefault(kind.__name__, kind) is not kind:
                raise InvalidArgument(
                    f"{kind.__module__} and {found[kind.__name__].__module__} both declare a "
                    f"{kind.__name__}; give each type its own name",
                    field="--module",
                )
    return [
        schema_of(kind, kind.subject_pattern, kind.model_fields["schema_version"].default)
        for _name, kind in sorted(found.items())
    ]


def check_history(folder: Path, declared: Iterable[PayloadSchema]) -> HistoryCheck:
    """Every break of declared types with what the folder has of them."""
    known = _read_folder(folder)
    types = []
    for schema in declared:
        versions = known.pop(schema.name, [])
        newest = versions[-1].version if versions else 0
        types.append(CheckedType(schema, newest, find_breaks(versions, schema)))
    return HistoryCheck(types, [_undeclared(name) for name in known])


def record_history(folder: Path, declared: Iterable[PayloadSchema]) -> HistoryCheck:
    """Add the versions that are new; nothing is written if anything breaks."""
    checkup = check_history(folder, declared)
    for checked in [] if checkup.findings else checkup.types:
        if checked.declared.version > checked.recorded:
            _append(folder, checked.declared)
    return checkup


def unrecorded(checked: CheckedType) -> list[SchemaBreak]:
    schema = checked.declared
    if schema.version == checked.recorded:
        return []
    message = f"version {schema.version} is not recorded; run `tape schema record`"
    return [SchemaBreak(schema.name, "", "unrecorded", message)]


def _undeclared(name: str) -> SchemaBreak:
    message = (
        "is in the history, but none of the given modules declares it; name all modules, and "
        "keep a type as long as payloads of it may be read"
    )
    return SchemaBreak(name, "", "undeclared", message)


def _read_folder(folder: Path) -> dict[str, list[PayloadSchema]]:
    if folder.exists() and not folder.is_dir():
        raise InvalidArgument(f"{folder} is not a folder", field="--history")
    return {path.stem: _read(path) for path in sorted(folder.glob(f"*{ENDING}"))}


def _read(path: Path) -> list[PayloadSchema]:
    try:
        told = json.loads(path.read_text("utf-8"))
        versions = [
            PayloadSchema(path.stem, told["subject"], entry["schema_version"], entry["fields"])
            for entry in told["versions"]
        ]
        numbers = [entry.version for entry in versions]
        sound = told["type"] == path.stem and numbers == sorted(set(numbers)) and numbers
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidArgument(_DAMAGED.format(path, repr(error)), field="--history") from None
    if not sound:
        raise InvalidArgument(_DAMAGED.format(path, "wrong type or versions"), field="--history")
    return versions


_DAMAGED = "{} is not a history that `tape schema record` has written: {}; restore the file"


def _append(folder: Path, schema: PayloadSchema) -> None:
    """The file is complete at every moment: a new one takes the place of the old one."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{schema.name}{ENDING}"
    told: dict[str, Any] = {"type": schema.name, "subject": schema.subject, "versions": []}
    if path.exists():
        told = json.loads(path.read_text("utf-8"))
    told["versions"].append({"schema_version": schema.version, "fields": schema.fields})
    draft = path.with_suffix(".new")
    draft.write_text(json.dumps(told, indent=2, ensure_ascii=False) + "\n", "utf-8")
    draft.replace(path)
