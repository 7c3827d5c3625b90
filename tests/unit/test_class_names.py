"""One noun, one meaning: no two modules of Tape have a class of the same name."""

import ast
from collections import defaultdict
from pathlib import Path

import tape

SOURCES = Path(tape.__file__ or "").parent
GENERATED = SOURCES / "wire" / "v1"
EXCEPTED = {"ResumeBody"}  # of a run and of a drainer: names of the HTTP description, which stay


def test_a_class_name_lives_in_one_module() -> None:
    homes: dict[str, list[str]] = defaultdict(list)
    for path in SOURCES.rglob("*.py"):
        if GENERATED not in path.parents:
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                if isinstance(node, ast.ClassDef):
                    homes[node.name.lstrip("_")].append(str(path.relative_to(SOURCES)))
    assert {name: where for name, where in homes.items() if len(where) > 1}.keys() == EXCEPTED
