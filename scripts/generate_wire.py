"""Generate the Python stubs of src/tape/wire/tape.proto, or check that they are current.

python scripts/generate_wire.py            write src/tape/wire/v1
python scripts/generate_wire.py --check    fail if it would change anything
"""

import argparse
import filecmp
import os
import sys
import tempfile
from importlib.resources import files
from pathlib import Path

from grpc_tools import protoc  # type: ignore[import-untyped]  # it has no types

SOURCE = Path(__file__).resolve().parent.parent / "src"
PROTO = SOURCE / "tape/wire/tape.proto"
PACKAGE = "tape/wire/v1"
MODULE = "tape_pb2"


def generate(into: Path) -> None:
    """The stubs, their types, and the package's own file, below `into`."""
    # protoc names modules after the path it reads, so it reads a copy at the path they will have.
    with tempfile.TemporaryDirectory() as copies:
        copy = Path(copies) / PACKAGE / PROTO.name
        copy.parent.mkdir(parents=True)
        copy.write_bytes(PROTO.read_bytes())
        # The plug-ins of mypy-protobuf are found beside the interpreter, venv active or not.
        os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        failed = protoc.main(
            [
                "protoc",
                f"--proto_path={copies}",
                f"--proto_path={files('grpc_tools') / '_proto'}",
                f"--python_out={into}",
                f"--grpc_python_out={into}",
                f"--mypy_out=quiet:{into}",
                f"--mypy_grpc_out=quiet:{into}",
                str(copy),
            ]
        )
    if failed:
        sys.exit(f"protoc failed on {PROTO.relative_to(SOURCE.parent)}")
    (into / PACKAGE / "__init__.py").write_text('"""Generated from wire/tape.proto."""\n')


def differences(fresh: Path) -> list[str]:
    names = {path.name for folder in (fresh, SOURCE / PACKAGE) for path in folder.glob("*.py*")}
    _same, changed, missing = filecmp.cmpfiles(fresh, SOURCE / PACKAGE, names, shallow=False)
    return sorted(changed + missing)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing, fail if stale")
    if not parser.parse_args().check:
        generate(SOURCE)
        return
    with tempfile.TemporaryDirectory() as folder:
        generate(Path(folder))
        stale = differences(Path(folder) / PACKAGE)
    if stale:
        sys.exit(f"src/{PACKAGE} is not current ({', '.join(stale)}): run `make generate`")


if __name__ == "__main__":
    main()
