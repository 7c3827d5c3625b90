"""Files and folders that a job is told of, looked at before Spark starts."""

import os
from pathlib import Path

from tape.errors import InvalidArgument
from tape.pipeline.job import CheckContext
from tape.pipeline.lake.log import LakeLog


def refuse_unwritable(path: str | Path, field: str) -> None:
    """Refuse a place where nothing can be written: below a file, or without the right to."""
    place = Path(str(path).removeprefix("file://")).absolute()
    if "://" in str(path).removeprefix("file://"):
        return  # another file system than this machine's: Spark will say
    while not place.exists():
        place = place.parent
    if not place.is_dir():
        raise InvalidArgument(f"{path} cannot be written: {place} is not a folder", field=field)
    if not os.access(place, os.W_OK | os.X_OK):
        raise InvalidArgument(f"{path} cannot be written: no permission for {place}", field=field)


def refuse_unwritable_file(path: str | Path, field: str) -> None:
    file = Path(path)
    if file.is_dir():
        raise InvalidArgument(f"{path} is a folder; name a file", field=field)
    if not file.absolute().parent.is_dir():
        raise InvalidArgument(f"there is no folder {file.parent} for {file.name}", field=field)
    refuse_unwritable(file.absolute().parent, field)


def refuse_no_lake(path: str, before: CheckContext) -> None:
    """Refuse what is no lake, unless a job before this one makes it one."""
    if path and (log := LakeLog(path)).path not in before.lakes:
        log.require()
