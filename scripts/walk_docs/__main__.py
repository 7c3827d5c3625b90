"""Follow the pages and say what is otherwise than they print."""

import argparse
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from scripts.walk_docs.environments import NO_EXTRA, Environments
from scripts.walk_docs.pythons import VERSIONS, Interpreter
from scripts.walk_docs.report import print_json, print_progress, print_table
from scripts.walk_docs.walk import Round, Walked, taken_ports, walk
from tests.integration.docs.pages import PORTS, ROOT, guides
from tests.servers.ports import free_port


def main() -> int:
    wanted = _arguments()
    if not wanted.free_ports and (taken := taken_ports()):
        return _refused(f"ports {taken}, which pages print, are taken: say --free-ports")
    pages = [page for page in guides() if not wanted.page or page.stem.lower() in wanted.page]
    if not pages:
        return _refused(f"no page is called {', '.join(wanted.page)}")
    rounds = list(_rounds(wanted.python or VERSIONS, wanted.extra or [NO_EXTRA, *_extras()]))
    with tempfile.TemporaryDirectory(prefix="tape-walk-environments-") as folder:
        environments = Environments(Path(folder))

        def followed(place: tuple[Path, Round]) -> Walked:
            ports = {port: free_port() if wanted.free_ports else port for port in PORTS}
            walked = walk(*place, environments, ports)
            print_progress(walked)
            return walked

        with ThreadPoolExecutor(wanted.jobs if wanted.free_ports else 1) as threads:
            places = [(page, where) for where in rounds for page in pages]
            all_walked = list(threads.map(followed, places))
    (print_json if wanted.json else print_table)(all_walked)
    return 1 if not all_walked or any(walked.faults for walked in all_walked) else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="walk_docs", description=__doc__)
    parser.add_argument("--page", action="append", metavar="NAME", type=_stem,
                        help="only this page: README, runs, docs/runs.md")  # fmt: skip
    parser.add_argument("--python", action="append", metavar="VERSION",
                        help="a version such as 3.12, or the path of an interpreter")  # fmt: skip
    parser.add_argument("--extra", action="append", choices=[NO_EXTRA, *_extras()],
                        help="what is installed before the page is followed")  # fmt: skip
    parser.add_argument("--free-ports", action="store_true",
                        help="other ports than the pages print")  # fmt: skip
    parser.add_argument("--jobs", type=int, default=1, metavar="N",
                        help="pages at once, with --free-ports")  # fmt: skip
    parser.add_argument("--json", action="store_true", help="one object a page")
    return parser.parse_args()


def _stem(name: str) -> str:
    return Path(name).stem.lower()


def _extras() -> list[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return list(project["optional-dependencies"])


def _rounds(versions: Iterable[str], extras: list[str]) -> Iterator[Round]:
    for version in versions:
        found = Interpreter.find(version)
        if found.program is None:
            print(f"skip  Python {version} is not on this machine", file=sys.stderr)
            continue
        for extra in extras:
            yield Round(found.version, found.program, extra)


def _refused(why: str) -> int:
    print(f"error: {why}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
