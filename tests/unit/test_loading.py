"""What is loaded when: `import tape` and `tape --help` take no time that nobody has asked for."""

import ast
import py_compile
import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from zipfile import ZipFile

import pytest

import tape

HEAVY = """
asyncio asyncpg boto3 cel_expr_python confluent_kafka cryptography fastapi google grpc httpx nats
opentelemetry prometheus_client psycopg pyarrow pydantic pyspark re2 rich sqlite3 ssl starlette
uvicorn uvloop yaml
"""
UNUSED = "asyncpg boto3 cryptography django grpc httpx psycopg pydantic pyspark sqlalchemy"
HELP = "from tape.cli.root import run; run(['--help'])"


def said_by(code: str) -> str:
    """What a new process prints last that runs this."""
    ran = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return ran.stdout.splitlines()[-1]


@pytest.mark.parametrize(
    ("code", "unused"),
    [
        (
            "import tape",
            [*HEAVY.split(), "click", "orjson", "tape.model", "tape.stores", "tape.settings"],
        ),
        (
            HELP,
            [
                *HEAVY.split(),
                "tape.model",
                "tape.stores",
                "tape.programs",
                "tape.bus",
                "tape.client",
            ],
        ),
        (
            "import tape; tape.connect('sqlite:tape.db').close()",
            [*UNUSED.split()],
        ),
    ],
    ids=["import tape", "tape --help", "a store in process"],
)
def test_modules_that_are_not_used_are_not_loaded(
    code: str, unused: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    loaded = said_by(f"{code}; import sys; print(*sorted({set(unused)} & sys.modules.keys()))")
    assert loaded == ""


@pytest.mark.parametrize(("code", "most_s"), [("import tape", 0.25), (HELP, 0.4)])
def test_processor_time_of_a_process(code: str, most_s: float) -> None:
    """With that of the interpreter itself. It is a fifth of these on a quiet core."""
    took = [float(said_by(f"{code}; import time; print(time.process_time())")) for _ in range(3)]
    assert min(took) <= most_s


def test_names_are_loaded_from_where_type_checkers_see_them() -> None:
    source = Path(tape.__file__ or "").read_text()
    seen = {
        name.name: node.module
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tape.")
        for name in node.names
    }
    modules = {"errors", "reactions"}
    assert seen.keys() | modules == set(tape.__all__)
    for name, module in seen.items():
        assert getattr(tape, name) is getattr(import_module(module or ""), name), name


def test_what_a_zip_file_holds_is_found(tmp_path: Path) -> None:
    packed = tmp_path / "tape.zip"
    source = Path(tape.__file__ or "").parent
    with ZipFile(packed, "w") as archive:
        for name in ("__init__.py", "errors.py"):
            archive.write(source / name, f"tape/{name}")
    code = f"import sys; sys.path.insert(0, {str(packed)!r}); import tape; print(tape.NotFound)"
    assert said_by(code) == "<class 'tape.errors.NotFound'>"


def test_what_has_no_source_is_found(tmp_path: Path) -> None:
    """Programs that freeze others leave the sources out."""
    source, frozen = Path(tape.__file__ or "").parent, tmp_path / "tape"
    frozen.mkdir()
    for name in ("__init__.py", "errors.py"):
        py_compile.compile(str(source / name), cfile=str(frozen / f"{name}c"), doraise=True)
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import tape; print(tape.NotFound)"
    assert said_by(code) == "<class 'tape.errors.NotFound'>"


def test_a_name_that_is_not_there() -> None:
    with pytest.raises(AttributeError, match=r"no attribute 'conect'\. Did you mean 'connect'"):
        tape.conect  # type: ignore[attr-defined]  # noqa: B018


def test_the_decorator_shares_its_name_with_no_module() -> None:
    assert find_spec("tape.app") is None
    assert tape.app.__module__ == "tape.runs.declare"


def test_the_version() -> None:
    assert tape.__version__ == import_module("tape.settings").VERSION
