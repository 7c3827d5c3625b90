"""The examples of a page, as a reader would type them.

A ```console block holds commands after `$ ` and the lines they print; a ```python block is a
program, and a ```text block right after one is what it prints. One that begins with `# NAME.py` is
kept in that file, for those after it to import. `…` stands for anything within a line. All examples
of a page run in order, in one folder.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[3]
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Example(NamedTuple):
    """A command and what it prints; None where the page does not say."""

    command: str
    printed: list[str] | None


class Program(NamedTuple):
    source: str
    printed: list[str] | None

    @property
    def file_name(self) -> str | None:
        named = re.match(r"# (\w+\.py)\n", self.source)
        return named[1] if named else None


def pages() -> list[Path]:
    found = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
    return [page for page in found if page.name != "predicates.md"]


def examples(page: Path, grpc: int, http: int, nats: int = 4222) -> Iterator[Example | Program]:
    """The page's examples, with ports of this test's own for the ones that the page prints."""
    text = page.read_text().replace("7878", str(grpc)).replace("7879", str(http))
    text = text.replace("127.0.0.1:4222", f"127.0.0.1:{nats}").replace("-p 4222", f"-p {nats}")
    blocks = [(match[1], match[2], match.end()) for match in _FENCE.finditer(text)]
    for number, (language, body, end) in enumerate(blocks):
        if language == "console":
            yield from _commands(body)
        elif language == "python":
            following = blocks[number + 1] if number + 1 < len(blocks) else ("", "", 0)
            beside = following[0] == "text" and "\n\n\n" not in text[end : following[2]]
            yield Program(body, following[1].splitlines() if beside else None)


def _commands(body: str) -> Iterator[Example]:
    lines = body.splitlines()
    starts = [number for number, line in enumerate(lines) if line.startswith("$ ")]
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        command, rest = lines[start][2:], lines[start + 1 : end]
        while command.endswith("\\"):
            command, rest = f"{command}\n{rest[0].removeprefix('> ')}", rest[1:]
        yield Example(command, rest)


def matches(wanted: list[str], printed: list[str]) -> bool:
    """Whether what was printed is what the page says."""
    return len(wanted) == len(printed) and all(
        re.fullmatch(".*".join(map(re.escape, line.rstrip().split("…"))), got.rstrip())
        for line, got in zip(wanted, printed, strict=True)
    )
