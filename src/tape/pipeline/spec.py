"""A pipeline in a file: which jobs, with which options, on which store.

    store: sqlite:tape.db
    jobs:
      - archive: {lake: ./lake, compact: true}
      - audit: {lake: ./lake}

The options of a job are the fields of its dataclass, so a file and the command line say the same.
"""

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

from tape.errors import InvalidArgument
from tape.pipeline.job import Job
from tape.settings.located import read_located
from tape.settings.yaml_nodes import FILE_RULES, did_you_mean


@dataclass(frozen=True, slots=True)
class Spec:
    """What a file says; empty is what it leaves to the command line."""

    jobs: tuple[Job, ...]
    store: str = ""
    master: str = ""
    remote: str = ""


def read_spec(file: Path, known: Mapping[str, type[Job]]) -> Spec:
    try:
        text = file.read_text()
    except OSError as fault:
        raise InvalidArgument(f"cannot be read: {fault.strerror}", field=str(file)) from None
    except UnicodeDecodeError as fault:
        raise InvalidArgument(f"is not YAML: {fault}", field=str(file)) from None
    document = _mapping(read_located(text, FILE_RULES, field=str(file)).value, str(file))
    _refuse_unknown(document, ("store", "master", "remote", "jobs"), str(file))
    listed = document.get("jobs")
    if not isinstance(listed, list) or not listed:
        raise InvalidArgument("must be a list with at least one job", field="jobs")
    jobs = [_job(item, f"jobs[{index}]", known) for index, item in enumerate(listed)]
    texts = {name: _text(document.get(name, ""), name) for name in ("store", "master", "remote")}
    return Spec(tuple(jobs), **texts)


def _job(item: object, at: str, known: Mapping[str, type[Job]]) -> Job:
    item = {item: None} if isinstance(item, str) else item
    if not isinstance(item, dict) or len(item) != 1:
        raise InvalidArgument(f"must be one of {', '.join(known)} with its options", field=at)
    ((name, options),) = item.items()
    _refuse_unknown({name: None}, tuple(known), at)
    return job_from(known[name], _mapping(options or {}, f"{at}.{name}"), f"{at}.{name}")


def job_from(kind: type[Job], options: Mapping[str, Any], at: str) -> Job:
    """The job with these options; refuses unknown, missing and mistyped ones by name."""
    hints = get_type_hints(kind)
    declared = {field.name: field for field in fields(kind)}  # type: ignore[arg-type]  # a dataclass
    _refuse_unknown(options, tuple(declared), at)
    for name, field in declared.items():
        required = field.default is MISSING and field.default_factory is MISSING
        if required and name not in options:
            raise InvalidArgument("is required", field=f"{at}.{name}")
    values = {name: _fitting(given, hints[name], f"{at}.{name}") for name, given in options.items()}
    return kind(**values)


def _fitting(given: object, kind: Any, at: str) -> Any:
    """The value, if it is of the kind; a list becomes the tuple that a frozen job holds."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin is UnionType:
        if given is None and NoneType in inner:
            return None
        (kind,) = (one for one in inner if one is not NoneType)
        return _fitting(given, kind, at)
    if origin is tuple:
        items = given if isinstance(given, list) else [given]
        return tuple(_fitting(item, inner[0], f"{at}[{n}]") for n, item in enumerate(items))
    if kind is float and isinstance(given, int) and not isinstance(given, bool):
        return float(given)
    if not isinstance(given, kind) or (isinstance(given, bool) and kind is not bool):
        raise InvalidArgument(f"{given!r} is not of type {kind.__name__}", field=at)
    return given


def _mapping(value: object, at: str) -> dict[str, Any]:
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise InvalidArgument("must be a mapping of names to values", field=at)
    return value


def _text(value: object, at: str) -> str:
    if not isinstance(value, str):
        raise InvalidArgument(f"{value!r} is not text", field=at)
    return value


def _refuse_unknown(given: Mapping[str, Any], known: tuple[str, ...], at: str) -> None:
    for name in given:
        if name not in known:
            meant = did_you_mean(name, known)
            raise InvalidArgument(f"no {name!r} here; {meant}known: {', '.join(known)}", field=at)
