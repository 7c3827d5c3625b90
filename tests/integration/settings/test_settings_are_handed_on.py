"""Nothing in Tape makes settings of its own where it was given some."""

import ast
from collections.abc import Iterator
from dataclasses import is_dataclass
from pathlib import Path

import tape.settings

SOURCE = Path(tape.__file__ or "").parent
KINDS = {name for name, kind in vars(tape.settings).items() if is_dataclass(kind)}
ELSEWHERE = (
    "settings/__init__.py",
    "testing/",
    "cli/demo/",
)  # where they are declared, or a scene is set
REASONS = {
    "brokers/logins.py: CredentialSettings": "no credential at all",
    "cli/config.py: Settings": "shows what differs from the defaults",
    "cli/worker.py: DispatcherSettings": "the help of the options names the defaults",
    "journal/pacer.py: PredicateSettings": "the default of a parameter, by a name",
    "model/json_text.py: Limits": "no limits at all",
    "pipeline/jobs/audit/recheck.py: Limits": "a job of the pipeline is given no limits",
    "predicates/spark_translator.py: Limits": "a bound on the code that Spark makes, no refusal",
    "spark.py: Settings": "what a file changes, where there is no other",
    "programs/consumers.py: Settings": "who gives a consumer its own section alone names no more",
    "programs/worker.py: DispatcherSettings": "whether the lease was set or is the default",
    "settings/file.py: Settings": "what a file changes",
}


def test_settings_are_made_of_what_was_given() -> None:
    made = {each for path in SOURCE.rglob("*.py") for each in _made(path)}
    assert made == set(REASONS), "hand on the settings that were given, or say why not"


def test_a_section_that_is_made_anew_is_found(tmp_path: Path) -> None:
    file = tmp_path / "bus.py"
    file.write_text("def relay(settings, given=OutboxSettings()):\n    run(OutboxSettings())\n")
    assert [*_constructed(ast.parse(file.read_text()))] == ["OutboxSettings"]
    file.write_text("def relay(settings=None):\n    run(settings or Settings())\n")
    assert [*_constructed(ast.parse(file.read_text()))] == []


def _made(path: Path) -> Iterator[str]:
    name = path.relative_to(SOURCE).as_posix()
    if not name.startswith(ELSEWHERE):
        for kind in _constructed(ast.parse(path.read_text())):
            yield f"{name}: {kind}"


def _constructed(module: ast.Module) -> Iterator[str]:
    """Settings that are made, except for who gives none: defaults, and `given or Settings()`."""
    excepted: set[ast.AST] = set()
    for node in ast.walk(module):
        if isinstance(node, ast.arguments):
            excepted.update(
                *(ast.walk(default) for default in node.defaults + node.kw_defaults if default)
            )
        elif isinstance(node, ast.BoolOp) and isinstance(node.op, ast.Or):
            excepted.update(node.values[1:])
    for node in ast.walk(module):
        if isinstance(node, ast.Call) and node not in excepted:
            name = ast.unparse(node.func).removeprefix("tape.").removeprefix("config.")
            if name in KINDS:
                yield name
