"""Which files of a lake are worth making into one."""

from collections.abc import Sequence
from typing import Final

from tape.pipeline.lake.manifest import LakeFile

SMALL: Final = 0.5
"""A file with less than this part of the rows a file should have is small."""


def small_groups(files: Sequence[LakeFile], rows_per_file: int) -> list[list[LakeFile]]:
    """Runs of small neighbours, each to become one file of at most so many rows."""
    groups: list[list[LakeFile]] = []
    group: list[LakeFile] = []
    rows = 0
    for file in files:
        small = file.rows < SMALL * rows_per_file
        if group and (not small or rows + file.rows > rows_per_file):
            groups.append(group)
            group, rows = [], 0
        if small:
            group.append(file)
            rows += file.rows
    return [group for group in [*groups, group] if len(group) > 1]
